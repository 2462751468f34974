"""The report of a run: one self-contained HTML file, readable offline, on paper and on a phone."""

from __future__ import annotations

import time

from markupsafe import Markup

from ai500.automl import sections as search_sections
from ai500.core.atomic import write_text
from ai500.core.errors import AI500Error
from ai500.core.units import human_seconds
from ai500.profile.page import view_of
from ai500.records import Mapping
from ai500.records.run_folder import RunFolder
from ai500.report import (
    figures,
    meter_figures,
    sections,
    system_sections,
)
from ai500.report import (
    rules_section as judged,
)
from ai500.report import (
    summary as headline,
)
from ai500.report.figures import Bar, Level, Row
from ai500.report.history import window_start
from ai500.report.picture_sections import gallery
from ai500.report.run_data import Contents, read_contents
from ai500.report.section import Figure
from ai500.report.templating import environment
from ai500.roofline import page as roofline_pages
from ai500.rules.decisions import DECISIONS
from ai500.train import learning_rate


def write_report(run: RunFolder) -> None:
    """`report.html` from the run's records."""
    write_text(run.report, render(read_contents(run)))


def render(contents: Contents) -> str:
    """The page as text."""
    return (
        environment()
        .get_template("run.html")
        .render(
            contents=contents,
            headline=headline,
            sections=sections,
            judged=judged,
            searched=search_sections,
            system_sections=system_sections,
            figures=run_figures(contents),
            meters=meter_figures,
            roofline=roofline_pages,
            profile=None if contents.profile is None else view_of(contents.profile),
            gallery=gallery(contents),
            expected_distinct=f"{sections.EXPECTED_DISTINCT:.1%}",
            began=_date(contents.began),
            decisions=DECISIONS,
        )
    )


def run_figures(contents: Contents) -> list[Figure]:
    """The figures of the shown trial, and of all trials where there are several."""
    if contents.search is not None:
        return [*search_sections.figures(contents), timeline_figure(contents)]
    found = [quality_figure(contents), loss_figure(contents), timeline_figure(contents)]
    found.append(learning_rate_figure(contents))
    if len(contents.score.trials) > 1:
        found.append(trials_figure(contents))
    return found


def quality_figure(contents: Contents) -> Figure:
    """Quality over epochs: the members, their mean, the ensemble, the target."""
    score, epochs = contents.shown, contents.plan.hyperparameters.epochs
    curves = {m: one.qualities for m, one in contents.histories.items() if one.qualities}
    title = f"Quality over epochs: {score.quality_name}"
    svg = figures.epochs_figure(
        curves,
        title=title,
        y_title=score.quality_name,
        epochs=epochs,
        levels=[
            Level("ensemble", score.ensemble_quality, "ensemble"),
            Level("target", score.target_quality, "target"),
        ],
    )
    return Figure(
        title,
        Markup(svg),
        f"{_members_drawn(len(curves))} With dots: their mean. Solid: the ensemble's final "
        f"{score.quality_name}. Dashed: the target.",
    )


def loss_figure(contents: Contents) -> Figure:
    """Training loss over epochs."""
    curves = {m: one.losses for m, one in contents.histories.items() if one.losses}
    title = "Training loss over epochs"
    if not curves:
        return Figure(title, None, "Not measured: no member finished an epoch.")
    epochs = contents.plan.hyperparameters.epochs
    svg = figures.epochs_figure(curves, title=title, y_title="training loss", epochs=epochs)
    drawn = _members_drawn(len(curves))
    return Figure(title, Markup(svg), f"{drawn} With dots: their mean.")


def _members_drawn(count: int) -> str:
    if count > figures.MOST_MEMBER_LINES:
        return f"Band: from the lowest to the highest of {count:,} members."
    return "Thin: the member." if count == 1 else f"Thin: the {count} members."


def timeline_figure(contents: Contents) -> Figure:
    """When and where the members trained."""
    score, title = contents.shown, f"{_who(contents).capitalize()}s over time"
    rows = _rows(contents)
    if not any(row.bars for row in rows):
        return Figure(title, None, "Not measured: no member began to train.")
    svg = figures.timeline(rows, seconds=score.seconds, title=title)
    interrupted = any(not bar.finished for row in rows for bar in row.bars)
    return Figure(
        title,
        Markup(svg),
        f"A bar is a {_who(contents)}'s training, a thin line before it the start-up of its job. "
        f"The dashed line ends the window of {human_seconds(score.seconds)}; "
        f"in {human_seconds(score.idle_seconds)} of it no {_who(contents)} trained, "
        f"and the first wave's starts lay {human_seconds(score.start_skew_seconds)} apart."
        + (" Dashed boxes: attempts that did not finish." if interrupted else ""),
    )


def _who(contents: Contents) -> str:
    return "member" if contents.search is None else "worker"


def _rows(contents: Contents) -> list[Row]:
    zero = window_start(contents.histories)
    bars: dict[str, list[Bar]] = {}
    for one in contents.plan.mapping:
        mine = bars.setdefault(_row_name(contents, one), [])
        history = contents.histories.get(one.member)
        for attempt in history.attempts if history else ():
            job_started = attempt.job_started
            mine.append(
                Bar(
                    member=one.member,
                    start=attempt.start - zero,
                    end=attempt.end - zero,
                    job_started=None if job_started is None else job_started - zero,
                    finished=attempt.finished,
                )
            )
    return [Row(name, tuple(mine)) for name, mine in bars.items()]


def _row_name(contents: Contents, one: Mapping) -> str:
    """On a single node the slots alone say where."""
    where = sections.place(one)
    if len(contents.plan.nodes) > 1:
        return where
    slots = where.rpartition(": ")[2]
    return f"slot {slots}" if slots.isdigit() else f"slots {slots}"


def learning_rate_figure(contents: Contents) -> Figure:
    """The learning rate over steps: a pure function of the plan."""
    plan, hyper = contents.plan, contents.plan.hyperparameters
    title, steps = "Learning rate over steps", plan.steps_per_epoch
    total, warmup = hyper.epochs * steps, round(hyper.warmup_epochs * steps)
    decays = [epoch * steps for epoch in hyper.decay_epochs]
    try:
        rate = learning_rate.learning_rate_of(hyper, peak=plan.learning_rate, steps_per_epoch=steps)
    except AI500Error as error:
        return Figure(title, None, f"Not shown: {error}")
    svg = figures.learning_rate_figure(
        rate, total_steps=total, corners=[warmup, *decays], title=title
    )
    return Figure(
        title,
        Markup(svg),
        f"Linear scaling: {hyper.base_learning_rate:g} × {plan.global_batch_size:,} / "
        f"{hyper.reference_batch_size:,} images. Warm-up epochs: {hyper.warmup_epochs:g}, of "
        f"{steps:,} steps each, then {hyper.schedule} (V2 §4.3.2).",
    )


def trials_figure(contents: Contents) -> Figure:
    """VFLOPS of every trial."""
    score, title = contents.score, "VFLOPS of every trial"
    vflops = {one.trial: one.vflops for one in score.trials}
    dropped = set(vflops) - set(score.kept_trials) if score.kept_trials else set()
    svg = figures.trials_figure(vflops, mean=score.vflops, title=title, dropped=dropped)
    return Figure(title, Markup(svg), "The axis need not begin at zero. Dashed: the run's score.")


def _date(wall: float | None) -> str:
    if wall is None:
        return "at an unknown time"
    return time.strftime("%-d %B %Y, %H:%M UTC", time.gmtime(wall))
