"""Two runs held against each other, layer by layer, and whether their scores may be compared."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ai500.rules.evidence import Evidence
from ai500.rules.facts import Fact, facts
from ai500.rules.layers import ASPECTS, LAYERS, Level, judge


@dataclass(frozen=True, slots=True)
class Difference:
    """One fact in which two runs differ; None: not recorded."""

    layer: int
    what: str
    first: str | None
    second: str | None
    allowed: bool
    """Whether two entries of the level may differ in it."""
    source: str


@dataclass(frozen=True, slots=True)
class Comparison:
    """All differences, the problem domain's first, and what they mean for the scores."""

    level: Level
    rule_set: str
    differences: tuple[Difference, ...]
    reasons: tuple[str, ...]
    """Why the scores may not be compared; none: they may."""

    @property
    def comparable(self) -> bool:
        """Whether one score may be held against the other."""
        return not self.reasons

    def of_layer(self, layer: int) -> list[Difference]:
        """Those of one layer."""
        return [one for one in self.differences if one.layer == layer]


def compare(
    first: Evidence, second: Evidence, *, level: Level = "hardware", rules: str | None = None
) -> Comparison:
    """The nine-layer difference of two runs at a level."""
    found = tuple(_differences(first, second, level=level))
    judged = [judge(one, level=level, rules=rules) for one in (first, second)]
    reasons = [
        f"{what} differs: {ours} and {theirs}"
        for what, ours, theirs in (
            ("workload", first.plan.workload, second.plan.workload),
            ("problem class", first.plan.problem_class, second.plan.problem_class),
            ("convention of counting", first.score.convention, second.score.convention),
        )
        if ours != theirs
    ]
    for layer in sorted(LAYERS, reverse=True):
        whats = [one.what for one in found if one.layer == layer and not one.allowed]
        if whats:
            reasons.append(f"layer {layer} differs where it is fixed: {', '.join(whats)}")
    for which, one in zip(("first", "second"), judged, strict=True):
        broken = {finding.rule for finding in one.findings if finding.severity == "violation"}
        if broken:
            reasons.append(f"the {which} breaks rules: {', '.join(sorted(broken))}")
    return Comparison(level, judged[0].rule_set, found, tuple(reasons))


def _differences(first: Evidence, second: Evidence, *, level: Level) -> Iterator[Difference]:
    ours, theirs = _by_name(first), _by_name(second)
    for key in dict.fromkeys((*ours, *theirs)):
        a, b = ours.get(key), theirs.get(key)
        known = [fact for fact in (a, b) if fact is not None]
        values = [None if fact is None else fact.run for fact in (a, b)]
        if values[0] == values[1]:
            continue
        rows = [ASPECTS[fact.aspect] for fact in known]
        yield Difference(
            layer=key[0],
            what=key[1],
            first=values[0],
            second=values[1],
            allowed=all(row.at(level) == "free" for row in rows),
            source=rows[-1].source,
        )


def _by_name(evidence: Evidence) -> dict[tuple[int, str], Fact]:
    return {(fact.layer, fact.what): fact for fact in facts(evidence)}
