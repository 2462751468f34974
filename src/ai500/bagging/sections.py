"""The report of an ensemble (V3): summary, score, training, members and operations."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from statistics import fmean

from ai500.core.errors import AI500Error
from ai500.core.units import human_seconds, si_prefix
from ai500.inventory.peaks import KERNEL_PRECISION, data_sheet
from ai500.records import Score, ScoreFigures, TrainRecord, TrialScore, list_operators
from ai500.report.charts import svg
from ai500.report.charts.dot_chart import DotRow, DotRows
from ai500.report.charts.line_chart import Level, LineChart, Mark, Series, Value, curve
from ai500.report.charts.svg import Point
from ai500.report.formats import (
    NOT_MEASURED,
    counted,
    flop,
    flops,
    quality,
    variation_percent,
    vflops,
)
from ai500.report.history import MemberHistory
from ai500.report.run_data import RunData
from ai500.report.run_report import ProgramReport
from ai500.report.run_sections import place, timeline_figure
from ai500.report.section import (
    Beside,
    Block,
    Card,
    Cards,
    Figure,
    Grid,
    Paragraph,
    Section,
    Table,
)
from ai500.report.summary import (
    hardware,
    range_over_trials,
    score_section,
    vflops_over_trials,
    which_trials,
)
from ai500.train import learning_rate
from ai500.workloads.protocol import sample_noun

SUPERSCRIPT = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")
EXPECTED_DISTINCT = 1 - 1 / math.e
"""Share of the samples that occur in a bootstrap: 63.2 % (V3 §3.3)."""
MOST_MEMBER_LINES = 32
"""More members are shown as a band from the lowest to the highest."""
LEARNING_RATE_POINTS = 241
SCORE_ROWS_SHOWN = 10
"""Rows of the score's table up to its variation; the rest explains them and is folded away."""
NOT_COMPARABLE = (
    "The problem class is the submitter's own, from the configuration: its figures are comparable "
    "with no registered class, and it is no entry of the list."
)

Curves = Mapping[int, Sequence[tuple[int, float]]]
"""(epoch, value) in order, by member."""


def ensemble_report(run: RunData) -> ProgramReport:
    """Return the ensemble's part of the report."""
    return ProgramReport(
        benchmark="HPC AI500 V3.0",
        subject=run.plan.workload.replace("_", " "),
        headline=vflops_over_trials(run.score),
        summary=[
            Cards(cards(run)),
            Beside([Paragraph(text, "lead") for text in sentences(run)], quality_figure(run)),
        ],
        sections=[
            score_section(run.score, score_table(run), trials_table(run.score)),
            training_section(run),
            members_section(run),
            operations_section(run),
        ],
    )


def sentences(run: RunData) -> list[str]:
    """Summarize the run: its speed, its quality, and a class that is the user's own."""
    score, plan = run.score, run.plan
    trials = len(score.trials)
    models = "one model" if score.ensemble_size == 1 else f"{score.ensemble_size:,} models"
    waves = f", in {counted(score.waves, 'wave')}" if score.waves > 1 else ""
    times = "once" if trials == 1 else f"{trials} times"
    return [
        f"An ensemble of {models} was trained for {plan.workload.replace('_', ' ')}, problem class "
        f"{plan.problem_class}, {times}, on {hardware(plan, run.system)}{waves}. Training took "
        f"{human_seconds(score.seconds)}{_counted(score)}.{which_trials(score)}",
        f"{_quality_stated(score)} {targets_met(score)} the target of {score.target_quality:g}, so "
        f"the speed is multiplied by the quality factor (penalty coefficient, Eq. 8) of "
        f"{score.penalty_coefficient:.4g}: {_reward_or_penalty(score)}. The score is "
        f"{vflops_over_trials(score)}.",
        *([NOT_COMPARABLE] if score.custom_class else []),
    ]


def _reward_or_penalty(score: Score) -> str:
    """Explain why VFLOPS differ from FLOPS."""
    if score.penalty_coefficient > 1:
        return "VFLOPS above FLOPS are a reward for quality above the target (V2 §4.4.1)"
    if score.penalty_coefficient < 1:
        return "VFLOPS below FLOPS are a penalty for quality below the target (V2 §4.4.1)"
    return "VFLOPS equal FLOPS"


def _counted(score: Score) -> str:
    if score.operations is None:
        return "; its operations were not counted"
    operations = f" for {flop(score.operations)}, counted by convention {score.convention}"
    return f"{operations}: {flops(score.flops)}"


def _quality_stated(score: Score) -> str:
    if score.ensemble_quality is None:
        return (
            f"The ensemble's {score.quality_name} was not measured, because the members left no "
            f"predictions; the members' mean of {score.members_mean_quality:.4f}"
        )
    return f"The ensemble's {score.quality_name} of {score.ensemble_quality:.4f}"


def targets_met(score: Score) -> str:
    """Say whether the quality meets the target, as the verb of a sentence."""
    trials = score.trials
    met = sum(trial.penalty_coefficient >= 1 for trial in trials)
    if met in (0, len(trials)):
        return "meets" if met else "misses"
    return f"in {met} of {len(trials)} trials meets"


def cards(run: RunData) -> list[Card]:
    """Return the four figures to remember."""
    score = run.score
    spread = range_over_trials(score)
    return [
        Card("VFLOPS", vflops(score.vflops), spread or "the score: FLOPS × quality factor"),
        Card("FLOPS", flops(score.flops), share_of_peak(run) or _convention(score)),
        Card(
            score.quality_name,
            quality(score.ensemble_quality),
            f"target {score.target_quality:g}; members' mean {quality(score.members_mean_quality)}",
        ),
        Card("Time to quality", human_seconds(score.time_to_quality_seconds), "first batch to end"),
    ]


def share_of_peak(run: RunData) -> str:
    """State FLOPS as a share of the accelerators' peak by their data sheet; empty: not on record.

    The peak is that of the training precision [D10].
    """
    names = set(run.system.accelerators)
    sheet = data_sheet(names.pop()) if len(names) == 1 else None
    precision = run.plan.hyperparameters.precision
    kernel = KERNEL_PRECISION.get(precision, precision)
    if sheet is None or run.plan.device == "cpu" or run.score.flops is None:
        return ""
    if kernel not in sheet.flops:
        return ""
    share = run.score.flops / (sheet.flops[kernel] * run.plan.system_scale)
    return f"{share:.1%} of the data sheet's peak in {kernel.upper()}"


def _convention(score: ScoreFigures) -> str:
    return "no count was given" if score.convention is None else f"convention {score.convention}"


def score_table(run: RunData) -> Table:
    """List every number of the score with its equation and source."""
    score = run.score
    target = score.time_to_target_seconds
    rows = [
        ("VFLOPS", vflops(score.vflops), "FLOPS × quality factor", "V3 Eq. 7"),
        ("FLOPS", flops(score.flops), "operations of all members / (last end − first start)",
         "V3 Eq. 6, decision D6"),
        ("Quality factor", f"{score.penalty_coefficient:.4f}", _quality_factor(run), "V3 Eq. 8"),
        (f"Ensemble's {score.quality_name}", quality(score.ensemble_quality),
         "of the members' predictions, combined", "V3 §3.3"),
        ("Target", f"{score.target_quality:g}", "fixed by the problem class",
         "V2 Table 6, decision D4"),
        ("Members' mean", quality(score.members_mean_quality),
         f"each member's own {score.quality_name}, averaged", "decision D6"),
        ("Out of bag", quality(score.out_of_bag_quality),
         "each training sample judged only by members that never saw it", "not in the papers"),
        ("Time to quality", human_seconds(score.time_to_quality_seconds),
         "last end − first start, with the quality above", "V2 §5.3.2"),
        ("Time to target", "not reached" if target is None else human_seconds(target),
         "until the members' mean first met the target at an evaluation", "decision D6"),
        ("Variation of the score", variation_percent(score.score_variation),
         "sample standard deviation / mean of VFLOPS, all complete trials", "V2 §2.3"),
        ("Variation of the epochs to target", variation_percent(score.epochs_to_target_variation),
         "the same of the epochs at which the members' mean met the target", "V2 Table 2"),
        ("Operations", flop(score.operations),
         f"training, all members, {_convention(score)}",
         "AIPerf Tables I, II; decision D12"),
        ("Operators not counted", list_operators(score.uncounted) or "none",
         "missing in the operations above, with their number in one step", "decision D23"),
        ("Operations of validation", flop(score.validation_operations),
         "inside the time, not counted in FLOPS", "decision D14"),
        ("APC", flop(score.apc), _apc(run), "V3 Eq. 4"),
        ("Sum of the members' rates", flops(score.members_flops_sum),
         "each member's operations / its own time, summed", "decision D6"),
        ("Start skew", human_seconds(score.start_skew_seconds),
         "between first and last start of the first wave", "decision D6"),
        ("Idle", human_seconds(score.idle_seconds),
         "part of the time in which no member trained", "decision D6"),
        ("Clock", score.clock, _clock(score), "decision D6"),
    ]  # fmt: skip
    return Table(
        ("quantity", "value", "how it is computed", "source"),
        rows,
        numbers=(1,),
        noun="figures",
        shown=SCORE_ROWS_SHOWN,
    )


def _clock(score: Score) -> str:
    if score.clock == "monotonic":
        return "of one host; it can't be set"
    uncertainty, offset = score.clock_uncertainty_seconds, score.clock_offset_seconds
    if uncertainty is None or offset is None:
        return "of several hosts; their offsets were not measured on every node"
    return (
        f"of several hosts, corrected by offsets of up to {human_seconds(offset)}; the window is "
        f"known to ± {human_seconds(uncertainty)}"
    )


def _quality_factor(run: RunData) -> str:
    """Show Eq. 8, which the papers call the penalty coefficient [D19]."""
    score, exponent = run.score, run.plan.definition.penalty_exponent
    power = str(exponent).translate(SUPERSCRIPT)
    if len(score.trials) > 1:
        return f"penalty coefficient: (achieved / target){power} of each trial, averaged"
    value = score.ensemble_quality
    mean = ", by the members' mean" if value is None else ""
    value = score.members_mean_quality if value is None else value
    achieved, target = f"{value:.4f}", f"{score.target_quality:g}"
    # A quality on the good side of the target gives more than 1; lower may be better [D15].
    better = value > score.target_quality
    ratio = f"{achieved} / {target}"
    if better != (score.penalty_coefficient > 1):
        ratio = f"{target} / {achieved}"
    return f"penalty coefficient: ({ratio}){power}{mean}"


def _apc(run: RunData) -> str:
    score, batch = run.score, run.plan.global_batch_size
    per_sample = None if score.apc is None else score.apc / (score.ensemble_size * batch)
    return (
        f"M × |B| × operations per {sample_noun(run.plan.workload)} = {score.ensemble_size:,} × "
        f"{batch:,} × {flop(per_sample)}"
    )


def trials_table(score: Score) -> Table:
    """List every trial as it was measured."""
    rows = [
        (
            _trial_name(trial, score),
            vflops(trial.vflops),
            flops(trial.flops),
            f"{trial.penalty_coefficient:.4f}",
            quality(trial.ensemble_quality),
            quality(trial.members_mean_quality),
            quality(trial.out_of_bag_quality),
            human_seconds(trial.seconds),
            _time_to_target(trial),
            NOT_MEASURED if trial.seed is None else f"{trial.seed}",
        )
        for trial in score.trials
    ]
    columns = (
        "trial", "VFLOPS", "FLOPS", "quality factor", "ensemble", "members' mean", "out of bag",
        "time to quality", "time to target", "seed",
    )  # fmt: skip
    return Table(columns, rows, tuple(range(10)), title="Trials", noun="trials", style="trials")


def _time_to_target(trial: TrialScore) -> str:
    if trial.time_to_target_seconds is None:
        return "not reached"
    epoch = "" if trial.epochs_to_target is None else f", epoch {trial.epochs_to_target}"
    return f"{human_seconds(trial.time_to_target_seconds)}{epoch}"


def _trial_name(trial: TrialScore, run: Score) -> str:
    """Return the trial's number, and whether it counts."""
    if not trial.complete:
        return f"{trial.trial}, INCOMPLETE"
    return f"{trial.trial}" if trial.trial in run.kept_trials else f"{trial.trial}, dropped"


def training_section(run: RunData) -> Section:
    """Show the curves of the shown trial, and all trials where there are several."""
    figures = [
        loss_figure(run),
        timeline_figure(run, noun="member"),
        learning_rate_figure(run),
    ]
    blocks: list[Block] = []
    if len(run.score.trials) > 1:
        figures.append(trials_figure(run.score))
        number = run.shown.trial
        text = (
            f"Curves, members and placement are those of trial {number}, the median by VFLOPS of "
            "the trials that enter the mean."
        )
        blocks.append(Paragraph(text))
    return Section("Training", [*blocks, Grid(figures)])


def quality_figure(run: RunData) -> Figure:
    """Show quality over epochs: the members, their mean, the ensemble, the target."""
    trial = run.shown
    curves = _qualities(run.histories)
    levels = [Level(f"target {trial.target_quality:.3g}", trial.target_quality, "target")]
    solid = "The ensemble's was not measured."
    if trial.ensemble_quality is not None:
        name = f"ensemble {trial.ensemble_quality:.3g}"
        levels.insert(0, Level(name, trial.ensemble_quality, "ensemble"))
        solid = f"Solid: the ensemble's final {trial.quality_name}."
    epochs = run.plan.hyperparameters.epochs
    return Figure(
        f"Quality over epochs: {trial.quality_name}",
        epochs_chart(
            curves,
            y_title=trial.quality_name,
            epochs=epochs,
            levels=levels,
            others=[_qualities(histories) for histories in run.other_histories.values()],
        ),
        f"{_members_drawn(len(curves))} With dots: their mean{_others_drawn(run)}. {solid} "
        "Dashed: the target.",
    )


def _qualities(histories: Mapping[int, MemberHistory]) -> Curves:
    return {member: history.qualities for member, history in histories.items() if history.qualities}


def _others_drawn(run: RunData) -> str:
    return "; faint: the means of the other trials" if run.other_histories else ""


def loss_figure(run: RunData) -> Figure:
    """Show training loss over epochs."""
    curves = {m: history.losses for m, history in run.histories.items() if history.losses}
    title = "Training loss over epochs"
    if not curves:
        return Figure(title, None, "Not measured: no member finished an epoch.")
    chart = epochs_chart(curves, y_title="training loss", epochs=run.plan.hyperparameters.epochs)
    return Figure(title, chart, f"{_members_drawn(len(curves))} With dots: their mean.")


def _members_drawn(count: int) -> str:
    if count > MOST_MEMBER_LINES:
        return f"Band: from the lowest to the highest of {count:,} members."
    return "Thin: the member." if count == 1 else f"Thin: the {count} members."


def epochs_chart(
    curves: Curves,
    *,
    y_title: str,
    epochs: int,
    levels: Sequence[Level] = (),
    others: Sequence[Curves] = (),
) -> LineChart:
    """Draw a value of each member over its epochs, their mean, and levels to compare with.

    `others` are the members of other trials, drawn as their means.
    """
    means = [mean_curve(other) for other in others]
    series = [curve(points, "trial") for points in means if points]
    series += _member_series([points for points in curves.values() if points])
    mean = mean_curve(curves)
    if mean:
        series.append(curve(mean, "mean", name=f"mean {mean[-1][1]:.3g}", dots="some"))
    return LineChart(
        series,
        x_title="epoch",
        y_title=y_title,
        levels=levels,
        x_ticks=svg.nice_ticks(0, epochs, whole=True).up_to(epochs),
        x_end=epochs,
        from_zero=False,
    )


def mean_curve(curves: Curves) -> list[Point]:
    """Return the mean of the members that came as far as any, at their common epochs."""
    last = max((points[-1][0] for points in curves.values() if points), default=None)
    arrived = [dict(points) for points in curves.values() if points and points[-1][0] == last]
    if not arrived:
        return []
    common = set(arrived[0]).intersection(*arrived[1:])
    return [(epoch, fmean(points[epoch] for points in arrived)) for epoch in sorted(common)]


def _member_series(curves: Sequence[Sequence[tuple[int, float]]]) -> list[Series]:
    if len(curves) <= MOST_MEMBER_LINES:
        return [curve(points, "member") for points in curves]
    values: dict[int, list[float]] = {}
    for points in curves:
        for epoch, value in points:
            values.setdefault(epoch, []).append(value)
    lows = [
        Value(epoch, min(values[epoch]), low=min(values[epoch]), high=max(values[epoch]))
        for epoch in sorted(values)
    ]
    highs = [(epoch, max(values[epoch])) for epoch in sorted(values)]
    return [Series("", lows, "member", "none", band=True), curve(highs, "member")]


def learning_rate_figure(run: RunData) -> Figure:
    """Show the learning rate over steps, a pure function of the plan."""
    plan, hyper = run.plan, run.plan.hyperparameters
    title, steps = "Learning rate over steps", plan.steps_per_epoch
    if plan.framework.kind == "script":
        return Figure(title, None, "Not recorded: the script sets it.")
    total, warmup = hyper.epochs * steps, round(hyper.warmup_epochs * steps)
    decays = [epoch * steps for epoch in hyper.decay_epochs]
    try:
        rate = learning_rate.learning_rate_of(hyper, peak=plan.learning_rate, steps_per_epoch=steps)
    except AI500Error as error:
        return Figure(title, None, f"Not shown: {error}")
    chart = learning_rate_chart(rate, total_steps=total, corners=[warmup, *decays])
    return Figure(
        title,
        chart,
        f"Linear scaling: {hyper.base_learning_rate:g} × {plan.global_batch_size:,} / "
        f"{hyper.reference_batch_size:,} {sample_noun(plan.workload)}s. Warm-up epochs: "
        f"{hyper.warmup_epochs:g}, of {steps:,} steps each, then {hyper.schedule} (V2 §4.3.2).",
    )


def learning_rate_chart(
    rate: Callable[[int], float], *, total_steps: int, corners: Sequence[int]
) -> LineChart:
    """Draw the learning rate of every step, with its peak; `corners` are steps where it turns."""
    last = LEARNING_RATE_POINTS - 1
    steps = {round(index * (total_steps - 1) / last) for index in range(LEARNING_RATE_POINTS)}
    # Both sides of a corner, so that a step is drawn as a step.
    steps |= {s for corner in corners for s in (corner - 1, corner) if 0 <= s < total_steps}
    points = [(step, rate(step)) for step in sorted(steps)]
    peak_step, peak = max(points, key=lambda point: point[1])
    return LineChart(
        [curve(points, "ensemble")],
        x_title="optimizer step",
        y_title="learning rate",
        x_ticks=svg.nice_ticks(0, total_steps, most=5, whole=True).up_to(total_steps),
        y_ticks=svg.nice_ticks(0, peak),
        x_end=total_steps,
        marks=[Mark(peak_step, peak, "ensemble", f"peak {peak:.4g}")],
    )


def trials_figure(score: Score) -> Figure:
    """Show VFLOPS of every trial, and their mean."""
    title = "VFLOPS of every trial"
    rates = {trial.trial: trial.vflops for trial in score.trials if trial.vflops is not None}
    if score.vflops is None or not rates:
        return Figure(title, None, "Not measured: operations were not counted.")
    factor, prefix = si_prefix(max(rates.values()))
    rows = [
        DotRow(f"trial {trial}", [rate / factor])
        if trial in score.kept_trials or not score.kept_trials
        else DotRow(f"{trial}, dropped", [rate / factor], "mean")
        for trial, rate in rates.items()
    ]
    mean = score.vflops / factor
    chart = DotRows(rows, f"VFLOPS, in {prefix}FLOPS", mean, f"mean {mean:.4g}")
    caption = "The axis does not begin at zero. Dashed: the run's score."
    return Figure(title, chart, caption)


def members_section(run: RunData) -> Section:
    """Show what each member did, and with which samples."""
    text = (
        "Rates are over a member's own time, from its first batch to its end. A bootstrap draws "
        f"about {EXPECTED_DISTINCT:.1%} of the samples at least once (V3 §3.3)."
    )
    return Section("Members", [Paragraph(text), members_table(run)])


def members_table(run: RunData) -> Table:
    """List each member's place, training, quality and attempts."""
    rows = [
        (
            f"{mapping.member}",
            place(mapping),
            f"{mapping.wave + 1}",
            *_training(run.members.get(mapping.member), run.histories.get(mapping.member)),
            _distinct(run, mapping.member),
            _attempts(run, mapping.member),
        )
        for mapping in run.plan.mapping
    ]
    samples = f"{sample_noun(run.plan.workload)}s"
    columns = (
        "member", "node: slots", "wave", "epochs", samples, "quality", f"{samples}/s", "own FLOPS",
        "distinct samples", "attempts",
    )  # fmt: skip
    return Table(columns, rows, (0, 2, 3, 4, 5, 6, 7, 8, 9), noun="members")


def _training(record: TrainRecord | None, history: MemberHistory | None) -> tuple[str, ...]:
    if record is None:
        epochs = history.losses[-1][0] if history and history.losses else 0
        return f"{epochs}", *[NOT_MEASURED] * 4
    seconds = history.seconds if history else None
    count, rate = record.operations, None
    if seconds and count is not None:
        rate = count.training(samples=record.samples, steps=record.steps) / seconds
    return (
        f"{record.epochs}",
        f"{record.samples:,}",
        quality(record.quality),
        f"{record.samples / seconds:,.0f}" if seconds else NOT_MEASURED,
        flops(rate),
    )


def _attempts(run: RunData, member: int) -> str:
    history, job = run.histories.get(member), run.jobs.get(member)
    count = f"{history.starts if history else 0}"
    if member in run.members:
        return count
    if job is None or job.state == "done":
        return f"{count}, not finished"
    return f"{count}, {job.state}: {job.end}" if job.end else f"{count}, {job.state}"


def _distinct(run: RunData, member: int) -> str:
    record = run.bootstraps.get(member)
    if record is None:
        return NOT_MEASURED
    return f"{record.distinct:,} ({record.distinct / record.samples:.1%})"


def operations_section(run: RunData) -> Section:
    """Show the operations that the members counted on the graph that ran, else the planned."""
    record = next(iter(run.members.values()), None)
    count = record.operations if record else run.plan.operations
    columns = ("operations", "value", "how it is computed")
    noun = sample_noun(run.plan.workload)
    if count is None:
        rows = [(f"per {noun}", NOT_MEASURED, "no member finished, or no count was given")]
        return Section("Operations", [Table(columns, rows, numbers=(1,))])
    batch = run.plan.global_batch_size
    rows = [
        (f"forward, per {noun}", flop(count.forward_per_sample), f"convention {count.convention}"),
        (f"backward, per {noun}", flop(count.backward_per_sample), "AIPerf Table II"),
        ("update, per step", flop(count.update_per_step), "once per optimizer step (decision D12)"),
        ("one step of one member", flop(count.per_step(batch)),
         f"{batch:,} {noun}s × {flop(count.per_sample)} + update"),
        ("parameters", f"{count.parameters:,}", "of one member"),
        ("operators not counted", list_operators(count.uncounted) or "none",
         "no rule of the convention counts them (decision D23)"),
    ]  # fmt: skip
    return Section("Operations", [Table(columns, rows, numbers=(1,))])
