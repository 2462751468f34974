"""Rules about counted operations: the convention, and the graph that was trained."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ai500.operations.shipped import shipped_operations
from ai500.records import (
    OFFICIAL_CONVENTION,
    Operations,
    TrainRecord,
    list_operators,
    most_uncounted,
)
from ai500.rules.evidence import CountedGraph, Evidence, effective
from ai500.rules.record_rules import is_script
from ai500.rules.rule import RUN_AGAIN, Observation, mismatch, rule

# Operations that a batch does once, such as a detector's anchors, are divided among its images: a
# member's batch is larger than that of the shipped count, so it may count less, never more.
SHARED_WORK = 1e-4
COUNTS = ("forward_per_sample", "backward_per_sample", "update_per_step", "uncounted")


@rule(source="AIPerf Table I, decision D5")
def official_convention(evidence: Evidence) -> Iterator[Observation]:
    """Count operations by the convention of the official score."""
    convention = evidence.score.convention
    if convention is None:
        yield Observation(
            "operations are not counted: there are no FLOPS",
            advice="Set framework.operations to the output of `ai500 flops … --json`.",
            reference=OFFICIAL_CONVENTION,
        )
    elif convention != OFFICIAL_CONVENTION:
        statement = "operations are counted by convention"
        yield mismatch(statement, convention, "the official score's is", OFFICIAL_CONVENTION, "")


@rule(source="AIPerf §IV-D, decision D23")
def every_operator_counted(evidence: Evidence) -> Iterator[Observation]:
    """Count every operator of the trained graph: the score omits one that no rule counts."""
    recorded = [member.operations for member in evidence.members if member.operations is not None]
    uncounted = most_uncounted(
        [evidence.score.uncounted, *(operations.uncounted for operations in recorded)]
    )
    if uncounted:
        listed = list_operators(uncounted)
        yield Observation(
            f"operators without a counting rule are missing in FLOPS: {listed}",
            advice="Replace them by operators that docs/operations.md lists.",
            reference="none",
            run=listed,
        )


@rule(source="V3 Eq. 6, AIPerf Table I", program="ensemble")
def operations_of_the_graph(evidence: Evidence) -> Iterator[Observation]:
    """Score the operations of the graph that was trained: counting it again gives the same."""
    if is_script(evidence):  # rule "worker of ai500"
        return
    scored = {
        (event.get("trial"), event.get("member")): (
            *(event.get(name) for name in COUNTS[:3]),
            event.get("uncounted", {}),  # older events leave an empty one out
        )
        for event in evidence.events_of("operations")
    }
    for trial in evidence.trials:
        for member in trial.members:
            owner = f"member {member.member} of trial {trial.trial}"
            counted = member.operations
            if counted is None:
                yield Observation(f"{owner} did not count its operations", RUN_AGAIN)
                continue
            if scored.get((trial.trial, member.member)) != _counts(counted):
                yield Observation(
                    f"trial {trial.trial}: the events count other operations for member "
                    f"{member.member} than its record",
                    RUN_AGAIN,
                )
            yield from _recounted(evidence, owner, member, trial.graphs.get(member.member))


def _recounted(
    evidence: Evidence, owner: str, member: TrainRecord, graph: CountedGraph | None
) -> Iterator[Observation]:
    """Compare a member's counts with its submitted graph and with the class's own."""
    assert member.operations is not None
    recorded = [member.operations, *member.other_conventions]
    model, claimed = evidence.model, effective(member, "model", "graph_sha256")
    registered = model is not None and claimed == model.graph_sha256
    if graph is not None:
        if graph.sha256 != member.counted_graph_sha256:
            statement = f"{owner}: its counted graph has SHA-256"
            yield mismatch(statement, graph.sha256, "its record", member.counted_graph_sha256)
        if graph.problem:
            yield Observation(f"{owner}: graph.json is {graph.problem}", RUN_AGAIN)
        for counts in recorded if graph.counts else ():
            expected = graph.counts.get(counts.convention)
            if counts != expected:
                yield _other_count(owner, counts, "its graph has", expected)
    elif member.counted_graph_sha256 is not None:
        yield Observation(f"{owner}: its counted graph is missing", RUN_AGAIN)
    elif not registered:
        yield Observation(
            f"{owner} did not record the graph that it counted",
            advice="Run it again with this version of ai500.",
            unchecked=True,
        )
    plan = evidence.plan
    for counts in recorded if registered else ():
        shipped = shipped_operations(plan.workload, plan.problem_class, counts.convention)
        if shipped is not None and not _same_count(counts, shipped):
            yield _other_count(owner, counts, "the class's graph has", shipped)


def _same_count(counts: Operations, shipped: Operations) -> bool:
    """Compare with a count at another batch size: work that a batch shares is divided by it."""
    if counts.update_per_step != shipped.update_per_step:
        return False
    pairs = zip(_counts(counts)[:2], _counts(shipped)[:2], strict=True)
    return all(0 <= most - count <= SHARED_WORK * most for count, most in pairs)


def _other_count(
    owner: str, counts: Operations, source: str, expected: Operations | None
) -> Observation:
    actual, required = (
        "nothing" if count is None
        else "{} + {} a sample, {} a step".format(*_counts(count)[:3])
        for count in (counts, expected)
    )  # fmt: skip
    return mismatch(f"{owner} counted by {counts.convention}", actual, source, required)


def _counts(operations: Operations) -> tuple[Any, ...]:
    return tuple(getattr(operations, name) for name in COUNTS)
