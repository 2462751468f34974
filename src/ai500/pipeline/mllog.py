"""A trial as MLPerf's log lines, for tools that read `:::MLLOG`.

A log has the trial as one run of the open division. An epoch stops when all members have finished
it, and its quality is the members' mean. ai500 does not clear caches, and says so: `cache_clear` is
false. The log is no submission to MLPerf.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from ai500.core import events
from ai500.core.errors import InputError, JobError
from ai500.core.events import Event
from ai500.metrics.quality import is_better
from ai500.pipeline.programs import program_of
from ai500.records import Plan
from ai500.records.run_folder import RunFolder
from ai500.workloads.protocol import load_workload

MARK = ":::MLLOG "
RULE_SETS = {
    "image_classification": ("training 4.0.0", "resnet"),
    "climate_segmentation": ("hpc 3.0.0", "deepcam"),
    "cosmology": ("hpc 3.0.0", "cosmoflow"),
}
"""Workload → rule set of MLPerf whose compliance checker knows the benchmark, and its name there.

The newest one that has it in the open division. Every rule set lists the benchmarks it accepts, so
no log of another workload can pass.
"""


@dataclass(frozen=True)
class Moment:
    """A line of the log before it is written."""

    wall: float
    key: str
    value: object = None
    metadata: tuple[tuple[str, object], ...] = ()


def mllog_lines(run: RunFolder, plan: Plan, trial: int) -> list[str]:
    """Return the lines of a finished trial, in order of time."""
    if not program_of(plan).trains_class_model:
        raise InputError(
            "a search has no log of MLPerf: it trains many models, no run of one.",
            key="--mllog",
            remedy="Use --csv.",
        )
    recorded = [event for event in events.read_checked(run.events) if event.get("trial") == trial]
    moments = sorted(_moments(plan, trial, recorded), key=lambda moment: moment.wall)
    return [_line(moment) for moment in moments]


def _moments(plan: Plan, trial: int, recorded: Sequence[Event]) -> Iterator[Moment]:
    by_kind: dict[str, list[Event]] = defaultdict(list)
    for event in recorded:
        by_kind[event["event"]].append(event)
    if not by_kind["aggregate"] or not by_kind["first_batch"]:
        raise JobError(f"trial {trial} has no result yet.", key="--mllog", value=trial)
    began = by_kind["trial_start"][0]["wall"]
    first = min(event["wall"] for event in by_kind["first_batch"])
    yield from _head(plan, trial, began, seed=by_kind["trial_start"][0]["seed"])
    yield Moment(first, "init_stop")
    yield Moment(first, "run_start")
    lower = load_workload(plan.workload).quality_direction == "lower"
    key, reached, last = ("eval_error" if lower else "eval_accuracy"), False, first
    qualities = _by_epoch(by_kind["quality"], plan)
    for epoch, finished in sorted(_by_epoch(by_kind["epoch"], plan).items()):
        metadata = (("epoch_num", epoch),)
        yield Moment(last, "epoch_start", metadata=metadata)
        last = max(event["wall"] for event in finished)
        samples = sum(event["samples"] for event in finished)
        yield Moment(last, "epoch_stop", metadata=(*metadata, ("samples_count", samples)))
        evaluated = qualities.get(epoch)
        if evaluated:
            at, mean = max(e["wall"] for e in evaluated), fmean(e["quality"] for e in evaluated)
            yield Moment(last, "eval_start", metadata=metadata)
            yield Moment(at, key, mean, metadata)
            yield Moment(at, "eval_stop", metadata=metadata)
            last = at
            direction = load_workload(plan.workload).quality_direction
            target = plan.definition.target_quality
            reached |= mean == target or is_better(mean, target, direction=direction)
    status = "success" if reached else "aborted"
    yield Moment(last, "run_stop", metadata=(("status", status),))


def _head(plan: Plan, trial: int, wall: float, *, seed: int) -> Iterator[Moment]:
    """Yield what precedes the training."""
    _, benchmark = RULE_SETS.get(plan.workload, ("", plan.workload))
    hyper = plan.hyperparameters
    values = {
        "cache_clear": False,
        "submission_benchmark": benchmark,
        "submission_org": "not stated",
        "submission_division": "open",
        "submission_status": "research",
        "submission_platform": f"{plan.system_scale} × {plan.device}",
        "seed": seed,
        "global_batch_size": plan.global_batch_size,
        "gradient_accumulation_steps": hyper.accumulation,
        "train_samples": plan.definition.train_samples,
        "eval_samples": plan.definition.validation_samples,
        "opt_name": hyper.optimizer,
        "opt_base_learning_rate": plan.learning_rate,
    }
    yield Moment(wall, "init_start")
    for name, value in values.items():
        yield Moment(wall, name, value)
    yield Moment(wall, "ai500_ensemble", plan.ensemble_size, (("trial", trial),))


def _by_epoch(recorded: Sequence[Event], plan: Plan) -> dict[int, list[Event]]:
    """Group the last event of each member by epoch; leave out epochs that not all finished."""
    last: dict[int, dict[int, Event]] = defaultdict(dict)
    for event in recorded:
        last[event["epoch"]][event["member"]] = event
    return {
        epoch: list(members.values())
        for epoch, members in last.items()
        if len(members) == plan.ensemble_size
    }


def _line(moment: Moment) -> str:
    entry: dict[str, Any] = {
        "namespace": "",
        "time_ms": round(moment.wall * 1000),
        "event_type": "INTERVAL_START" if moment.key.endswith("_start")
        else "INTERVAL_END" if moment.key.endswith("_stop") else "POINT_IN_TIME",
        "key": moment.key,
        "value": moment.value,
        "metadata": {"file": "ai500", "lineno": 0} | dict(moment.metadata),
    }  # fmt: skip
    return MARK + json.dumps(entry)
