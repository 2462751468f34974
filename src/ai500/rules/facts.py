"""A run, layer by layer, as facts: what the class prescribes beside what the workers recorded.

`check` shows them, the rules compare them, `diff` holds those of two runs against each other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from ai500.core.units import human_bytes
from ai500.records import TrainRecord
from ai500.rules.evidence import Evidence, groups, told
from ai500.train.choices import OPTIMIZERS_WITH
from ai500.workloads.models.architecture import initial_architecture

LEARNING_RATE_POLICIES = ("lars", "lamb")
"""Optimizers that V2 §5.1.2 counts as learning-rate policies."""
EQUIVALENT_MODES = ("data", "tensor", "pipeline", "mixed")
"""Held equal to one process by tests/train/test_engines.py."""
SYNCHRONOUS_MODES = ("all_reduce", "hierarchical", "torus_2d")
"""Every rank waits for all others' gradients: tests/train/test_collectives.py."""
PRECISIONS = ("fp32", "tf32", "mixed-bf16", "mixed-fp16", "fp16", "fp8", "int8")
"""V2 §5.1.7 and V3 Table 2."""
SAMPLERS = ("bootstrap", "poisson")
"""V3 §3.3: the times a sample is drawn follow Poisson(1), exactly or in the limit."""
OPTIMIZER_CLASSES = {
    "sgd": "torch.optim.sgd.SGD",
    "adam": "torch.optim.adam.Adam",
    "adagrad": "torch.optim.adagrad.Adagrad",
    "lars": "ai500.train.optimizers.LARS",
    "lamb": "ai500.train.optimizers.LAMB",
}
SHOWN_OF_HASH = 16
ONE_BATCH = "an accelerator's batch"


@dataclass(frozen=True, slots=True)
class Fact:
    """One thing about a run."""

    layer: int
    aspect: str
    what: str
    reference: str | None
    """None: free to choose, so it is only stated."""
    run: str | None
    """None: not recorded."""
    do: str = ""

    @property
    def differs(self) -> bool:
        """Whether the run is known to differ from a reference there is."""
        return self.reference is not None and self.run is not None and self.run != self.reference


@lru_cache(maxsize=2)
def facts(evidence: Evidence) -> tuple[Fact, ...]:
    """All of a run, the problem first and the hardware last."""
    if evidence.program == "search":
        own = (*_data(evidence), *_defaults(evidence), *_start(evidence))
    else:
        own = (
            *_data(evidence),
            *_epochs(evidence),
            *_hyperparameters(evidence),
            *_workload(evidence),
        )
    return (
        *own,
        *_programming_model(evidence),
        *_framework(evidence),
        *_accelerators(evidence),
        *_communication(evidence),
        *_machine(evidence),
    )


def plain(value: Any) -> str:
    """A value as it is shown and compared."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.6g}"  # 2 and 2.0 print alike
    if isinstance(value, list | tuple):
        return ", ".join(map(plain, value)) or "none"
    return str(value)


def of_members(evidence: Evidence, read: Callable[[TrainRecord], Any]) -> str | None:
    """What the members say; where they differ, all of it; None: none of them says anything."""
    said = {None if (one := read(member)) is None else plain(one) for member in evidence.members}
    told_of = sorted(one for one in said if one is not None)
    if told_of and None in said:
        told_of.append("not recorded")
    return " and ".join(told_of) if told_of else None


def ranges(numbers: Any) -> str | None:
    """1, 2, 3, 5 as '1–3, 5'; None for what is no list of whole numbers."""
    if not isinstance(numbers, list) or not all(isinstance(one, int) for one in numbers):
        return None
    runs: list[list[int]] = []
    for one in sorted(set(numbers)):
        if runs and one == runs[-1][-1] + 1:
            runs[-1].append(one)
        else:
            runs.append([one])
    return ", ".join(f"{r[0]}–{r[-1]}" if len(r) > 1 else f"{r[0]}" for r in runs) or "none"


def recorded(evidence: Evidence, *path: str) -> str | None:
    """What the members' workers recorded under that path."""
    return of_members(evidence, lambda member: told(member, *path))


def short(digest: str) -> str:
    """Enough of a SHA-256 to compare by eye."""
    return f"{digest[:SHOWN_OF_HASH]}…" if len(digest) > SHOWN_OF_HASH else digest


def _data(evidence: Evidence) -> Iterator[Fact]:
    reference, plan = evidence.reference, evidence.plan
    own_data = "Leave data.path out."
    stores = of_members(evidence, lambda member: _short(told(member, "data", "store_sha256")))
    placed = {short(one.store_sha256) for one in evidence.placements}
    expected = reference.store_sha256
    yield Fact(
        9, "data set", "data's SHA-256", None if expected is None else short(expected),
        _besides(stores, placed), own_data,
    )  # fmt: skip
    for split in ("train", "validation"):
        wanted, planned = (getattr(one, f"{split}_samples") for one in (reference, plan.definition))
        read = recorded(evidence, "data", "samples", split)
        yield Fact(
            9, "data set", f"{split} samples", plain(wanted), _besides(read, {plain(planned)}),
            own_data,
        )  # fmt: skip
    for what, name in (("classes", "classes"), ("model's input", "input_shape")):
        wanted, planned = (plain(getattr(one, name)) for one in (reference, plan.definition))
        yield Fact(9, "data set", what, wanted, planned, own_data)
    target = f"{reference.target_quality:g}, n = {reference.penalty_exponent}"
    definition = plan.definition
    qualities = {evidence.score.target_quality, definition.target_quality}
    ours = [f"{one:g}, n = {definition.penalty_exponent}" for one in sorted(qualities)]
    yield Fact(
        9, "target quality", "target quality", target, " and ".join(ours), "Run the class as it is."
    )


def _epochs(evidence: Evidence) -> Iterator[Fact]:
    reference = evidence.reference
    epochs = reference.reference.epochs
    yield Fact(
        9, "epochs", "epochs", plain(epochs), of_members(evidence, lambda member: member.epochs),
        "Leave train.epochs out.",
    )  # fmt: skip
    every = reference.reference.evaluate_every_epochs
    due = [at for at in range(1, epochs + 1) if at % every == 0 or at == epochs]
    yield Fact(
        9, "evaluations", "evaluated after epochs", ranges(due),
        of_members(evidence, lambda member: ranges(told(member, "evaluation_epochs"))),
        "Leave train.epochs and train.evaluate_every_epochs out.",
    )  # fmt: skip


def _defaults(evidence: Evidence) -> Iterator[Fact]:
    """AIPerf Table IV: those of a search may change; batch and kernel size are what it tunes."""
    reference = evidence.reference_hyperparameters
    for name in ("optimizer", "base_learning_rate", "schedule", "decay_power", "momentum",
                 "weight_decay", "label_smoothing", "epochs"):  # fmt: skip
        what = "most epochs" if name == "epochs" else name.replace("_", " ")
        value = recorded(evidence, "hyperparameters", name)
        yield Fact(8, "a search's defaults", what, plain(getattr(reference, name)), value)


def _start(evidence: Evidence) -> Iterator[Fact]:
    """Where a search begins, as its histories tell."""
    reference = evidence.reference
    if reference.search is None:
        return
    channels = reference.input_shape[0]
    initial = reference.search.initial
    start = initial_architecture(initial, classes=reference.classes, input_channels=channels)
    found = {
        model.candidate.digest
        for trial in evidence.trials
        if trial.history is not None
        for model in trial.history.models.values()
        if model.candidate.parent is None
    }
    run = " and ".join(sorted(found)) or None
    yield Fact(7, "model", "initial architecture", start.digest, run, "Run the class as it is.")


def _hyperparameters(evidence: Evidence) -> Iterator[Fact]:
    reference = evidence.reference_hyperparameters
    used = recorded(evidence, "hyperparameters", "optimizer")
    policy = used in (*LEARNING_RATE_POLICIES, reference.optimizer)
    rate, other = "learning-rate policy", "other hyper-parameters"
    rows = [(name, "batch size") for name in ("batch_size", "accumulation")]
    rows += [("optimizer", rate if policy else other)]
    rows += [
        (name, rate)
        for name in (
            "base_learning_rate", "reference_batch_size", "schedule", "warmup_epochs",
            "decay_epochs", "decay_power",
        )
    ]  # fmt: skip
    for name in ("betas", "epsilon", "trust_coefficient"):
        rows += [(name, rate)] if used in OPTIMIZERS_WITH[name] else []
    rows += [("momentum", other), ("weight_decay", other), ("label_smoothing", other)]
    for name, aspect in rows:
        used_there = reference.optimizer in OPTIMIZERS_WITH.get(name, (reference.optimizer,))
        yield Fact(
            8, aspect, name.replace("_", " "),
            plain(getattr(reference, name)) if used_there else None,
            recorded(evidence, "hyperparameters", name),
            f"Leave train.{name} out.",
        )  # fmt: skip
    expected = OPTIMIZER_CLASSES.get(used or "")
    yield Fact(
        8, other, "optimizer's code", expected,
        recorded(evidence, "optimizer_class"),
        "Use the optimizer of that name that comes with ai500.",
    )  # fmt: skip
    normalized = of_members(evidence, batch_norm_images)
    yield Fact(8, "batch size", "batch norm over", ONE_BATCH, normalized)


def batch_norm_images(member: TrainRecord) -> str | None:
    """What batch norm's statistics are of: an accelerator's batch in the reference."""
    batch = told(member, "batch_size")
    axes = [told(member, "parallel", f"{axis}_degree") for axis in ("data", "pipeline", "tensor")]
    if not all(isinstance(one, int) for one in (batch, *axes)):
        return None
    data, pipeline, tensor = axes
    parts = told(member, "parallel", "microbatches")
    images = batch * pipeline * tensor // max(1, parts if isinstance(parts, int) else 1)
    if told(member, "parallel", "batch_norm") == "synchronized":
        return f"{images * data} images, synchronized"
    return ONE_BATCH if images == batch else f"{images} images, its own batch is {batch}"


def _workload(evidence: Evidence) -> Iterator[Fact]:
    model, do = evidence.model, "Train the class's own model."
    yield Fact(
        7, "model", "graph's SHA-256", None if model is None else short(model.graph_sha256),
        of_members(evidence, lambda member: _short(told(member, "model", "graph_sha256"))), do,
    )  # fmt: skip
    parameters = None if model is None else plain(model.parameters)
    yield Fact(
        7, "model", "parameters", parameters,
        recorded(evidence, "model", "parameters"), do,
    )  # fmt: skip
    yield Fact(
        7, "model", "parameters trained", parameters, of_members(evidence, _trained),
        "Give every parameter to the optimizer.",
    )  # fmt: skip
    sampler = evidence.plan.sampler
    known = " or ".join(SAMPLERS)
    yield Fact(
        7, "bagging", "sampler", known, known if sampler in SAMPLERS else sampler,
        "Leave ensemble.sampler out.",
    )  # fmt: skip


def _trained(member: TrainRecord) -> int | None:
    counted = [one.get("elements") for one in groups(member)]
    if not counted or not all(isinstance(one, int) for one in counted):
        return None
    return sum(one for one in counted if isinstance(one, int))


def _programming_model(evidence: Evidence) -> Iterator[Fact]:
    mode = recorded(evidence, "parallel", "mode")
    equivalent = mode is None or mode in EQUIVALENT_MODES
    yield Fact(
        6, "equivalent parallelism" if equivalent else "other parallelism", "parallel mode",
        "data", mode, 'Set parallel.mode = "data".',
    )  # fmt: skip
    yield Fact(
        6, "equivalent parallelism", "data × pipeline × tensor", None,
        of_members(evidence, _degrees),
    )  # fmt: skip
    yield Fact(
        6, "equivalent parallelism", "sharded (FSDP2)", "no",
        recorded(evidence, "parallel", "sharded"),
    )  # fmt: skip
    yield Fact(
        6, "synchronous training", "synchronous steps", "yes",
        of_members(evidence, synchronous), "Use a collective that comes with ai500.",
    )  # fmt: skip


def _degrees(member: TrainRecord) -> str | None:
    axes = [told(member, "parallel", f"{axis}_degree") for axis in ("data", "pipeline", "tensor")]
    return None if None in axes else " × ".join(map(plain, axes))


def synchronous(member: TrainRecord) -> str | None:
    """Whether the way its gradients were averaged is known to be synchronous."""
    if not isinstance(told(member, "parallel"), dict):
        return None
    mode = told(member, "parallel", "communication", "mode")
    return "yes" if mode is None or mode in SYNCHRONOUS_MODES else f"not known of {mode!r}"


def _framework(evidence: Evidence) -> Iterator[Fact]:
    aspect = "AI framework"
    name = recorded(evidence, "framework", "name")
    yield Fact(5, aspect, "framework", "pytorch", name, "Enter at system level.")
    for key in ("version", "compiled", "deterministic"):
        value = recorded(evidence, "framework", key)
        yield Fact(5, aspect, key, None, value)


def _accelerators(evidence: Evidence) -> Iterator[Fact]:
    reference = evidence.reference_hyperparameters.precision
    used = recorded(evidence, "numerics", "precision")
    known = used is None or all(one in PRECISIONS for one in used.split(" and "))
    yield Fact(
        4, "precision" if known else "other precision", "precision", reference, used,
        f"Use one of {', '.join(PRECISIONS)}.",
    )  # fmt: skip
    yield Fact(
        4, "precision", "products", None,
        recorded(evidence, "numerics", "products"),
    )  # fmt: skip
    device = of_members(evidence, lambda member: member.device_name)
    yield Fact(4, "accelerators", "device", None, device)
    for key in ("cuda", "hip"):
        version = _version(evidence, key)
        if version is not None:
            yield Fact(4, "accelerators", key, None, version)
    cudnn = recorded(evidence, "framework", "cudnn")
    if cudnn is not None:
        yield Fact(4, "accelerators", "cudnn", None, cudnn)


def _version(evidence: Evidence, name: str) -> str | None:
    return of_members(evidence, lambda member: member.versions.get(name))


def _communication(evidence: Evidence) -> Iterator[Fact]:
    alone = all(
        told(member, "parallel", "communication", "mode") is None for member in evidence.members
    )
    for key, reference in (("mode", "all_reduce"), ("precision", "fp32")):
        value = recorded(evidence, "parallel", "communication", key)
        yield Fact(
            3, "communication", f"all-reduce's {key}", None if alone else reference,
            "none: one replica" if alone and evidence.members else value,
        )  # fmt: skip
    yield Fact(3, "communication", "backend", None, of_members(evidence, _backend))


def _backend(member: TrainRecord) -> str | None:
    told_of = told(member, "communication")
    if not isinstance(told_of, dict):
        return None
    name, version = told_of.get("backend"), told_of.get("version")
    return "none: one process" if name is None else " ".join(str(x) for x in (name, version) if x)


def _machine(evidence: Evidence) -> Iterator[Fact]:
    system, plan = evidence.system, evidence.plan
    if system is not None:
        yield Fact(2, "operating system", "operating system", None, system.operating_system)
        yield Fact(2, "operating system", "kernel", None, system.kernel)
    yield Fact(2, "operating system", "launcher", None, plan.launcher)
    built = recorded(evidence, "framework", "build_optimization")
    yield Fact(2, "operating system", "framework built with", None, built)
    if system is not None:
        memory = system.memory_bytes
        yield Fact(1, "hardware", "CPU", None, f"{system.cpu}, {system.cores} cores")
        yield Fact(1, "hardware", "memory", None, None if memory is None else human_bytes(memory))
    yield Fact(1, "hardware", "nodes", None, plain(len(plan.nodes)))
    yield Fact(1, "hardware", "Sys_scale", None, plain(plan.system_scale))


def _short(digest: Any) -> str | None:
    return short(digest) if isinstance(digest, str) else None


def _besides(said: str | None, others: set[str]) -> str | None:
    """What the members say, and what others say who say something else."""
    return said and " and ".join([said, *sorted(others - {said})])
