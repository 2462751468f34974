"""Results of the rules, as a run folder and a submission store them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Severity = Literal["note", "unchecked", "violation"]
"""Disclosure; rule that could not be checked; broken rule. Only notes leave a result valid."""
Verdict = Literal["same", "allowed", "unchecked", "forbidden"]
"""Same as the reference; changed as the level allows; not checkable; against the level's rules."""
_VERDICTS: dict[Verdict, str] = {
    "same": "same as the reference",
    "allowed": "changed, allowed",
    "unchecked": "could not be checked",
    "forbidden": "changed, FORBIDDEN",
}


@dataclass(frozen=True, slots=True)
class Finding:
    """Statement of a rule about a run."""

    rule: str
    layer: int | None
    """Number of the layer; None: the procedure."""
    source: str
    severity: Severity
    message: str
    reference: str | None = None
    """Value that the class or the rule requires; None: nothing to compare with."""
    run: str | None = None
    """Value of the run."""
    advice: str = ""
    rule_text: str = ""
    """Requirement of the rule in one sentence."""

    @property
    def cited(self) -> str:
        """Message with its source."""
        return f"{self.message} ({self.source})"


@dataclass(frozen=True, slots=True)
class LayerVerdict:
    """Comparison of one of the nine layers with the reference, at a level."""

    layer: int
    verdict: Verdict
    facts: tuple[tuple[str, str | None, str | None], ...]
    """Name, reference's value (None: free to choose), run's value (None: not recorded)."""

    @property
    def text(self) -> str:
        """Verdict in words; a layer without reference values is free to choose."""
        if self.verdict == "allowed" and all(reference is None for _, reference, _ in self.facts):
            return "free to choose"
        return _VERDICTS[self.verdict]


@dataclass(frozen=True, slots=True)
class Judgement:
    """Result of applying a rule set to a run at a level of benchmarking."""

    rule_set: str
    """Version of the rule set."""
    level: str
    layers: tuple[LayerVerdict, ...]
    findings: tuple[Finding, ...]

    @property
    def violations(self) -> list[Finding]:
        """Findings that make the result not valid: rules broken, or that could not be checked."""
        return [finding for finding in self.findings if finding.severity != "note"]

    @property
    def broken(self) -> bool:
        """True if a rule is broken, or could not be checked."""
        return bool(self.violations)
