"""StudyPlan → runs, one after the other, each an ordinary run that any scheduler takes."""

from __future__ import annotations

import shutil
import time
from collections.abc import Mapping
from pathlib import Path

from ai500.config import to_toml
from ai500.core import __version__
from ai500.core.atomic import explaining_write_errors, write_text
from ai500.core.errors import (
    AI500Error,
    InputError,
    JobError,
    RunCancelledError,
    RunDetachedError,
    RunFolderError,
)
from ai500.core.units import human_seconds
from ai500.pipeline import stages as pipeline
from ai500.pipeline.session import Observer
from ai500.records import Plan, System, run_folder
from ai500.records.run_folder import RunFolder
from ai500.report.summary import hardware
from ai500.study import timing_validity
from ai500.study.collect import collect
from ai500.study.definition import Study
from ai500.study.folder import StudyFolder, conditions_file
from ai500.study.page import write_report
from ai500.study.planning import Prepared, remaining_seconds
from ai500.study.records import FORMAT, Missing, PlannedPoint, PointResult, StudyPlan, StudyResult
from ai500.study.table import write_csv


def conduct(folder: StudyFolder, prepared: Prepared, observer: Observer) -> StudyResult:
    """Every point that has no finished run yet; a report after each, whole at the end."""
    with explaining_write_errors(folder.path):
        folder.path.mkdir(parents=True, exist_ok=True)
    with folder.locked():
        return _conduct(folder, prepared, observer)


def _conduct(folder: StudyFolder, prepared: Prepared, observer: Observer) -> StudyResult:
    _earlier(folder, prepared.plan)  # what can't be kept is told now, not after hours
    write_text(folder.config, to_toml(prepared.ground.config))
    run_folder.write(folder.plan, prepared.plan)
    waiting, took = prepared.waiting(), dict[str, float]()
    failures: dict[str, str] = {}
    for number, point in enumerate(waiting, start=1):
        left = remaining_seconds(prepared, took, waiting[number - 1 :])
        pace = "" if left is None else f"; about {human_seconds(left)} left"
        observer.stage(f"point {number} of {len(waiting)}: {point.label}{pace}")
        began = time.monotonic()
        failure = _run(folder, prepared, point, observer)
        if failure is None:
            took[point.name] = time.monotonic() - began
        else:
            failures[point.name] = failure
        draw(folder, prepared.study, failures=failures)
    result = draw(folder, prepared.study, failures=failures)
    if failures:
        raise JobError(
            "\n\n".join(f"point {name}: {text}" for name, text in failures.items())
            + f"\n\nThe other points are in {folder.report}; the same command tries these again."
        )
    return result


def _run(
    folder: StudyFolder, prepared: Prepared, point: PlannedPoint, observer: Observer
) -> str | None:
    """One point to its end; what failed in it, in words. A person's Ctrl-C ends the study."""
    path = folder.run_path(str(point.run))
    try:
        run = _opened(prepared, point, path)
        here = prepared.ground.config.scheduler.kind == "local"  # else nodes nobody can look at
        if here and not conditions_file(path).exists():
            run_folder.write(conditions_file(path), timing_validity.look())
        pipeline.execute(run, observer)
    except (RunCancelledError, RunDetachedError) as error:
        raise type(error)(
            f"stopped at point {point.name}; nothing is lost. The same command goes on from there."
        ) from None
    except AI500Error as error:
        return str(error)
    return None


def _opened(prepared: Prepared, point: PlannedPoint, path: Path) -> RunFolder:
    """The point's run, begun before or now."""
    if RunFolder(path).state.exists():
        return RunFolder.open(path)
    if path.is_dir():
        shutil.rmtree(path)  # a power cut while it was prepared: nothing has run in it
    return pipeline.prepare(prepared.ground.configured(point.overrides), path)


def draw(
    folder: StudyFolder, study: Study, *, failures: Mapping[str, str] | None = None
) -> StudyResult:
    """result.json, points.csv and report.html from what is on disk."""
    plan = folder.read_plan()
    before = _earlier(folder, plan)
    found = [_collected(folder, point, before, failures or {}) for point in plan.points]
    result = StudyResult(
        format=FORMAT,
        study=plan.study,
        version=__version__,
        workload=plan.workload,
        problem_class=plan.problem_class,
        hardware=_hardware(folder, plan) or (before.hardware if before else "not recorded"),
        measured_at=_measured_at(folder, plan) or (before.measured_at if before else ""),
        points=tuple(one for one in found if isinstance(one, PointResult)),
        missing=tuple(one for one in found if isinstance(one, Missing)),
    )
    run_folder.write(folder.result, result)
    write_csv(folder.csv, result)
    write_report(folder.report, result, study)
    return result


def _earlier(folder: StudyFolder, plan: StudyPlan) -> StudyResult | None:
    """What was collected last; one that can't be read matters only where runs are gone."""
    try:
        return folder.read_result()
    except InputError as error:
        if all(folder.run_path(point.run).exists() for point in plan.points if point.run):
            return None
        raise RunFolderError(
            f"{folder.result} can't be read ({error}), and some runs are not there. Put it back, "
            "or delete it to draw what the other runs tell."
        ) from error


def _collected(
    folder: StudyFolder,
    point: PlannedPoint,
    before: StudyResult | None,
    failures: Mapping[str, str],
) -> PointResult | Missing:
    """From the run's folder; where that is gone, or failed, what was told of it before."""
    found = collect(folder, point)
    if isinstance(found, PointResult):
        return found
    if point.name in failures:
        reason = failures[point.name].strip().splitlines()[0]
        return Missing(point.name, point.label, reason, failed=True, run=point.run)
    if before is None or point.run is None:
        return found
    told: list[PointResult | Missing] = [one for one in before.missing if one.failed]
    if not folder.run_path(point.run).exists():
        told = [*before.points, *told]
    same = (one for one in told if (one.name, one.run) == (point.name, point.run))
    return next(same, found)


def _runs(folder: StudyFolder, plan: StudyPlan) -> list[RunFolder]:
    paths = [folder.run_path(point.run) for point in plan.points if point.run]
    return [RunFolder(path) for path in paths if (path / "run.json").exists()]


def _hardware(folder: StudyFolder, plan: StudyPlan) -> str | None:
    runs = _runs(folder, plan)
    if not runs:
        return None
    largest = max((run_folder.read(Plan, run.plan) for run in runs), key=lambda p: p.system_scale)
    return hardware(largest, run_folder.read(System, runs[0].system))


def _measured_at(folder: StudyFolder, plan: StudyPlan) -> str | None:
    times = [run.score.stat().st_mtime for run in _runs(folder, plan) if run.score.exists()]
    return time.strftime("%Y-%m-%d", time.gmtime(max(times))) if times else None
