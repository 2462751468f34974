"""Facts of a training that every framework records alike, without torch."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ai500.core import atomic, plugins, schema
from ai500.core.events import Event
from ai500.core.randomness import Stream, derive
from ai500.core.reading import file_sha256
from ai500.data import published_files
from ai500.operations.graph_file import graph_digest
from ai500.records import Operations, Task, TrainRecord, list_operators
from ai500.records.run_folder import MemberFolder
from ai500.train.learning_rate import scaled_peak
from ai500.train.loop import DivergedError
from ai500.train.task_files import open_data, staged_folder
from ai500.workloads.member_predictions import all_finite

FROM_OPTIMIZER = {
    "momentum": "momentum",
    "weight_decay": "weight_decay",
    "betas": "betas",
    "epsilon": "eps",
    "trust_coefficient": "trust_coefficient",
}
"""Hyper-parameter → its key in the optimizer's groups."""


def training_facts(
    task: Task,
    *,
    groups: Sequence[dict[str, Any]],
    events: Sequence[Event],
    batch_size: int,
    global_batch_size: int,
) -> dict[str, Any]:
    """Return the facts of a finished training that every framework records alike.

    `groups` describes the optimizer's groups, `batch_size` is that of one accelerator and
    micro-step.
    """
    # By number: an epoch that was repeated after a crash is in the log twice.
    rates = {
        event["epoch"]: event["learning_rate"] for event in events if event["event"] == "epoch"
    }
    evaluated = {event["epoch"] for event in events if event["event"] == "quality"}
    return {
        "batch_size": batch_size,
        "global_batch_size": global_batch_size,
        "accumulation": task.hyperparameters.accumulation,
        "groups": list(groups),
        "hyperparameters": _hyperparameters(task, groups, epochs=len(rates), batch_size=batch_size),
        "learning_rate": _learning_rate(task, rates, global_batch_size=global_batch_size),
        "epochs": sorted(rates),
        "evaluation_epochs": sorted(evaluated),
        "data": _data(task),
        "seeds": seeds(task),
    }


def training_record(
    task: Task,
    *,
    operations: Operations | None,
    effective: dict[str, Any],
    events: Sequence[Event],
    device: str,
    device_name: str,
    weights_sha256: str,
    versions: dict[str, str],
    other_conventions: tuple[Operations, ...] = (),
    graph: bytes | None = None,
) -> TrainRecord:
    """Build the record that ends a member's job; its predictions are on disk and finite."""
    folder = MemberFolder(Path(task.folder))
    for file in (folder.validation, folder.out_of_bag):
        _check_finite(file)
    if graph is not None:
        atomic.write_bytes(folder.graph, graph)
    # By number: an epoch that was repeated after a crash is in the log twice.
    epochs = {event["epoch"]: event for event in events if event["event"] == "epoch"}
    return TrainRecord(
        member=task.member,
        parameters=None if operations is None else operations.parameters,
        samples=sum(event["samples"] for event in epochs.values()),
        steps=sum(event["steps"] for event in epochs.values()),
        epochs=len(epochs),
        world_size=task.parallel_degree,
        device=device,
        device_name=device_name,
        quality=[event["quality"] for event in events if event["event"] == "quality"][-1],
        weights_sha256=weights_sha256,
        operations=operations,
        effective=effective,
        versions=versions,
        other_conventions=other_conventions,
        validation_sha256=file_sha256(folder.validation),
        out_of_bag_sha256=file_sha256(folder.out_of_bag),
        counted_graph_sha256=None if graph is None else graph_digest(graph),
    )


def _check_finite(file: Path) -> None:
    """Raise DivergedError where predictions have NaN: repeating the member would not help."""
    if not all_finite(np.load(file, mmap_mode="r", allow_pickle=False)):
        raise DivergedError(
            f"{file}: the model predicts NaN or infinity.",
            path=file,
            remedy="Set a smaller train.base_learning_rate or a longer train.warmup_epochs.",
        )


def warn_of_uncounted(operations: Operations) -> None:
    """Name the operators that FLOPS omit, in the member's log."""
    if operations.uncounted:
        listed = list_operators(operations.uncounted)
        print(f"warning: operators without a counting rule: {listed}", file=sys.stderr)


def _hyperparameters(
    task: Task, groups: Sequence[dict[str, Any]], *, epochs: int, batch_size: int
) -> dict[str, Any]:
    """Return every hyper-parameter, read from the object that applies it where there is one."""
    used: dict[str, Any] = schema.encode(task.hyperparameters)
    used["epochs"] = epochs
    used["batch_size"] = batch_size
    for name, key in FROM_OPTIMIZER.items():
        having = [group for group in groups if key in group]
        if having:
            # Where groups differ this is the largest group's value; the rules check each group.
            largest = max(having, key=lambda group: group["elements"])
            used[name] = schema.encode(largest[key])
    return used


def _learning_rate(
    task: Task, rates: Mapping[int, float], *, global_batch_size: int
) -> dict[str, Any]:
    """Describe the policy that set the rate; a policy from outside with its source code."""
    policy = plugins.load("learning_rate", task.hyperparameters.schedule)
    where = f"{getattr(policy, '__module__', '?')}.{getattr(policy, '__qualname__', '?')}"
    built_in = where.startswith("ai500.")
    return {
        "policy": where,
        "source": None if built_in else source_of(policy),
        "peak": scaled_peak(task.hyperparameters, global_batch_size=global_batch_size),
        "at_end_of_epochs": [rates[epoch] for epoch in sorted(rates)],
    }


def source_of(code: object) -> str | None:
    """Return source code; None: it is not readable."""
    try:
        return inspect.getsource(code)  # type: ignore[arg-type]
    except (OSError, TypeError):
        return None


def module_source(function: object) -> str | None:
    """Return the source of the module that defines a function; None: it is not readable."""
    module = inspect.getmodule(getattr(function, "func", function))
    return None if module is None else source_of(module)


def _data(task: Task) -> dict[str, Any]:
    """Identify the data that was read: the node's copy, or the shared store."""
    store = open_data(task)
    # Beside the shared store; a node's copy has only samples.
    published = published_files.recorded(Path(task.store), sha256=store.sha256)
    return {
        "store_sha256": store.sha256,
        "published": None if published is None else schema.encode(published),
        "staged": staged_folder(task) is not None,
        "samples": {name: int(split.count) for name, split in sorted(store.splits.items())},
        "normalization": schema.encode(task.definition.normalization),
    }


def seeds(task: Task) -> dict[str, int]:
    """Return the seeds from which all random numbers of the member are derived."""
    return {
        "trial": task.trial,
        "seed": task.seed,
        "initial_weights": derive(task.seed, Stream.INITIAL_WEIGHTS, task.member),
    }
