"""What really ran, for the rules to judge: read from the live objects, not from a configuration.

The optimizer tells its groups, the feed its batch, the engine its parallelism, the traced graph
the model, the member's own events the epochs.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.util
import inspect
import os
import platform
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.conv import _ConvNd

from ai500.core import __version__, plugins, schema
from ai500.core.events import Event
from ai500.core.randomness import Stream, derive
from ai500.core.source import source_sha256
from ai500.data.open_store import open_store
from ai500.operations.graph import IDENTITY_BATCH, graph_sha256
from ai500.operations.torch_trace import trace
from ai500.parallel import cuda_graph as graph
from ai500.parallel.data_duplicator import Staged
from ai500.parallel.engines.state import gather_objects
from ai500.records import Hyperparameters, Task
from ai500.train.learning_rate import scaled_peak
from ai500.train.loop import Member

LAYER_KINDS: dict[type[nn.Module], str] = {
    _BatchNorm: "batch norm",
    nn.LayerNorm: "layer norm",
    nn.GroupNorm: "group norm",
    _ConvNd: "convolution",
    nn.Linear: "dense",
    nn.Embedding: "embedding",
}
FROM_OPTIMIZER = {
    "momentum": "momentum",
    "weight_decay": "weight_decay",
    "betas": "betas",
    "epsilon": "eps",
    "trust_coefficient": "trust_coefficient",
}
"""Hyper-parameter → what the optimizer calls it in its groups."""


def effective(
    member: Member,
    *,
    groups: list[dict[str, Any]],
    described: list[dict[str, Any]],
    told: Sequence[Event],
) -> dict[str, Any]:
    """All of it, as plain data; rank 0 calls this when training has ended."""
    parallel = described[0] | _traffic_of_all(described)
    kind = type(member.optimizer)
    return {
        "optimizer": kind.__name__,
        "optimizer_class": f"{kind.__module__}.{kind.__qualname__}",
        "batch_size": _batch_size(member),
        "global_batch_size": member.feed.global_batch_size,
        "accumulation": member.task.hyperparameters.accumulation,
        "dtype": str(next(member.engine.module.parameters()).dtype),
        "threads": torch.get_num_threads(),
        "parallel": parallel,
        "numerics": member.numerics.describe(),
        "groups": groups,
        "hyperparameters": _hyperparameters(member, groups, told),
        "learning_rate": _learning_rate(member, told),
        "epochs": sorted({event["epoch"] for event in told if event["event"] == "epoch"}),
        "evaluation_epochs": sorted({e["epoch"] for e in told if e["event"] == "quality"}),
        "model": _model(member),
        "framework": _framework(member),
        "communication": _communication(member, parallel.get("communication")),
        "data": _data(member),
        "seeds": seeds(member.task),
    }


def versions() -> dict[str, str]:
    """Of what computed; the source's digest tells apart what a version number does not."""
    found = {
        "ai500": __version__,
        "source": source_sha256(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": numpy.__version__,
    }
    if torch.version.cuda is not None:
        found["cuda"] = torch.version.cuda
    if torch.version.hip is not None:
        found["hip"] = torch.version.hip
    if torch.cuda.is_available() and importlib.util.find_spec("triton") is not None:
        found["triton"] = importlib.metadata.version("triton")
    return found


def optimizer_groups(member: Member) -> list[dict[str, Any]]:
    """The optimizer's groups as they were, with the parameters of all ranks; every rank calls."""
    names = {id(p): name for name, p in member.engine.module.named_parameters()}
    mine = [
        [names[id(parameter)] for parameter in group["params"]]
        for group in member.optimizer.param_groups
    ]
    everyones = gather_objects(mine, size=member.engine.mesh.size)
    if not everyones:
        return []
    whole = member.engine.unsharded()
    sizes = {name: parameter.numel() for name, parameter in whole.named_parameters()}
    groups = []
    for number, group in enumerate(member.optimizer.param_groups):
        held = sorted({name for one in everyones for name in one[number]})
        plain = {key: value for key, value in group.items() if _is_plain(value)}
        digest = hashlib.sha256("\n".join(held).encode()).hexdigest()
        groups.append(
            plain
            | {
                "parameters": len(held),
                "elements": sum(sizes.get(name, 0) for name in held),
                "kinds": dict(sorted(Counter(kind_of(whole, name) for name in held).items())),
                "names_sha256": digest,
            }
        )
    return groups


def kind_of(model: nn.Module, name: str) -> str:
    """A parameter by what it is in its layer: `batch norm weight` is γ, `batch norm bias` β."""
    path, _, leaf = name.rpartition(".")
    try:
        layer = model.get_submodule(path)
    except AttributeError:
        return f"other {leaf}"
    kinds = (kind for one, kind in LAYER_KINDS.items() if isinstance(layer, one))
    return f"{next(kinds, type(layer).__name__)} {leaf}"


def device_name(device: torch.device) -> str:
    """As its maker calls it."""
    if device.type == "cpu":
        return platform.processor() or platform.machine()
    return str(torch.get_device_module(device).get_device_name(device))


def _is_plain(value: object) -> bool:
    if isinstance(value, tuple):
        return all(map(_is_plain, value))
    return value is None or isinstance(value, bool | int | float | str)


def _batch_size(member: Member) -> int:
    """Images of one accelerator and micro-step, by what the feed hands out."""
    ranks = member.engine.mesh.size * member.task.hyperparameters.accumulation
    return member.feed.global_batch_size // ranks


def _hyperparameters(
    member: Member, groups: Sequence[dict[str, Any]], told: Sequence[Event]
) -> dict[str, Any]:
    """Every one of them, from the object that acts on it where there is one."""
    used: dict[str, Any] = schema.encode(member.task.hyperparameters)
    used["epochs"] = len({event["epoch"] for event in told if event["event"] == "epoch"})
    used["batch_size"] = _batch_size(member)
    for name, key in FROM_OPTIMIZER.items():
        values = [schema.encode(group[key]) for group in groups if key in group]
        if values:
            # Where groups differ the largest group speaks here; the rules look at each group.
            largest = max(range(len(values)), key=lambda at: groups[at]["elements"])
            used[name] = values[largest]
    return used


def _learning_rate(member: Member, told: Sequence[Event]) -> dict[str, Any]:
    """The policy that set the rate; one that is not ours with its source, so that it is open."""
    hyper: Hyperparameters = member.task.hyperparameters
    policy = plugins.load("learning_rate", hyper.schedule)
    where = f"{getattr(policy, '__module__', '?')}.{getattr(policy, '__qualname__', '?')}"
    ours = where.startswith("ai500.")
    by_epoch = {e["epoch"]: e["learning_rate"] for e in told if e["event"] == "epoch"}
    return {
        "policy": where,
        "source": None if ours else _source_of(policy),
        "peak": scaled_peak(
            hyper.base_learning_rate,
            global_batch_size=member.feed.global_batch_size,
            reference_batch_size=hyper.reference_batch_size,
        ),
        "at_end_of_epochs": [by_epoch[epoch] for epoch in sorted(by_epoch)],
    }


def _source_of(policy: object) -> str | None:
    try:
        return inspect.getsource(policy)  # type: ignore[arg-type]
    except (OSError, TypeError):
        return None


def _model(member: Member) -> dict[str, Any]:
    """Identity of the whole model's graph, whoever had its parts."""
    traced = trace(member.engine.unsharded(), (IDENTITY_BATCH, *member.problem_class.input_shape))
    return {
        "graph_sha256": graph_sha256(traced),
        "parameters": traced.parameters,
        "operators": len(traced.ops),
    }


def _framework(member: Member) -> dict[str, Any]:
    """PyTorch as it was built and set."""
    compiled = any("OptimizedModule" in type(m).__name__ for m in member.engine.module.modules())
    levels = re.findall(r"(?<!\S)-O(?:\d|fast|s)", torch.__config__.show())
    return {
        "name": "pytorch",
        "version": torch.__version__,
        "git": torch.version.git_version,
        "compiled": compiled,
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "cudnn": torch.backends.cudnn.version() if torch.backends.cudnn.is_available() else None,
        "cudnn_benchmark": torch.backends.cudnn.benchmark or graph.were_tried,
        "build_optimization": sorted(set(levels)),
    }


def _communication(member: Member, told: dict[str, Any] | None) -> dict[str, Any]:
    """Backend and its version, and the collective's own words; a process alone has none."""
    if not dist.is_initialized():
        return {"backend": None, "version": None, "mode": None, "precision": None}
    device = member.feed.device
    backend = "gloo"
    if device.type != "cpu":
        backend = str(dist.get_default_backend_for_device(device))
    version = None
    if backend == "nccl":
        version = ".".join(map(str, torch.cuda.nccl.version()))
    return {
        "backend": backend,
        "version": version,
        "mode": (told or {}).get("mode"),
        "precision": (told or {}).get("precision"),
    }


def _data(member: Member) -> dict[str, Any]:
    """What was read: the node's copy, or the shared store."""
    staged = member.task.staged or os.environ.get("AI500_STAGED")
    read = Staged.open(Path(staged)) if staged else open_store(Path(member.task.store))
    return {
        "store_sha256": read.sha256,
        "staged": staged is not None,
        "samples": {name: int(split.count) for name, split in sorted(read.splits.items())},
        "normalization": schema.encode(member.problem_class.normalization),
    }


def seeds(task: Task) -> dict[str, int]:
    """From which every draw of the member follows."""
    return {
        "trial": task.trial,
        "seed": task.seed,
        "initial_weights": derive(task.seed, Stream.INITIAL_WEIGHTS, task.member),
    }


def _traffic_of_all(described: list[dict[str, Any]]) -> dict[str, Any]:
    """Bytes of all ranks by link class: one rank's neighbours may all be on its own node."""
    first = described[0].get("communication")
    if not isinstance(first, dict) or "traffic" not in first:
        return {}
    told = [one["communication"]["traffic"] for one in described]
    total = {key: sum(one[key] for one in told) for key in ("inside_node", "between_nodes")}
    return {"communication": first | {"traffic": total | {"calls": first["traffic"]["calls"]}}}
