"""Apply rules to the evidence of a run: findings, and a verdict on each of the nine layers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ai500.core.errors import InputError
from ai500.records.findings import Finding, Judgement, LayerVerdict, Verdict
from ai500.rules.evidence import Evidence, Fact
from ai500.rules.facts import shown
from ai500.rules.layers import LAYERS, Level
from ai500.rules.rule import CURRENT, VERSIONS, Observation, Rule

# Exceptions that checks raise on damaged records.
UNREADABLE = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)


def judge(
    evidence: Evidence,
    *,
    rules: Sequence[Rule],
    level: Level = "hardware",
    version: str | None = None,
) -> Judgement:
    """Apply the rules of a version, the newest by default; findings on the procedure come first."""
    version = version or CURRENT
    findings = [
        finding
        for rule in sorted(rules_of(version, rules), key=lambda rule: rule.layer or 0)
        for finding in _findings(rule, evidence, level=level)
    ]
    facts = _readable_facts(evidence)
    return Judgement(
        rule_set=version,
        level=level,
        layers=tuple(_verdict(layer, facts, findings) for layer in sorted(LAYERS, reverse=True)),
        findings=tuple(findings),
    )


def rules_of(
    version: str, rules: Sequence[Rule], *, versions: tuple[str, ...] = VERSIONS
) -> list[Rule]:
    """Select the rules that a version of the rule set has."""
    if version not in versions:
        raise InputError(
            f"no rule set {version!r}; known: {', '.join(versions)}.",
            key="--rules",
            value=version,
        )
    return [rule for rule in rules if rule.applies_to(version, versions=versions)]


def _readable_facts(evidence: Evidence) -> tuple[Fact, ...]:
    """Return no facts for damaged records: each rule that needs facts reports the damage."""
    try:
        return evidence.facts
    except UNREADABLE:
        return ()


def _findings(rule: Rule, evidence: Evidence, *, level: Level) -> Iterator[Finding]:
    try:
        observations = list(rule.check(evidence))
    except UNREADABLE as error:
        # Damage must not hide a violation.
        reason = f"the run's records can't be judged by this rule: {error!r}"
        observations = [Observation(reason, unchecked=True)]
    for observation in observations:
        severity = "unchecked" if observation.unchecked else rule.severity_at(level)
        allowed = f"; may change at {level} level, and is disclosed"
        forbidden = f"; fixed at {level} level"
        freedom = allowed if severity == "note" else forbidden
        tail = freedom if rule.aspect is not None and severity != "unchecked" else ""
        advice = observation.advice if severity != "note" or rule.aspect is None else ""
        prefix = "could not be checked: " if severity == "unchecked" else ""
        yield Finding(
            rule=rule.name,
            rule_text=rule.text,
            layer=rule.layer,
            source=rule.source,
            severity=severity,
            message=f"{prefix}{observation.message}{tail}." + (f" {advice}" if advice else ""),
            reference=observation.reference,
            run=observation.run,
            advice=advice,
        )


def _verdict(layer: int, facts: Sequence[Fact], findings: Sequence[Finding]) -> LayerVerdict:
    facts = [fact for fact in facts if fact.layer == layer]
    severities = {finding.severity for finding in findings if finding.layer == layer}
    verdict: Verdict = "same"
    if "violation" in severities:
        verdict = "forbidden"
    elif "unchecked" in severities:
        verdict = "unchecked"
    elif (
        severities
        or all(fact.reference is None for fact in facts)
        or any(fact.differs for fact in facts)
    ):
        verdict = "allowed"
    return LayerVerdict(
        layer, verdict, tuple((fact.name, *shown(fact.reference, fact.run)) for fact in facts)
    )
