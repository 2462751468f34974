"""Collect the result of a point from its run folder."""

from __future__ import annotations

from ai500.bagging.program import ENSEMBLE
from ai500.core import events
from ai500.core.clocks import on_one_clock
from ai500.pipeline.programs import program_of
from ai500.records import Plan, Score, System, run_folder
from ai500.records.run_folder import RunFolder
from ai500.report.history import member_histories, window_start
from ai500.study.folder import StudyFolder, read_conditions
from ai500.study.records import MemberTime, MissingPoint, PlannedPoint, PointResult
from ai500.study.timing_validity import timing_issues


def collect(
    folder: StudyFolder, point: PlannedPoint, *, measures_sharing: bool = False
) -> PointResult | MissingPoint:
    """Return the point's result from its run folder, or the reason why there is none."""
    if point.run is None:
        return MissingPoint(point.name, point.label, point.impossible or "not possible here", False)
    path = folder.run_path(point.run)
    if not RunFolder(path).state.exists():
        return MissingPoint(point.name, point.label, "not run yet", False)
    run = RunFolder.open(path)
    plan = run_folder.read(Plan, run.plan)
    if run_folder.state_of(run, plan) != "finished":
        return MissingPoint(point.name, point.label, f"not finished: {path}", run.score.exists())
    score, hyper = run_folder.read(Score, run.score), plan.hyperparameters
    run_events, conditions = list(events.read_checked(run.events)), read_conditions(path)
    samples = plan.steps_per_epoch * plan.global_batch_size * hyper.epochs * plan.ensemble_size
    return PointResult(
        name=point.name,
        label=point.label,
        run=point.run,
        reused=point.reused,
        score=score,
        device=plan.device,
        precision=hyper.precision,
        communication_precision=plan.communication.precision,
        global_batch_size=plan.global_batch_size,
        learning_rate=plan.learning_rate,
        warmup_epochs=hyper.warmup_epochs,
        epochs=hyper.epochs,
        steps_per_epoch=plan.steps_per_epoch,
        schedule=hyper.schedule,
        decay_epochs=hyper.decay_epochs,
        decay_power=hyper.decay_power,
        samples_per_second=samples / score.seconds if program_of(plan) is ENSEMBLE else None,
        wall_seconds=wall_seconds(run),
        seed=plan.seed,
        members=_members(run_events, plan, score),
        timing_issues=timing_issues(
            plan,
            run_folder.read(System, run.system),
            events=run_events,
            conditions=conditions,
            measures_sharing=measures_sharing,
        ),
        busy_share=conditions.busy_share if conditions else None,
    )


def _members(run_events: list[events.Event], plan: Plan, score: Score) -> tuple[MemberTime, ...]:
    shown = score.shown_trial
    one_clock_events = on_one_clock(run_events, shown.clock)
    histories = member_histories(one_clock_events, trial=shown.trial, clock=shown.clock)
    window = window_start(histories)
    return tuple(
        MemberTime(
            member.member,
            member.wave,
            history.attempts[0].start - window,
            history.attempts[-1].end - window,
        )
        for member in plan.mapping
        if (history := histories.get(member.member)) is not None and history.attempts
    )


def wall_seconds(run: RunFolder) -> float | None:
    """Sum the time that controllers worked on the run; None: no start is recorded."""
    total, start, last = 0.0, None, 0.0
    for event in events.read_checked(run.events):
        wall = event.get("wall")
        if not isinstance(wall, int | float):
            continue
        if event["event"] == "run_start":
            if start is not None:
                total += last - start
            start = last = wall
        last = max(last, wall)
    return None if start is None else total + last - start
