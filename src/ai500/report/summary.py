"""The result in words a manager understands: what was measured, how fast, how good, is it valid."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from ai500.core.units import human_seconds, human_si
from ai500.records import Plan, Score, System
from ai500.report.run_data import Contents
from ai500.report.section import Card

MOST_MEMBERS_NAMED = 12


@dataclass(frozen=True)
class Verdict:
    """Whether the result counts, and why not."""

    state: Literal["valid", "invalid", "incomplete"]
    text: str
    reasons: tuple[str, ...]


def flops(value: float) -> str:
    """A rate with its unit."""
    return f"{human_si(value)}FLOPS"


def quality(value: float | None) -> str:
    """Four decimals: a tenth of the last point that matters."""
    return "not measured" if value is None else f"{value:.4f}"


def counted(number: int, noun: str) -> str:
    """'1 wave', '2 waves'."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def hardware(contents: Contents) -> str:
    """What the ensemble ran on."""
    return hardware_of(contents.plan, contents.system)


def hardware_of(plan: Plan, system: System) -> str:
    """The accelerators of a plan on the machine that was found."""
    if plan.device == "cpu":
        what = f"{counted(plan.system_scale, 'CPU slot')} ({system.cpu})"
    else:
        names = " and ".join(dict.fromkeys(system.accelerators)) or plan.device
        what = f"{plan.system_scale:,} × {names}"
    nodes = [node.name for node in plan.nodes]
    where = nodes[0] if len(nodes) == 1 else f"{len(nodes):,} nodes ({nodes[0]} to {nodes[-1]})"
    return f"{what} of {where}"


def targets_met(score: Score) -> str:
    """Whether the quality is on the right side of the target, in words."""
    trials = score.trials
    met = sum(trial.penalty_coefficient >= 1 for trial in trials)
    if met in (0, len(trials)):
        return "meets" if met else "misses"
    return f"in {met} of {len(trials)} trials meets"


def mean_of_which(score: Score) -> str:
    """Of which trials the figures are the mean, as a sentence; nothing of a single one."""
    trials = len(score.trials)
    kept = len(score.kept_trials)
    which = "the trials" if kept == trials else f"{counted(kept, 'trial')} of them"
    return "" if trials == 1 else f" Every figure here is the mean of {which}."


def sentences(contents: Contents) -> list[str]:
    """The paragraph at the top."""
    score, plan = contents.score, contents.plan
    trials = len(score.trials)
    models = "one model" if score.ensemble_size == 1 else f"{score.ensemble_size:,} models"
    waves = f", in {counted(score.waves, 'wave')}" if score.waves > 1 else ""
    times = "once" if trials == 1 else f"{trials} times"
    mean = mean_of_which(score)
    return [
        f"An ensemble of {models} was trained for {plan.workload.replace('_', ' ')}, problem class "
        f"{plan.problem_class}, {times}, on {hardware(contents)}{waves}. Training took "
        f"{human_seconds(score.seconds)} for {human_si(score.operations)}FLOP, counted by "
        f"convention {score.convention}: {flops(score.flops)}.{mean}",
        f"The ensemble's {score.quality_name} of {score.ensemble_quality:.4f} "
        f"{targets_met(score)} the target of {score.target_quality:g}, so the speed is "
        f"multiplied by {score.penalty_coefficient:.4g}. The score is {flops(score.vflops)} of "
        f"valid speed (VFLOPS).",
    ]


def cards(score: Score) -> list[Card]:
    """The four figures to remember."""
    return [
        Card("VFLOPS", flops(score.vflops), "the score: FLOPS × penalty coefficient"),
        Card("FLOPS", flops(score.flops), f"convention {score.convention}"),
        Card(
            score.quality_name,
            quality(score.ensemble_quality),
            f"target {score.target_quality:g}; members' mean {quality(score.members_mean_quality)}",
        ),
        Card("Time to quality", human_seconds(score.time_to_quality_seconds), "first batch to end"),
    ]


def verdict(contents: Contents) -> Verdict:
    """From the findings: valid only when complete and no rule is broken."""
    reasons = tuple(
        f"{one.message} ({one.source})" for one in contents.findings if one.severity == "violation"
    )
    if not contents.score.complete:
        told = [
            f"Trial {trial}: {_members(missing)} did not finish."
            for trial, missing in contents.missing.items()
        ]
        text = "INCOMPLETE: the score lacks a part of the ensemble, and is not a valid result."
        return Verdict("incomplete", text, (*told, *reasons))
    if reasons:
        return Verdict("invalid", "Shown, but not a valid result.", reasons)
    return Verdict("valid", "Valid result: complete, and no rule is broken.", ())


def _members(members: Sequence[int]) -> str:
    named = ", ".join(map(str, members[:MOST_MEMBERS_NAMED]))
    more = len(members) - MOST_MEMBERS_NAMED
    return f"member{'s' if len(members) > 1 else ''} {named}" + (
        f" and {more} more" if more > 0 else ""
    )
