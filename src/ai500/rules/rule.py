"""Rules as objects: a check of a run's evidence with its name, layer, source and text.

`@rule` makes a `Rule` of a function; `comparing` makes one that compares the facts of an aspect
with the reference. Neither registers anything: the modules list their rules in tuples.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Literal

from ai500.records.findings import Severity
from ai500.rules.evidence import Evidence
from ai500.rules.facts import as_text, shown
from ai500.rules.layers import ASPECTS, Level

ProgramName = Literal["ensemble", "search"]
VERSIONS = ("2026.1",)
"""Versions of the rule set, oldest first."""
# A new version: append its name to VERSIONS, and set `since` or `until` of the rules that change.
CURRENT = VERSIONS[-1]
RUN_AGAIN = "Run it again."
"""Advice where records contradict each other."""


@dataclass(frozen=True, slots=True)
class Observation:
    """Result of a check: what it observed in a run, before the level decides its severity."""

    message: str
    """Statement without a full stop."""
    advice: str = ""
    """Sentence that tells the user how to satisfy the rule."""
    reference: str | None = None
    """Value that the class or the rule requires."""
    run: str | None = None
    """Value of the run."""
    unchecked: bool = False
    """True if evidence is missing, so that the rule could not be checked."""


def mismatch(
    statement: str, run: object, source: str, reference: object, advice: str = RUN_AGAIN
) -> Observation:
    """Observe two values that should be equal: "the plan has waves 2, its mapping has 3"."""
    required, actual = shown(as_text(reference), as_text(run))
    return Observation(f"{statement} {actual}, {source} {required}", advice, required, actual)


Check = Callable[[Evidence], Iterator[Observation]]


@dataclass(frozen=True)
class Rule:
    """Check with its name, layer, source and the text that documentation and reports show."""

    name: str
    text: str
    """Requirement in one sentence."""
    source: str
    check: Check
    layer: int | None = None
    """Number of the layer; None: the rule is about the procedure."""
    aspect: str | None = None
    """Name in ASPECTS; None: the severity is the same at every level."""
    severity: Severity = "violation"
    """Severity of a rule without an aspect."""
    since: str = VERSIONS[0]
    """First version of the rule set that has the rule."""
    until: str | None = None
    """First version of the rule set that no longer has the rule."""
    program: ProgramName | None = None
    """Program that the rule applies to; None: both."""

    def severity_at(self, level: Level) -> Severity:
        """Return "violation" where the level fixes the aspect, else "note"."""
        if self.aspect is None:
            return self.severity
        return "violation" if ASPECTS[self.aspect].at(level) == "fixed" else "note"

    def applies_to(self, version: str, *, versions: tuple[str, ...] = VERSIONS) -> bool:
        """Return True if the version of the rule set has the rule."""
        index = versions.index(version)
        ended = self.until is not None and versions.index(self.until) <= index
        return versions.index(self.since) <= index and not ended


def rule(
    aspect: str | None = None,
    *,
    layer: int | None = None,
    source: str | None = None,
    severity: Severity = "violation",
    since: str = VERSIONS[0],
    until: str | None = None,
    program: ProgramName | None = None,
) -> Callable[[Check], Rule]:
    """Make a rule of a check: name and text are the function's name and docstring."""

    def make(check: Check) -> Rule:
        row = ASPECTS[aspect] if aspect is not None else None
        name, text = check.__name__.replace("_", " "), " ".join((check.__doc__ or "").split())
        cited, number = source or (row.source if row else ""), row.layer if row else layer
        return Rule(name, text, cited, check, number, aspect, severity, since, until, program)

    return make


def comparing(name: str, aspect: str, program: ProgramName | None, text: str) -> Rule:
    """Make a rule that compares each fact of an aspect with the reference."""
    row, check = ASPECTS[aspect], partial(differences, aspect=aspect)
    return Rule(name, text, row.source, check, layer=row.layer, aspect=aspect, program=program)


def differences(evidence: Evidence, aspect: str) -> Iterator[Observation]:
    """Yield the facts of an aspect in which the run differs from the reference."""
    for fact in evidence.facts:
        if fact.aspect == aspect and fact.differs:
            reference = "the reference has"
            yield mismatch(f"{fact.name}:", fact.run, reference, fact.reference, fact.advice)
