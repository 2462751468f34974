"""Run a study: its points one after the other, each an ordinary run on any scheduler."""

from __future__ import annotations

import shutil
import time
from collections.abc import Mapping
from pathlib import Path

from ai500.config import to_toml
from ai500.core import __version__, errors
from ai500.core.atomic import explaining_write_errors, write_text
from ai500.core.units import human_seconds
from ai500.pipeline import stages as pipeline
from ai500.pipeline.stages import Observer
from ai500.records import Plan, System, run_folder
from ai500.records.run_folder import RunFolder
from ai500.report.summary import hardware
from ai500.study import timing_validity
from ai500.study.collect import collect
from ai500.study.definition import Study
from ai500.study.folder import StudyFolder, conditions_file
from ai500.study.page import write_csv, write_report
from ai500.study.planning import PreparedStudy, remaining_seconds
from ai500.study.records import (
    MissingPoint,
    PlannedPoint,
    PointResult,
    StudyPlan,
    StudyResult,
)


def run_study(folder: StudyFolder, prepared: PreparedStudy, observer: Observer) -> StudyResult:
    """Run every point that has no finished run; write the report after each."""
    with explaining_write_errors(folder.path):
        folder.path.mkdir(parents=True, exist_ok=True)
    with folder.locked():
        return _run_points(folder, prepared, observer)


def _run_points(folder: StudyFolder, prepared: PreparedStudy, observer: Observer) -> StudyResult:
    _earlier_result(folder, prepared.plan)  # an unreadable result is an error now, not after hours
    write_text(folder.config, to_toml(prepared.context.config))
    run_folder.write(folder.plan, prepared.plan)
    pending, durations = prepared.pending(), dict[str, float]()
    failures: dict[str, str] = {}
    for number, point in enumerate(pending, start=1):
        remaining = remaining_seconds(prepared, durations, pending[number - 1 :])
        pace = "" if remaining is None else f"; about {human_seconds(remaining)} left"
        observer.stage(f"point {number} of {len(pending)}: {point.label}{pace}")
        start = time.monotonic()
        failure = _run_point(folder, prepared, point, observer)
        if failure is None:
            durations[point.name] = time.monotonic() - start
        else:
            failures[point.name] = failure
        write_results(folder, prepared.study, failures=failures)
    result = write_results(folder, prepared.study, failures=failures)
    if failures:
        raise errors.JobError(
            "\n\n".join(f"point {name}: {text}" for name, text in failures.items())
            + f"\n\nThe other points are in {folder.report}.",
            key="points",
            value=list(failures),
            remedy="The same command tries these points again.",
        )
    return result


def _run_point(
    folder: StudyFolder, prepared: PreparedStudy, point: PlannedPoint, observer: Observer
) -> str | None:
    """Run one point to its end; return the error message if it failed. Ctrl-C ends the study."""
    path = folder.run_path(str(point.run))
    try:
        run = _open_run(prepared, point, path)
        local = prepared.context.config.scheduler.kind == "local"  # other nodes are out of reach
        if local and not conditions_file(path).exists():
            run_folder.write(conditions_file(path), timing_validity.observe_conditions())
        pipeline.execute(run, observer)
    except (errors.RunCancelledError, errors.RunDetachedError) as error:
        raise type(error)(
            f"Stopped at point {point.name}; finished work is kept.",
            remedy="The same command continues from there.",
        ) from None
    except errors.AI500Error as error:
        return str(error)
    return None


def _open_run(prepared: PreparedStudy, point: PlannedPoint, path: Path) -> RunFolder:
    """Open the point's run, or prepare it."""
    if RunFolder(path).state.exists():
        return RunFolder.open(path)
    if path.is_dir():
        shutil.rmtree(path)  # interrupted while it was prepared: nothing has run in it
    return pipeline.prepare(prepared.context.config_for(point.overrides), path)


def write_results(
    folder: StudyFolder, study: Study, *, failures: Mapping[str, str] | None = None
) -> StudyResult:
    """Write result.json, points.csv and report.html from the files on disk."""
    plan = folder.read_plan()
    before = _earlier_result(folder, plan)
    collected = [
        _collect_point(folder, study, point, before, failures or {}) for point in plan.points
    ]
    measured_at = _measured_at(folder, plan)
    result = StudyResult(
        format=StudyResult.FORMAT,
        study=plan.study,
        version=before.version if before and not measured_at else __version__,
        workload=plan.workload,
        problem_class=plan.problem_class,
        hardware=_hardware(folder, plan) or (before.hardware if before else "not recorded"),
        measured_at=measured_at or (before.measured_at if before else ""),
        points=tuple(point for point in collected if isinstance(point, PointResult)),
        missing=tuple(point for point in collected if isinstance(point, MissingPoint)),
    )
    run_folder.write(folder.result, result)
    write_csv(folder.csv, result)
    write_report(folder.report, result, study)
    return result


def _earlier_result(folder: StudyFolder, plan: StudyPlan) -> StudyResult | None:
    """Read the last result; an unreadable one is an error only if runs are gone."""
    try:
        return folder.read_result()
    except errors.InputError as error:
        if all(folder.run_path(point.run).exists() for point in plan.points if point.run):
            return None
        raise errors.RunFolderError(
            f"{folder.result} cannot be read ({error}), and some runs are gone.",
            path=folder.result,
            remedy="Restore it, or delete it to report the remaining runs.",
        ) from error


def _collect_point(
    folder: StudyFolder,
    study: Study,
    point: PlannedPoint,
    last: StudyResult | None,
    failures: Mapping[str, str],
) -> PointResult | MissingPoint:
    """Collect from the run folder; if that is gone or failed, return the earlier result."""
    collected = collect(folder, point, measures_sharing=study.measures_sharing)
    if isinstance(collected, PointResult):
        return collected
    if point.name in failures:
        reason = failures[point.name].strip().splitlines()[0]
        return MissingPoint(point.name, point.label, reason, failed=True, run=point.run)
    if last is None or point.run is None:
        return collected
    earlier: list[PointResult | MissingPoint] = [result for result in last.missing if result.failed]
    if not folder.run_path(point.run).exists():
        earlier = [*last.points, *earlier]
    same = (result for result in earlier if (result.name, result.run) == (point.name, point.run))
    return next(same, collected)


def _runs(folder: StudyFolder, plan: StudyPlan) -> list[RunFolder]:
    paths = [folder.run_path(point.run) for point in plan.points if point.run]
    return [RunFolder.open(path) for path in paths if (path / "run.json").exists()]


def _hardware(folder: StudyFolder, plan: StudyPlan) -> str | None:
    runs = _runs(folder, plan)
    if not runs:
        return None
    largest = max((run_folder.read(Plan, run.plan) for run in runs), key=lambda p: p.system_scale)
    return hardware(largest, run_folder.read(System, runs[0].system))


def _measured_at(folder: StudyFolder, plan: StudyPlan) -> str | None:
    times = [run.score.stat().st_mtime for run in _runs(folder, plan) if run.score.exists()]
    return time.strftime("%Y-%m-%d", time.gmtime(max(times))) if times else None
