"""What the rules say of a run, as it is kept in its folder and in a submission."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Finding:
    """What a rule has to say about a run."""

    rule: str
    layer: int | None
    source: str
    severity: Literal["note", "violation"]
    message: str
    reference: str | None = None
    """What the class or the rule asks for; None: nothing to compare with."""
    run: str | None = None
    advice: str = ""


@dataclass(frozen=True, slots=True)
class LayerVerdict:
    """One of the nine layers against the reference, at a level."""

    layer: int
    verdict: Literal["same", "allowed", "forbidden"]
    """The same as the reference; changed, as the level allows; changed, which it forbids."""
    facts: tuple[tuple[str, str | None, str | None], ...]
    """What, the reference's value (None: free to choose), the run's (None: not recorded)."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """What a rule set says of a run at a level of benchmarking."""

    rule_set: str
    level: str
    layers: tuple[LayerVerdict, ...]
    findings: tuple[Finding, ...]

    @property
    def broken(self) -> bool:
        """Whether a rule is."""
        return any(one.severity == "violation" for one in self.findings)
