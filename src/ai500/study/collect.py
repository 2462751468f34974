"""A run folder → what a study says of its point."""

from __future__ import annotations

from ai500.bagging.program import ENSEMBLE
from ai500.core import events
from ai500.core.clocks import on_one_clock
from ai500.pipeline import scoring
from ai500.pipeline.programs import program_of
from ai500.records import Plan, Score, System, run_folder
from ai500.records.run_folder import RunFolder
from ai500.report.history import member_histories, window_start
from ai500.study.folder import StudyFolder, read_conditions
from ai500.study.records import MemberTime, Missing, PlannedPoint, PointResult
from ai500.study.timing_validity import speed_doubts


def collect(folder: StudyFolder, point: PlannedPoint) -> PointResult | Missing:
    """The point's result from its run's folder, or why there is none."""
    if point.run is None:
        return Missing(point.name, point.label, point.impossible or "not possible here", False)
    path = folder.run_path(point.run)
    run = RunFolder(path)
    if not run.state.exists():
        return Missing(point.name, point.label, "not run yet", False)
    plan = run_folder.read(Plan, run.plan)
    if scoring.state_of(run, plan) != "finished":
        return Missing(point.name, point.label, f"not finished: {path}", run.score.exists())
    score, hyper = run_folder.read(Score, run.score), plan.hyperparameters
    told, conditions = list(events.read(run.events)), read_conditions(path)
    images = plan.steps_per_epoch * plan.global_batch_size * hyper.epochs * plan.ensemble_size
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
        images_per_second=images / score.seconds if program_of(plan) is ENSEMBLE else None,
        wall_seconds=wall_seconds(run),
        seed=plan.seed,
        members=_members(told, plan, score),
        doubts=speed_doubts(
            plan,
            run_folder.read(System, run.system),
            events=told,
            conditions=conditions,
        ),
        busy_share=conditions.busy_share if conditions else None,
    )


def _members(told: list[events.Event], plan: Plan, score: Score) -> tuple[MemberTime, ...]:
    shown = score.shown_trial
    mine = on_one_clock(told, shown.clock)
    histories = member_histories(mine, trial=shown.trial, clock=shown.clock)
    zero = window_start(histories)
    return tuple(
        MemberTime(
            one.member, one.wave, found.attempts[0].start - zero, found.attempts[-1].end - zero
        )
        for one in plan.mapping
        if (found := histories.get(one.member)) is not None and found.attempts
    )


def wall_seconds(run: RunFolder) -> float | None:
    """How long a controller worked in the folder, all its starts together; None: none is told."""
    total, start, last = 0.0, None, 0.0
    for event in events.read(run.events):
        wall = event.get("wall")
        if not isinstance(wall, int | float):
            continue
        if event["event"] == "run_start":
            if start is not None:
                total += last - start
            start = last = wall
        last = max(last, wall)
    return None if start is None else total + last - start
