"""Rules are small functions with a layer and a source; the docstring is their documentation."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from ai500.records import Finding, Placement, Plan, Score, TrainRecord
from ai500.workloads.protocol import Hyperparameters, ProblemClass

LAYERS = {
    1: "hardware",
    2: "operating system",
    3: "communication libraries",
    4: "AI accelerators and their libraries",
    5: "AI framework",
    6: "programming model",
    7: "workload",
    8: "hyper-parameters",
    9: "problem domain",
}
"""V2 §3.1."""


@dataclass(frozen=True)
class Evidence:
    """What a run recorded of itself, for the rules to judge."""

    reference: ProblemClass
    plan: Plan
    score: Score
    placements: Sequence[Placement]
    members: Sequence[TrainRecord]

    @property
    def reference_hyperparameters(self) -> Hyperparameters:
        """What the class prescribes for a member of this size."""
        return self.reference.reference_at(self.plan.parallel_degree)


Check = Callable[[Evidence], Iterator[str]]


@dataclass(frozen=True)
class Rule:
    """A check with what a person should know of it."""

    name: str
    layer: int | None
    source: str
    severity: Literal["note", "violation"]
    text: str
    check: Check


RULES: list[Rule] = []


def rule(
    *, layer: int | None, source: str, severity: Literal["note", "violation"] = "violation"
) -> Callable[[Check], Check]:
    """Register a check; it yields a sentence for each thing it finds."""

    def register(check: Check) -> Check:
        name = check.__name__.replace("_", " ")
        RULES.append(Rule(name, layer, source, severity, (check.__doc__ or "").strip(), check))
        return check

    return register


def judge(evidence: Evidence) -> list[Finding]:
    """All that the rules have to say, in the order of the layers."""
    return [
        Finding(
            rule=one.name,
            layer=one.layer,
            source=one.source,
            severity=one.severity,
            message=message,
        )
        for one in sorted(RULES, key=lambda one: one.layer or 0)
        for message in one.check(evidence)
    ]
