"""Disk that a run will take: what is written, where, for how long, and whether it fits."""

from __future__ import annotations

import math
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ai500.config import Config
from ai500.core.errors import EnvironmentLacksError
from ai500.data.store import cache_folder
from ai500.parallel.placement import scratch_folder
from ai500.pipeline.programs import program_of
from ai500.records import Hyperparameters, Plan
from ai500.records.fields import sample_bytes
from ai500.train.choices import OPTIMIZERS_WITH
from ai500.workloads.class_data import cached_store
from ai500.workloads.protocol import load_workload

VALUE_BYTES = 4  # weights and optimizer state are FP32 in every precision


@dataclass(frozen=True, slots=True)
class DiskUse:
    """Files of one kind that a run writes."""

    content: str
    folder: str
    """Folder, on each node where `nodes` is more than 1."""
    file_system: str | None
    """Mount point seen from here; None: only the nodes know it."""
    free_bytes: int | None
    bytes: int | None
    """Most bytes at one time, in one place; None: not known before the run."""
    kept: str
    """Time for which the files are kept, in words."""
    reason: str = ""
    """Why `bytes` is not known; empty otherwise."""


def disk_use(config: Config, plan: Plan, run: Path) -> list[DiskUse]:
    """List what the run will write; records and logs, some megabytes, are left out."""
    here = plan.cluster is None
    uses = []
    if config.data.path is None and plan.framework.kind != "script":
        folder = cached_store(plan.workload, plan.problem_class)
        if folder is not None and not folder.exists():
            rows = plan.definition.train_samples + plan.definition.validation_samples
            size = rows * sample_bytes(plan.definition.fields)
            uses.append(_use("generated data", cache_folder(), size, "until you delete it"))
    if plan.stage:
        size = max(plan.bytes_per_node.values(), default=0)
        uses.append(
            _use("staged data, per node", _scratch(config, run), size, "while a trial runs",
                 seen=here)
        )  # fmt: skip
    checkpoints, reason = _checkpoint_bytes(plan)
    uses.append(_use("checkpoints", run, checkpoints, "until you delete the run", reason=reason))
    predictions, reason = _prediction_bytes(plan)
    uses.append(_use("predictions", run, predictions, "until you delete the run", reason=reason))
    return uses


def lacking(uses: Sequence[DiskUse]) -> list[str]:
    """Return a sentence for each file system that has too little space for what is known."""
    sentences = []
    for system in dict.fromkeys(use.file_system for use in uses if use.file_system is not None):
        needed = sum(use.bytes or 0 for use in uses if use.file_system == system)
        free = min(use.free_bytes or 0 for use in uses if use.file_system == system)
        if needed > free:
            sentences.append(f"{system} has {free} bytes free; the run needs at least {needed}.")
    return sentences


def _use(
    content: str,
    folder: Path,
    size: int | None,
    kept: str,
    *,
    seen: bool = True,
    reason: str = "",
) -> DiskUse:
    existing = next(path for path in (folder.absolute(), *folder.absolute().parents)
                    if path.exists())  # fmt: skip
    mount = next(path for path in (existing.resolve(), *existing.resolve().parents)
                 if path.is_mount())  # fmt: skip
    free = shutil.disk_usage(existing).free
    return DiskUse(
        content=content,
        folder=str(folder),
        file_system=str(mount) if seen else None,
        free_bytes=free if seen else None,
        bytes=size,
        kept=kept,
        reason=reason,
    )


def _scratch(config: Config, run: Path) -> Path:
    try:
        return scratch_folder(run, stated=config.data.scratch).parent
    except EnvironmentLacksError:  # a variable that only the nodes have
        return Path(config.data.scratch or "")


def _checkpoint_bytes(plan: Plan) -> tuple[int | None, str]:
    """Return the bytes of every member's last checkpoint, and of the one before while it trains."""
    if not program_of(plan).trains_class_model:
        return None, "they depend on the models that the search tries"
    if plan.framework.kind == "script":
        return None, "the script writes its own"
    if plan.operations is None:
        return None, "the model is counted when the run traces it"
    states = _states_per_weight(plan.hyperparameters)
    if states is None:
        return None, f"optimizer {plan.hyperparameters.optimizer} is a plugin's"
    members = plan.trials * plan.ensemble_size
    together = math.ceil(plan.ensemble_size / plan.waves)  # of the wave that trains
    return VALUE_BYTES * plan.operations.parameters * (1 + states) * (members + together), ""


def _states_per_weight(hyper: Hyperparameters) -> int | None:
    if hyper.optimizer in OPTIMIZERS_WITH["momentum"]:
        return 1 if hyper.momentum else 0
    if hyper.optimizer in OPTIMIZERS_WITH["betas"]:
        return 2
    return 1 if hyper.optimizer == "adagrad" else None


def _prediction_bytes(plan: Plan) -> tuple[int | None, str]:
    """Return the bytes of all members' predictions; out of bag, of at most so many samples."""
    definition = plan.definition
    sized = getattr(load_workload(plan.workload), "prediction_bytes", None)
    targets = [field for field in definition.fields if field.role == "target"]
    if sized is not None:
        row = sized(definition)
    elif definition.classes:
        row = VALUE_BYTES * definition.classes
    elif targets and not any(field.ragged for field in targets):
        row = VALUE_BYTES * sum(math.prod(field.shape) for field in targets)
    else:
        return None, "the workload states no size"
    out_of_bag = min(definition.out_of_bag_samples, definition.train_samples)
    rows = definition.validation_samples + out_of_bag
    return row * rows * plan.trials * plan.ensemble_size, ""
