"""Compare two runs layer by layer, and decide if their scores may be compared."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ai500.records.findings import Judgement
from ai500.rules.evidence import Evidence, Fact
from ai500.rules.layers import ASPECTS, LAYERS, Level


@dataclass(frozen=True, slots=True)
class Difference:
    """Fact in which two runs differ."""

    layer: int
    aspect: str
    """Name of the fact."""
    first: str | None
    """Value of the first run; None: not recorded."""
    second: str | None
    """Value of the second run; None: not recorded."""
    allowed: bool
    """True if two entries of the level may differ in it."""
    source: str


@dataclass(frozen=True, slots=True)
class Comparison:
    """Differences of two runs, the problem domain's first."""

    level: Level
    rule_set: str
    differences: tuple[Difference, ...]
    reasons: tuple[str, ...]
    """Reasons why the scores may not be compared; empty: they may."""

    @property
    def comparable(self) -> bool:
        """True if the scores may be compared."""
        return not self.reasons

    def of_layer(self, layer: int) -> list[Difference]:
        """Return the differences of one layer."""
        return [difference for difference in self.differences if difference.layer == layer]


def compare(
    first: Evidence, second: Evidence, *, level: Level, judgements: Sequence[Judgement]
) -> Comparison:
    """Compare two runs at a level; `judgements` are theirs, in the same order."""
    differences = tuple(_differences(first, second, level=level))
    reasons = [
        f"{name} differs: {value} and {other_value}"
        for name, value, other_value in (
            ("workload", first.plan.workload, second.plan.workload),
            ("problem class", first.plan.problem_class, second.plan.problem_class),
            ("counting convention", first.score.convention, second.score.convention),
        )
        if value != other_value
    ]
    for layer in sorted(LAYERS, reverse=True):
        names = [each.aspect for each in differences if each.layer == layer and not each.allowed]
        if names:
            reasons.append(f"layer {layer} differs where it is fixed: {', '.join(names)}")
    for position, judgement in zip(("first", "second"), judgements, strict=True):
        if broken := {finding.rule for finding in judgement.violations}:
            reasons.append(f"the {position} breaks rules: {', '.join(sorted(broken))}")
    return Comparison(level, judgements[0].rule_set, differences, tuple(reasons))


def _differences(first: Evidence, second: Evidence, *, level: Level) -> Iterator[Difference]:
    facts = [_facts_by_name(evidence) for evidence in (first, second)]
    for layer, name in dict.fromkeys((*facts[0], *facts[1])):
        pair = [facts_of_run.get((layer, name)) for facts_of_run in facts]
        values = [None if fact is None else fact.run for fact in pair]
        if values[0] == values[1]:
            continue
        aspects = [ASPECTS[fact.aspect] for fact in pair if fact is not None]
        yield Difference(
            layer=layer,
            aspect=name,
            first=values[0],
            second=values[1],
            allowed=all(aspect.at(level) == "free" for aspect in aspects),
            source=aspects[-1].source,
        )


def _facts_by_name(evidence: Evidence) -> dict[tuple[int, str], Fact]:
    return {(fact.layer, fact.name): fact for fact in evidence.facts}
