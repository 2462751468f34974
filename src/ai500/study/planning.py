"""Config → StudyPlan: which runs a study needs, which of them are there, what the others cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

import ai500
from ai500 import planning, plugins, system
from ai500.config import Config
from ai500.errors import ConfigError, InputError, RunFolderError
from ai500.records import Plan
from ai500.schema import nearest
from ai500.study.collect import wall_seconds
from ai500.study.definition import Choices, Ground, Point, Study, check_free
from ai500.study.folder import Finished, StudyFolder, digest, family
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
    """Digests of finished runs."""

    def waiting(self) -> list[PlannedPoint]:
        """Points that have to be run."""
        possible = [one for one in self.plan.points if one.impossible is None]
        return [one for one in possible if one.digest not in self.done]


def ground_of(config: Config) -> Ground:
    """The machine or cluster, and the plan of the configuration as it is."""
    machine = system.describe()
    cluster = plugins.scheduler(config.scheduler.kind).survey(config)
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
    points = chosen(study.points(ground, choices), only)
    own = folder.runs.absolute()
    # Of several runs of the same work the study's own counts.
    by_digest = {
        one.digest: one for one in sorted(finished, key=lambda one: one.run.path.parent == own)
    }
    by_family: dict[str, list[Finished]] = {}
    for one in finished:
        by_family.setdefault(one.family, []).append(one)
    planned, estimates, expected = [], {}, {}
    for point in points:
        try:
            plan = ground.planned(point.overrides)
        except ConfigError as error:
            if not point.optional:
                raise
            planned.append(PlannedPoint(point.name, point.label, dict(point.overrides),
                                        impossible=str(error)))  # fmt: skip
            continue
        whole = ground.configured(point.overrides)
        key = digest(whole, plan, ground.machine)
        planned.append(_served(point, key, folder=folder, found=by_digest.get(key)))
        similar = by_family.get(family(whole, plan, ground.machine), [])
        estimates[point.name] = estimate(plan, similar)
        expected[point.name] = plan.estimated_seconds
    return Prepared(
        study,
        ground,
        StudyPlan(
            study=study.name,
            version=ai500.__version__,
            workload=config.workload,
            problem_class=config.problem_class,
            points=tuple(planned),
        ),
        estimates,
        expected,
        frozenset(by_digest),
    )


def _served(point: Point, key: str, *, folder: StudyFolder, found: Finished | None) -> PlannedPoint:
    own = folder.runs / f"{point.name}-{key[:8]}"
    return PlannedPoint(
        name=point.name,
        label=point.label,
        overrides=dict(point.overrides),
        digest=key,
        run=folder.named(own if found is None else found.run.path),
        reused=found is not None and found.run.path.parent != folder.runs.absolute(),
    )


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
        per_trial = [wall / max(1, len(one.score.trials)) for one in similar
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


def check_same_study(folder: StudyFolder, study: Study) -> None:
    """A folder belongs to one study; its points may change."""
    if folder.plan.exists():
        found = folder.read_plan().study
        if found != study.name:
            raise RunFolderError(
                f"{folder.path} holds the study {found!r}. Choose another --out for {study.name!r}."
            )
    elif folder.path.exists() and (not folder.path.is_dir() or any(folder.path.iterdir())):
        raise RunFolderError(
            f"{folder.path} exists and is not an empty folder. Choose another --out."
        )


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
