"""Nine layers, three levels (V2 §3.1, §5), and what a rule is.

The table below says what may change at which level; a rule about an aspect of it is a violation
where the aspect is fixed, and a note where it is free: then it is disclosed. A rule without an
aspect is about the procedure, and holds at every level.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from ai500.core.errors import InputError
from ai500.records.findings import Finding, Judgement, LayerVerdict
from ai500.rules.evidence import Evidence
from ai500.rules.facts import Fact, facts

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

Level = Literal["hardware", "system", "free"]
LEVELS: tuple[Level, ...] = get_args(Level)
Freedom = Literal["fixed", "free"]
Program = Literal["ensemble", "search"]
Severity = Literal["note", "violation"]


@dataclass(frozen=True, slots=True)
class Aspect:
    """One row of the table: a part of a layer, and whether it may change."""

    layer: int
    hardware: Freedom
    system: Freedom
    free: Freedom
    source: str
    text: str

    def at(self, level: Level) -> Freedom:
        """Fixed or free at that level."""
        found: Freedom = getattr(self, level)
        return found


ASPECTS: dict[str, Aspect] = {
    # layer, hardware level, system level, free level
    "data set": Aspect(9, "fixed", "fixed", "fixed", "V2 §5.1.1", "the class's own data, whole"),
    "target quality": Aspect(9, "fixed", "fixed", "fixed", "V2 §5.1.1", "and n of Eq. 8"),
    "epochs": Aspect(9, "fixed", "fixed", "fixed", "V2 §5.1.1", "over all of a member's samples"),
    "evaluations": Aspect(9, "fixed", "fixed", "fixed", "decision D14", "as often as the class"),
    "batch size": Aspect(8, "free", "free", "free", "V2 §5.1.2", "and accumulation"),
    "learning-rate policy": Aspect(
        8, "free", "free", "free", "V2 §5.1.2", "LARS and LAMB count as one; one's own is open"
    ),
    "other hyper-parameters": Aspect(
        8, "fixed", "fixed", "free", "V2 §5.1.2, §5.4", "optimizer, momentum, weight decay, …"
    ),
    "a search's defaults": Aspect(
        8, "free", "free", "free", "AIPerf Table IV", "optimizer, learning rate, most epochs, …"
    ),
    "model": Aspect(7, "fixed", "fixed", "free", "V2 §5.1.3", "the graph, and what is trained"),
    "bagging": Aspect(7, "fixed", "fixed", "free", "V3 §3.3", "a bootstrap for each member"),
    "equivalent parallelism": Aspect(
        6, "free", "free", "free", "V2 §5.1.4", "data, tensor, pipeline, mixed: held equal by tests"
    ),
    "other parallelism": Aspect(
        6, "fixed", "fixed", "free", "V2 §5.1.4", "not known to be mathematically equivalent"
    ),
    "synchronous training": Aspect(
        6, "fixed", "fixed", "free", "V2 §5.1.4, §5.1.6", "no asynchronous SGD"
    ),
    "AI framework": Aspect(
        5, "fixed", "free", "free", "V2 §5.1.5, §5.2; decision D2", "PyTorch is the reference"
    ),
    "precision": Aspect(
        4, "free", "free", "free", "V2 §5.1.7, V3 Table 2", "FP32, TF32, FP16, BF16, FP8, INT8"
    ),
    "other precision": Aspect(
        4, "fixed", "fixed", "free", "V2 §5.1.7", "not among those the papers allow"
    ),
    "accelerators": Aspect(4, "free", "free", "free", "V2 §5.1.7", "and their libraries"),
    "communication": Aspect(
        3, "free", "free", "free", "V2 §5.1.6", "any topology and library, as long as synchronous"
    ),
    "operating system": Aspect(2, "free", "free", "free", "V2 §5.1.8", "compilers at −O2"),
    "hardware": Aspect(1, "free", "free", "free", "V2 §5.1.9", "CPUs, memory, network, how many"),
}
"""SPEC §5's table. Every rule about a layer, `check`, `diff` and docs/rules.md read it here."""


@dataclass(frozen=True, slots=True)
class Found:
    """One thing a rule has to say; `says` ends without a full stop."""

    says: str
    do: str = ""
    reference: str | None = None
    run: str | None = None


Check = Callable[[Evidence], Iterator[Found]]


@dataclass(frozen=True)
class Rule:
    """A check with what a person should know of it."""

    name: str
    layer: int | None
    aspect: str | None
    """Row of the table that decides how serious it is; None: it is as serious everywhere."""
    source: str
    severity: Severity
    """Without an aspect; with one, that of the hardware level."""
    text: str
    check: Check
    since: str
    """The first rule set it is in."""
    until: str | None
    """The first rule set it is no longer in."""
    of: Program | None = None
    """What it is about; None: both."""

    def severity_at(self, level: Level) -> Severity:
        """A violation where it is about something fixed."""
        if self.aspect is None:
            return self.severity
        return "violation" if ASPECTS[self.aspect].at(level) == "fixed" else "note"


VERSIONS = ("2026.1",)
"""Rule sets, oldest first. A new one: add its name here, and give rules `since` or `until`."""
CURRENT = VERSIONS[-1]
RULES: list[Rule] = []


@dataclass(frozen=True)
class RuleSet:
    """The rules of one version."""

    version: str
    rules: Sequence[Rule]


def rule(
    aspect: str | None = None,
    *,
    layer: int | None = None,
    source: str | None = None,
    severity: Severity = "violation",
    since: str = VERSIONS[0],
    until: str | None = None,
    of: Program | None = None,
) -> Callable[[Check], Check]:
    """Register a check, of an aspect of the table or of the procedure."""

    def register(check: Check) -> Check:
        row = ASPECTS[aspect] if aspect is not None else None
        made = Rule(
            name=check.__name__.replace("_", " "),
            layer=row.layer if row else layer,
            aspect=aspect,
            source=source or (row.source if row else ""),
            severity=severity,
            text=" ".join((check.__doc__ or "").split()),
            check=check,
            since=since,
            until=until,
            of=of,
        )
        if aspect is not None:
            made = Rule(**{**vars(made), "severity": made.severity_at("hardware")})
        RULES.append(made)
        return check

    return register


def rule_set(
    version: str | None = None,
    *,
    versions: Sequence[str] = VERSIONS,
    rules: Sequence[Rule] = RULES,
) -> RuleSet:
    """The rule set of that version, or the newest; an unknown one is an error."""
    wanted = version or versions[-1]
    if wanted not in versions:
        raise InputError(f"no rule set {wanted!r}; known: {', '.join(versions)}.")
    at = versions.index(wanted)
    return RuleSet(
        wanted,
        [
            one
            for one in rules
            if versions.index(one.since) <= at
            and (one.until is None or at < versions.index(one.until))
        ],
    )


def judge(evidence: Evidence, *, level: Level = "hardware", rules: str | None = None) -> Judgement:
    """Each of the nine layers, and all that the rules have to say, procedure first."""
    by = rule_set(rules)
    findings = [
        finding
        for one in sorted(by.rules, key=lambda one: one.layer or 0)
        if one.of in (None, evidence.program)
        for finding in _findings(one, evidence, level=level)
    ]
    known = _known(evidence)
    return Judgement(
        rule_set=by.version,
        level=level,
        layers=tuple(_verdict(layer, known, findings) for layer in sorted(LAYERS, reverse=True)),
        findings=tuple(findings),
    )


UNREADABLE = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)
"""What damaged records make code stumble over."""


def _known(evidence: Evidence) -> tuple[Fact, ...]:
    """The facts; none of records that can't be read, of which then every rule complains."""
    try:
        return facts(evidence)
    except UNREADABLE:
        return ()


def _findings(one: Rule, evidence: Evidence, *, level: Level) -> Iterator[Finding]:
    severity = one.severity_at(level)
    try:
        found = list(one.check(evidence))
    except UNREADABLE as error:
        # What can't be judged is not passed: a damaged record must not hide what it should show.
        severity = "violation"
        found = [Found(f"the run's records can't be judged by this rule: {error!r}")]
    for each in found:
        allowed = f"; may change at {level} level, and is disclosed"
        forbidden = f"; fixed at {level} level"
        judged = allowed if severity == "note" else forbidden
        tail = judged if one.aspect is not None else ""
        advice = each.do if severity == "violation" or one.aspect is None else ""
        yield Finding(
            rule=one.name,
            layer=one.layer,
            source=one.source,
            severity=severity,
            message=f"{each.says}{tail}." + (f" {advice}" if advice else ""),
            reference=each.reference,
            run=each.run,
            advice=advice,
        )


def _verdict(layer: int, known: Sequence[Fact], findings: Sequence[Finding]) -> LayerVerdict:
    mine = [fact for fact in known if fact.layer == layer]
    said = {one.severity for one in findings if one.layer == layer}
    verdict: Literal["same", "allowed", "forbidden"] = "same"
    if "violation" in said:
        verdict = "forbidden"
    elif said or all(fact.reference is None for fact in mine) or any(f.differs for f in mine):
        verdict = "allowed"
    return LayerVerdict(
        layer, verdict, tuple((fact.what, fact.reference, fact.run) for fact in mine)
    )
