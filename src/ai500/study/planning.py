"""Plan a study: the runs it needs, those that exist, and the cost of the others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean

from ai500 import config as configuration
from ai500.config import Config
from ai500.core import __version__
from ai500.core.errors import AI500Error, EnvironmentLacksError, InputError, RunFolderError
from ai500.core.schema import check_known
from ai500.core.source import source_sha256
from ai500.inventory import machine as system
from ai500.jobs.schedulers import load_scheduler
from ai500.pipeline import planning
from ai500.records import Plan
from ai500.study.collect import wall_seconds
from ai500.study.definition import (
    Point,
    Study,
    StudyContext,
    StudyOptions,
    check_not_set,
    check_workload,
)
from ai500.study.folder import LOCK, FinishedRun, StudyFolder, cost_family, work_digest
from ai500.study.records import PlannedPoint, StudyPlan

NOT_MEASURED_YET = "not measured yet"


@dataclass(frozen=True)
class Estimate:
    """Expected cost of a point; None: no timing data."""

    seconds: float | None
    joules: float | None
    basis: str


@dataclass(frozen=True)
class PreparedStudy:
    """A study that is ready to run."""

    study: Study
    context: StudyContext
    plan: StudyPlan
    estimates: Mapping[str, Estimate]
    """Estimates by point name."""
    expected: Mapping[str, float | None]
    """Point name → the plan's own estimate in seconds."""
    done: frozenset[str]
    """Names of points that have a result."""

    def pending(self) -> list[PlannedPoint]:
        """Return the points to run; points of earlier commands stay as they are."""
        requested = [point for point in self.plan.points if point.name in self.estimates]
        return [point for point in requested if point.name not in self.done]


def study_context(config: Config) -> StudyContext:
    """Survey the machine or cluster, and plan the configuration as it is."""
    machine = system.describe()
    cluster = load_scheduler(config.scheduler.kind).survey(config)
    return StudyContext(config, machine, cluster, planning.make_plan(config, machine, cluster))


def prepare(
    study: Study,
    config: Config,
    options: StudyOptions,
    *,
    only: Sequence[str] = (),
    folder: StudyFolder,
    finished: Sequence[FinishedRun],
) -> PreparedStudy:
    """Plan the study's points: each with its run and its estimated cost."""
    check_not_set(study, config)
    context = study_context(config)
    check_workload(study, context)
    all_points = study.points(context, options)
    earlier, collected = _earlier_points(folder)
    finder = _RunFinder(folder, finished, collected)
    planned, estimates, expected, done = {}, {}, {}, set()
    for point in select_points(all_points, only):
        try:
            plan = context.plan_for(point.overrides)
        except (InputError, EnvironmentLacksError) as error:
            if not point.optional:
                raise
            planned[point.name] = PlannedPoint(
                point.name, point.label, dict(point.overrides), impossible=str(error)
            )
            continue
        point_config = context.config_for(point.overrides)
        key = work_digest(point_config, plan, context.machine, source=source_sha256())
        planned[point.name], is_done = finder.find(point, key)
        done |= {point.name} if is_done else set()
        kin = cost_family(point_config, plan, context.machine)
        estimates[point.name] = estimate(plan, [run for run in finished if run.family == kin])
        expected[point.name] = plan.estimated_seconds
    kept = {point.name: point for point in earlier.points if point.name not in planned}
    if kept:
        _check_same_work(
            folder, context, [point for point in kept.values() if point.name in collected]
        )
    order = [*(point.name for point in all_points), *kept]
    by_name = {**kept, **planned}
    points = tuple(by_name[name] for name in dict.fromkeys(order) if name in by_name)
    return PreparedStudy(
        study,
        context,
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


def _earlier_points(folder: StudyFolder) -> tuple[StudyPlan, dict[str, PlannedPoint]]:
    """Return the folder's plan, and those of its points that have a collected result."""
    if not folder.plan.exists():
        return StudyPlan(), {}
    plan = folder.read_plan()
    try:
        result = folder.read_result()
    except InputError:
        return plan, {}  # `run_study` reports it if a run is gone, too
    collected = {(point.name, point.run) for point in result.points} if result else set()
    return plan, {
        point.name: point for point in plan.points if (point.name, point.run) in collected
    }


class _RunFinder:
    """Finds the run of a point: the study's own, another finished one, or a new one."""

    def __init__(
        self,
        folder: StudyFolder,
        finished: Sequence[FinishedRun],
        collected: Mapping[str, PlannedPoint],
    ) -> None:
        self.folder, self.collected = folder, collected
        self.own = folder.runs.absolute()
        # Among several runs of the same work the study's own takes precedence.
        ordered = sorted(finished, key=lambda candidate: candidate.run.path.parent == self.own)
        self.by_digest = {run.digest: run for run in ordered}
        self.by_path = {run.run.path.absolute(): run for run in ordered}

    def find(self, point: Point, key: str) -> tuple[PlannedPoint, bool]:
        """Return the point with its run, and whether that run is finished."""
        before = self.collected.get(point.name)
        own_path = self.own / f"{point.name}-{key[:8]}"
        # Workers elsewhere may record another source than this one: also match by folder.
        existing = self.by_digest.get(key) or self.by_path.get(own_path)
        if existing is None and before is not None and before.digest == key:
            return before, True  # its run is gone, its collected result is not
        run = own_path if existing is None else existing.run.path
        planned = PlannedPoint(
            name=point.name,
            label=point.label,
            overrides=dict(point.overrides),
            digest=key,
            run=self.folder.relative_name(run),
            reused=existing is not None and run.absolute().parent != self.own,
        )
        return planned, existing is not None


def _check_same_work(
    folder: StudyFolder, context: StudyContext, kept: Sequence[PlannedPoint]
) -> None:
    """Raise RunFolderError if kept results are of another configuration than new ones."""
    try:
        before = replace(context, config=configuration.load(folder.config))
        different = [
            point.name
            for point in kept
            if _point_digest(before, point) != _point_digest(context, point)
        ]
    except (AI500Error, OSError):
        different = [point.name for point in kept]
    if different:
        raise RunFolderError(
            f"{folder.path} holds results of another configuration or machine: "
            f"{', '.join(different)}.",
            key="points",
            value=different,
            path=folder.path,
            remedy="Choose another --out, or leave out --points and --max-members to run all "
            "points again.",
        )


def _point_digest(context: StudyContext, point: PlannedPoint) -> str:
    plan = context.plan_for(point.overrides)
    return work_digest(context.config_for(point.overrides), plan, context.machine, source="")


def select_points(points: Sequence[Point], only: Sequence[str]) -> Sequence[Point]:
    """Return the points named by --points, in the study's order."""
    names = [point.name for point in points]
    for name in only:
        check_known(name, names, key="--points")
    return [point for point in points if not only or point.name in only]


def estimate(plan: Plan, similar: Sequence[FinishedRun]) -> Estimate:
    """Estimate from finished runs of the same work, else from the class's reference machine."""
    if similar:
        per_trial = [wall / len(run.score.trials) for run in similar
                     if (wall := wall_seconds(run.run)) is not None]  # fmt: skip
        joules = [trial.energy_joules for run in similar for trial in run.score.trials]
        known = [value for value in joules if value is not None]
        return Estimate(
            fmean(per_trial) * plan.trials if per_trial else None,
            fmean(known) * plan.trials if known and len(known) == len(joules) else None,
            f"from {len(similar)} finished run(s) of the same work",
        )
    if plan.estimated_seconds is None:
        return Estimate(None, None, NOT_MEASURED_YET)
    return Estimate(plan.estimated_seconds, None, plan.estimate_basis)


def check_same_study(folder: StudyFolder, study: Study, config: Config) -> None:
    """Raise RunFolderError if the folder belongs to another study, or holds other files."""
    if folder.plan.exists():
        plan = folder.read_plan()
        existing = (plan.study, plan.workload, plan.problem_class)
        requested = (study.name, config.workload, config.problem_class)
        if existing != requested:
            raise RunFolderError(
                f"{folder.path} holds the study {' '.join(existing)!r}.",
                key="study",
                value=existing,
                path=folder.path,
                remedy=f"Choose another --out for {' '.join(requested)!r}.",
            )
    elif folder.path.exists() and (not folder.path.is_dir() or _occupied(folder.path)):
        raise RunFolderError(
            f"{folder.path} exists and is not an empty folder.",
            path=folder.path,
            remedy="Choose another --out.",
        )


def _occupied(path: Path) -> bool:
    return any(file.name != LOCK for file in path.iterdir())


def remaining_seconds(
    prepared: PreparedStudy, durations: Mapping[str, float], pending: Sequence[PlannedPoint]
) -> float | None:
    """Estimate the time of pending points from the pace of finished ones; None: none yet."""
    if not durations:
        return None
    expected = prepared.expected
    known = [name for name in durations if expected.get(name)]
    pace = fmean(durations[name] / (expected[name] or 1.0) for name in known) if known else None
    usual = fmean(durations.values())
    each = (expected.get(point.name) for point in pending)
    return sum(usual if seconds is None or pace is None else seconds * pace for seconds in each)
