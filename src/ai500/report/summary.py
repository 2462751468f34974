"""The result in words a manager understands: which hardware, is it valid, why not."""

from __future__ import annotations

from collections.abc import Sequence

from ai500.core.units import si_prefix
from ai500.records import Plan, Score, System
from ai500.report.formats import NOT_MEASURED, counted, first_of
from ai500.report.run_data import RunData
from ai500.report.section import Notice, Paragraph, Section, Table

MOST_MEMBERS_NAMED = 12


def accelerators(plan: Plan, system: System) -> str:
    """Describe the accelerators of a plan: '8 × NVIDIA H200'."""
    if plan.device == "cpu":
        return f"{counted(plan.system_scale, 'CPU slot')} ({system.cpu})"
    names = " and ".join(dict.fromkeys(system.accelerators)) or plan.device
    return f"{plan.system_scale:,} × {names}"


def hardware(plan: Plan, system: System) -> str:
    """Describe the accelerators of a plan and their nodes."""
    nodes = [node.name for node in plan.nodes]
    place = nodes[0] if len(nodes) == 1 else f"{len(nodes):,} nodes ({nodes[0]} to {nodes[-1]})"
    return f"{accelerators(plan, system)} of {place}"


def vflops_over_trials(score: Score) -> str:
    """Format the score with its range: '244 TVFLOPS, 228–262 over 5 trials'.

    The range is that of all complete trials, also of those that the mean leaves out.
    """
    if score.vflops is None:
        return NOT_MEASURED
    factor, prefix = si_prefix(score.vflops)
    text = f"{score.vflops / factor:.4g} {prefix}VFLOPS"
    spread = range_over_trials(score)
    return f"{text}, {spread}" if spread else text


def range_over_trials(score: Score) -> str:
    """Format the trials' range of VFLOPS in the unit of the score; empty for a single trial."""
    spread = trial_range(score)
    if score.vflops is None or spread is None:
        return ""
    factor, _ = si_prefix(score.vflops)
    low, high = (f"{rate / factor:.4g}" for rate in spread)
    return f"{low}–{high} over {len(_rates(score))} trials"


def trial_range(score: Score) -> tuple[float, float] | None:
    """Return the lowest and the highest VFLOPS of the complete trials; None: fewer than two."""
    rates = _rates(score)
    return None if len(rates) < 2 else (min(rates), max(rates))


def _rates(score: Score) -> list[float]:
    return [trial.vflops for trial in score.trials if trial.complete and trial.vflops is not None]


def which_trials(score: Score) -> str:
    """Say in a sentence which trials the figures are the mean of; empty for a single trial."""
    trials, kept = len(score.trials), score.kept_trials
    if trials == 1:
        return ""
    if len(kept) == 1:
        return f" Every figure here is that of trial {kept[0]}."
    which = "the trials" if len(kept) == trials else f"the {len(kept)} trials that count"
    return f" Every figure here is the mean of {which}."


def score_section(score: Score, figures: Table, trials: Table) -> Section:
    """Show the score, the trials that it is the mean of, and each trial with its seed."""
    means = [] if len(score.trials) == 1 else [Paragraph(_which_trials_by_number(score))]
    return Section("Score", [*means, figures, trials])


def _which_trials_by_number(score: Score) -> str:
    """Name the trials that the figures are the mean of, and the rule that dropped the others."""
    kept, total = score.kept_trials, len(score.trials)
    if all(trial.trial in kept for trial in score.trials):
        return f"Means of all {total} trials; each trial is listed below."
    numbers = ", ".join(map(str, kept))
    subject = "Figures of trial" if len(kept) == 1 else "Means of trials"
    return (
        f"{subject} {numbers} of {total}: the highest and the lowest by VFLOPS are dropped "
        "(V2 §5.3.2). Each trial is listed below."
    )


def verdict(run: RunData) -> Notice:
    """Decide from the findings: valid only when complete and no rule is broken."""
    reasons = [finding.cited for finding in run.findings if finding.severity != "note"]
    if not run.score.complete:
        missing = [
            f"Trial {trial}: {_members(members)} did not finish."
            for trial, members in run.missing.items()
        ]
        text = "INCOMPLETE: the score lacks a part of the ensemble, and is not a valid result."
        return Notice(text, "incomplete", reasons=[*missing, *reasons], label="verdict")
    if reasons:
        text = "Shown, but not a valid result."
        return Notice(text, "invalid", reasons=reasons, label="verdict")
    return Notice("Valid result: complete, and no rule is broken.", "valid", label="verdict")


def _members(members: Sequence[int]) -> str:
    noun = "members" if len(members) > 1 else "member"
    return f"{noun} {first_of(members, most=MOST_MEMBERS_NAMED)}"
