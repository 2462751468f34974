"""Config → StudyPlan: which runs a study needs, which of them are there, what the others cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean

from ai500 import config as configuration
from ai500.config import Config
from ai500.core import __version__
from ai500.core.errors import AI500Error, InputError, RunFolderError
from ai500.core.schema import nearest
from ai500.core.source import source_sha256
from ai500.inventory import machine as system
from ai500.jobs.schedulers import load_scheduler
from ai500.pipeline import planning
from ai500.records import Plan
from ai500.study.collect import wall_seconds
from ai500.study.definition import Choices, Ground, Point, Study, check_free, check_workload
from ai500.study.folder import LOCK, Finished, StudyFolder, digest, family
from ai500.study.records import PlannedPoint, StudyPlan

NOT_YET = "not measured yet"


@dataclass(frozen=True)
class Estimate:
    """What a point will cost; None: nobody measured it."""

    seconds: float | None
    joules: float | None
    basis: str


@dataclass(frozen=True)
class Prepared:
    """A study that could begin now."""

    study: Study
    ground: Ground
    plan: StudyPlan
    estimates: Mapping[str, Estimate]
    """By the name of the point."""
    expected: Mapping[str, float | None]
    """Name → the plan's own estimate in seconds, from where the class was measured."""
    done: frozenset[str]
    """Names of points whose result is there."""

    def waiting(self) -> list[PlannedPoint]:
        """Points that have to be run; those of earlier commands stay as they are."""
        asked = [one for one in self.plan.points if one.name in self.estimates]
        return [one for one in asked if one.name not in self.done]


def ground_of(config: Config) -> Ground:
    """The machine or cluster, and the plan of the configuration as it is."""
    machine = system.describe()
    cluster = load_scheduler(config.scheduler.kind).survey(config)
    return Ground(config, machine, cluster, planning.make_plan(config, machine, cluster))


def prepare(
    study: Study,
    config: Config,
    choices: Choices,
    *,
    only: Sequence[str] = (),
    folder: StudyFolder,
    finished: Sequence[Finished],
) -> Prepared:
    """The study's points, each with the run that serves it and what it will cost."""
    check_free(study, config)
    ground = ground_of(config)
    check_workload(study, ground)
    whole = study.points(ground, choices)
    earlier, collected = _earlier(folder)
    serving = _Serving(folder, finished, collected)
    planned, estimates, expected, done = {}, {}, {}, set()
    for point in chosen(whole, only):
        try:
            plan = ground.planned(point.overrides)
        except InputError as error:
            if not point.optional:
                raise
            planned[point.name] = PlannedPoint(
                point.name, point.label, dict(point.overrides), impossible=str(error)
            )
            continue
        configured = ground.configured(point.overrides)
        key = digest(configured, plan, ground.machine, source=source_sha256())
        planned[point.name], is_done = serving.served(point, key)
        done |= {point.name} if is_done else set()
        same = family(configured, plan, ground.machine)
        estimates[point.name] = estimate(plan, [one for one in finished if one.family == same])
        expected[point.name] = plan.estimated_seconds
    kept = {one.name: one for one in earlier.points if one.name not in planned}
    if kept:
        _check_same_work(folder, ground, [one for one in kept.values() if one.name in collected])
    order = [*(point.name for point in whole), *kept]
    every = {**kept, **planned}
    points = tuple(every[name] for name in dict.fromkeys(order) if name in every)
    return Prepared(
        study,
        ground,
        StudyPlan(
            study=study.name,
            version=__version__,
            workload=config.workload,
            problem_class=config.problem_class,
            points=points,
        ),
        estimates,
        expected,
        frozenset(done | {name for name in kept if name in collected}),
    )


def _earlier(folder: StudyFolder) -> tuple[StudyPlan, dict[str, PlannedPoint]]:
    """What the folder's plan has, and those of its points whose result was collected."""
    if not folder.plan.exists():
        return StudyPlan(), {}
    plan = folder.read_plan()
    try:
        result = folder.read_result()
    except InputError:
        return plan, {}  # `conduct` says so where a run is gone, too
    told = {(one.name, one.run) for one in result.points} if result else set()
    return plan, {one.name: one for one in plan.points if (one.name, one.run) in told}


class _Serving:
    """Which run serves a point: the study's own, another finished one, or one to be made."""

    def __init__(
        self,
        folder: StudyFolder,
        finished: Sequence[Finished],
        collected: Mapping[str, PlannedPoint],
    ) -> None:
        self.folder, self.collected = folder, collected
        self.own = folder.runs.absolute()
        # Of several runs of the same work the study's own counts.
        ordered = sorted(finished, key=lambda one: one.run.path.parent == self.own)
        self.by_digest = {one.digest: one for one in ordered}
        self.by_path = {one.run.path.absolute(): one for one in ordered}

    def served(self, point: Point, key: str) -> tuple[PlannedPoint, bool]:
        """The point with its run, and whether that is done."""
        before = self.collected.get(point.name)
        mine = self.own / f"{point.name}-{key[:8]}"
        # Workers elsewhere may tell another source than the one here: its own folder is its own.
        found = self.by_digest.get(key) or self.by_path.get(mine)
        if found is None and before is not None and before.digest == key:
            return before, True  # its run is gone, what was collected of it is not
        run = mine if found is None else found.run.path
        planned = PlannedPoint(
            name=point.name,
            label=point.label,
            overrides=dict(point.overrides),
            digest=key,
            run=self.folder.named(run),
            reused=found is not None and run.absolute().parent != self.own,
        )
        return planned, found is not None


def _check_same_work(folder: StudyFolder, ground: Ground, kept: Sequence[PlannedPoint]) -> None:
    """Results that stay must be of the configuration that the new ones are of."""
    try:
        before = replace(ground, config=configuration.load(folder.config))
        other = [one.name for one in kept if _work(before, one) != _work(ground, one)]
    except (AI500Error, OSError):
        other = [one.name for one in kept]
    if other:
        raise RunFolderError(
            f"{folder.path} holds results of another configuration or machine: {', '.join(other)}. "
            "They can't stand beside new ones. Choose another --out, or leave --points and "
            "--max-members out so that all are made again."
        )


def _work(ground: Ground, point: PlannedPoint) -> str:
    plan = ground.planned(point.overrides)
    return digest(ground.configured(point.overrides), plan, ground.machine, source="")


def chosen(points: Sequence[Point], only: Sequence[str]) -> Sequence[Point]:
    """Those of --points, in the study's own order."""
    names = [point.name for point in points]
    for name in only:
        if name not in names:
            raise InputError(f"--points {name}: no such point here; {nearest(name, names)}")
    return [point for point in points if not only or point.name in only]


def estimate(plan: Plan, similar: Sequence[Finished]) -> Estimate:
    """From finished runs of the same work; else from where the class was measured; else nothing."""
    if similar:
        per_trial = [wall / len(one.score.trials) for one in similar
                     if (wall := wall_seconds(one.run)) is not None]  # fmt: skip
        joules = [trial.energy_joules for one in similar for trial in one.score.trials]
        known = [value for value in joules if value is not None]
        return Estimate(
            fmean(per_trial) * plan.trials if per_trial else None,
            fmean(known) * plan.trials if known and len(known) == len(joules) else None,
            f"from {len(similar)} finished run(s) of the same work",
        )
    if plan.estimated_seconds is None:
        return Estimate(None, None, NOT_YET)
    return Estimate(plan.estimated_seconds, None, plan.estimate_basis)


def check_same_study(folder: StudyFolder, study: Study, config: Config) -> None:
    """A folder belongs to one study of one class; its points may change."""
    if folder.plan.exists():
        plan = folder.read_plan()
        found = (plan.study, plan.workload, plan.problem_class)
        wanted = (study.name, config.workload, config.problem_class)
        if found != wanted:
            raise RunFolderError(
                f"{folder.path} holds the study {' '.join(found)!r}. "
                f"Choose another --out for {' '.join(wanted)!r}."
            )
    elif folder.path.exists() and (not folder.path.is_dir() or _occupied(folder.path)):
        raise RunFolderError(
            f"{folder.path} exists and is not an empty folder. Choose another --out."
        )


def _occupied(path: Path) -> bool:
    return any(one.name != LOCK for one in path.iterdir())


def remaining_seconds(
    prepared: Prepared, took: Mapping[str, float], waiting: Sequence[PlannedPoint]
) -> float | None:
    """Of the points that wait, at the pace of those that were run; None: none was yet."""
    if not took:
        return None
    expected = prepared.expected
    known = [name for name in took if expected.get(name)]
    pace = fmean(took[name] / (expected[name] or 1.0) for name in known) if known else None
    total = 0.0
    for point in waiting:
        guess = expected.get(point.name)
        total += fmean(took.values()) if guess is None or pace is None else guess * pace
    return total
