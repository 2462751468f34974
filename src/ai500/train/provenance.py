"""Provenance: what ran, read from the live objects, not from the configuration.

Groups come from the optimizer, the batch from the feed, parallelism from the engine, the model from
its traced graph, epochs from the member's events. The rules judge this record.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.util
import platform
import re
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.conv import _ConvNd

from ai500.core import __version__, plugins
from ai500.core.events import Event
from ai500.core.source import source_sha256
from ai500.operations import example_input
from ai500.operations.graph import IDENTITY_BATCH, graph_sha256
from ai500.operations.torch_trace import trace
from ai500.parallel.engines.state import gather_objects
from ai500.train import own_code
from ai500.train.member import Member
from ai500.train.training_facts import module_source, training_facts

LAYER_KINDS: dict[type[nn.Module], str] = {
    _BatchNorm: "batch norm",
    nn.LayerNorm: "layer norm",
    nn.GroupNorm: "group norm",
    _ConvNd: "convolution",
    nn.Linear: "dense",
    nn.Embedding: "embedding",
}


def effective(
    member: Member,
    *,
    groups: list[dict[str, Any]],
    described: list[dict[str, Any]],
    events: Sequence[Event],
) -> dict[str, Any]:
    """Return the effective settings as plain data; rank 0 calls this when training has ended.

    `described` holds the engine's description on every rank.
    """
    parallel = described[0] | total_traffic(described) | total_activations(described)
    kind = type(member.optimizer)
    return training_facts(
        member.task,
        groups=groups,
        events=events,
        batch_size=_batch_size(member),
        global_batch_size=member.feed.global_batch_size,
    ) | {
        "optimizer": kind.__name__,
        "optimizer_class": f"{kind.__module__}.{kind.__qualname__}",
        "dtype": str(next(member.engine.module.parameters()).dtype),
        "threads": torch.get_num_threads(),
        "parallel": parallel,
        "numerics": member.numerics.describe(),
        "model": _model(member),
        "framework": _framework(
            member, cudnn_autotuned=member.cudnn_autotuned or "captured" in parallel
        ),
        "communication": _communication(member, parallel.get("communication")),
        "own_code": own_code.describe(member.task.own_code),
    }


def versions() -> dict[str, str]:
    """Return the versions of the software that computed, and the digest of ai500's source."""
    versions = {
        "ai500": __version__,
        "source": source_sha256(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": numpy.__version__,
    }
    if torch.version.cuda is not None:
        versions["cuda"] = torch.version.cuda
    if torch.version.hip is not None:
        versions["hip"] = torch.version.hip
    if torch.cuda.is_available() and importlib.util.find_spec("triton") is not None:
        versions["triton"] = importlib.metadata.version("triton")
    return versions


def optimizer_groups(member: Member) -> list[dict[str, Any]]:
    """Describe the optimizer's groups with the parameters of all ranks; every rank calls this."""
    names = {id(p): name for name, p in member.engine.module.named_parameters()}
    own_names = [
        [names[id(parameter)] for parameter in group["params"]]
        for group in member.optimizer.param_groups
    ]
    names_of_ranks = gather_objects(own_names, size=member.engine.mesh.size)
    if not names_of_ranks:
        return []
    model = member.engine.unsharded()
    sizes = {name: parameter.numel() for name, parameter in model.named_parameters()}
    groups = []
    for number, group in enumerate(member.optimizer.param_groups):
        in_group = sorted({name for rank in names_of_ranks for name in rank[number]})
        plain = {key: value for key, value in group.items() if _is_plain(value)}
        digest = hashlib.sha256("\n".join(in_group).encode()).hexdigest()
        groups.append(
            plain
            | {
                "parameters": len(in_group),
                "elements": sum(sizes.get(name, 0) for name in in_group),
                "kinds": dict(sorted(Counter(kind_of(model, name) for name in in_group).items())),
                "names_sha256": digest,
            }
        )
    return groups


def kind_of(model: nn.Module, name: str) -> str:
    """Name a parameter's kind by its layer: `batch norm weight` is γ, `batch norm bias` β."""
    path, _, leaf = name.rpartition(".")
    try:
        layer = model.get_submodule(path)
    except AttributeError:
        return f"other {leaf}"
    kinds = (kind for cls, kind in LAYER_KINDS.items() if isinstance(layer, cls))
    return f"{next(kinds, type(layer).__name__)} {leaf}"


def device_name(device: torch.device) -> str:
    """Return the vendor's name of the device."""
    if device.type == "cpu":
        return platform.processor() or platform.machine()
    query = getattr(torch.get_device_module(device), "get_device_name", None)
    return device.type if query is None else str(query(device))  # `mps` has none


def _is_plain(value: object) -> bool:
    if isinstance(value, tuple):
        return all(map(_is_plain, value))
    return value is None or isinstance(value, bool | int | float | str)


def _batch_size(member: Member) -> int:
    """Return the samples of one accelerator and micro-step, from the feed's batches."""
    ranks = member.engine.mesh.size * member.task.hyperparameters.accumulation
    return member.feed.global_batch_size // ranks


def _model(member: Member) -> dict[str, Any]:
    """Identify the unsharded model by its traced graph."""
    definition = member.problem_class
    inputs = example_input((IDENTITY_BATCH, *definition.input_shape), dtype=definition.input_dtype)
    traced = trace(member.engine.unsharded(), inputs)
    return {
        "graph_sha256": graph_sha256(traced),
        "parameters": traced.parameters,
        "operators": len(traced.ops),
    }


def _framework(member: Member, *, cudnn_autotuned: bool) -> dict[str, Any]:
    """Describe PyTorch's build and settings."""
    compiled = any("OptimizedModule" in type(m).__name__ for m in member.engine.module.modules())
    levels = re.findall(r"(?<!\S)-O(?:\d|fast|s)", torch.__config__.show())
    return {
        "name": "pytorch",
        "version": torch.__version__,
        "git": torch.version.git_version,
        "compiled": compiled,
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "cudnn": torch.backends.cudnn.version() if torch.backends.cudnn.is_available() else None,
        "cudnn_benchmark": torch.backends.cudnn.benchmark or cudnn_autotuned,
        "build_optimization": sorted(set(levels)),
    }


def _communication(member: Member, collective: dict[str, Any] | None) -> dict[str, Any]:
    """Name backend, version and collective; all None for a member of one process."""
    if not dist.is_initialized():
        return {"backend": None, "version": None, "mode": None, "precision": None}
    backend = dist.get_default_backend_for_device(member.feed.device)  # gloo on a CPU
    nccl = backend == "nccl"
    mode: str | None = (collective or {}).get("mode")
    known = mode is not None and plugins.location("collective", mode) is not None
    outside = known and not plugins.is_built_in("collective", str(mode))
    return {
        "backend": backend,
        "version": ".".join(map(str, torch.cuda.nccl.version())) if nccl else None,
        "mode": mode,
        "precision": (collective or {}).get("precision"),
        "code": plugins.location("collective", str(mode)) if known else None,
        "source": module_source(plugins.load("collective", str(mode))) if outside else None,
    }


def total_activations(described: list[dict[str, Any]]) -> dict[str, Any]:
    """Sum the activations that all ranks of a member sent; `samples` are those of its replicas."""
    if "activations" not in described[0]:
        return {}
    ranks = [description["activations"] for description in described]
    of_a_replica = described[0]["tensor_degree"] * described[0]["pipeline_degree"]
    total: dict[str, Any] = {"samples": sum(rank["samples"] for rank in ranks) // of_a_replica}
    for axis in ("tensor", "pipeline"):
        total[axis] = {
            "bytes": sum(rank[axis]["bytes"] for rank in ranks),
            "calls": ranks[0][axis]["calls"],
        }
    return {"activations": total}


def total_traffic(described: list[dict[str, Any]]) -> dict[str, Any]:
    """Sum the bytes of all ranks by link class: a single rank may talk to its own node only."""
    first = described[0].get("communication")
    if not isinstance(first, dict) or "traffic" not in first:
        return {}
    ranks = [description["communication"]["traffic"] for description in described]
    total = {key: sum(rank[key] for rank in ranks) for key in ("inside_node", "between_nodes")}
    return {"communication": first | {"traffic": total | {"calls": first["traffic"]["calls"]}}}
