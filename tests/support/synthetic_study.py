"""Plans and results of every study from known numbers, without training anything."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from ai500 import config as configuration
from ai500.automl.score import mean_of_searches
from ai500.config import Config
from ai500.core import events
from ai500.core.source import source_sha256
from ai500.pipeline import stages as pipeline
from ai500.records import Improvement, Score, TrainRecord, TrialSearchScore, run_folder
from ai500.records.precision import PRECISIONS
from ai500.records.run_folder import RunFolder
from ai500.study.collect import collect
from ai500.study.definition import StudyOptions
from ai500.study.folder import StudyFolder, finished_runs
from ai500.study.planning import PreparedStudy, prepare
from ai500.study.records import MemberTime, MissingPoint, PlannedPoint, PointResult, StudyResult
from ai500.study.studies import STUDIES
from tests.support.synthetic_run import Shape, write_synthetic_run

TWO_SLOTS = {"system.accelerators_per_node": 2, "system.cores_per_slot": 1, "system.device": "cpu"}
DOUBT = "the members use all 2 cores of the machine"


def finished_synthetic_run(path: Path, shape: Shape) -> None:
    """Write a run folder with the scores of its trials in place."""
    run = write_synthetic_run(path, shape)
    for trial in run_folder.read_json(run.score)["trials"]:
        run_folder.write(run.trial(trial["trial"]).score, trial)


def measured_point(path: Path, shape: Shape | None = None) -> PointResult:
    """Collect the result of a synthetic run."""
    finished_synthetic_run(path, shape or Shape(members=1, slots=1))
    point = PlannedPoint("point", "a point", {}, digest="0" * 64, run=str(path))
    result = collect(StudyFolder(path.parent / "study"), point)
    assert isinstance(result, PointResult)
    return result


def varied(
    base: PointResult,
    name: str,
    label: str,
    *,
    members: int = 1,
    degree: int = 1,
    speed: float = 1.0,
    quality: float = 0.8,
    **changes: object,
) -> PointResult:
    """Return the base with another size, speed and quality."""
    penalty = (quality / base.score.target_quality) ** 5
    flops = base.score.flops * speed
    figures: dict[str, Any] = {
        "ensemble_size": members,
        "parallel_degree": degree,
        "system_scale": members * degree,
        "flops": flops,
        "vflops": flops * penalty,
        "penalty_coefficient": penalty,
        "ensemble_quality": quality,
        "members_mean_quality": quality - 0.05,
    }
    trial = replace(base.score.trials[0], **figures, epochs_to_target=7)
    times = tuple(MemberTime(m, 0, 0.1 * m, 20 + 0.5 * m) for m in range(members))
    return replace(
        base,
        name=name,
        label=label,
        score=replace(base.score, **figures, trials=(trial,)),
        samples_per_second=(base.samples_per_second or 0.0) * speed,
        members=times,
        **changes,  # type: ignore[arg-type]
    )


def points_of(study: str, base: PointResult) -> list[PointResult]:
    """Return as many points as a node of eight accelerators has."""
    if study == "scaling":
        return [
            varied(base, f"m{m}", f"M = {m}", members=m, speed=m * 0.98 ** (m - 1),
                   quality=0.78 + 0.01 * m)
            for m in range(1, 9)
        ]  # fmt: skip
    if study == "tradeoff":
        return [_tradeoff(base, degree) for degree in (1, 2, 4, 8)]
    if study == "optimizations":
        return _optimized(base)
    if study == "frameworks":
        return [
            varied(base, name, label, speed=1 - 0.1 * index, quality=0.8 - 0.001 * index)
            for index, (name, label) in enumerate((("pytorch", "PyTorch"), ("jax", "JAX")))
        ]
    if study == "sharing":
        return [_sharing(base, shared) for shared in (1, 2, 4, 8)]
    if study == "data-parallel":
        points = []
        for n in (1, 2, 4, 8):
            points.append(varied(base, f"ensemble-{n}", f"M = {n}, P = 1", members=n,
                                speed=n * 0.99, quality=0.79 + 0.01 * n))  # fmt: skip
            if n > 1:
                points.append(varied(base, f"single-{n}", f"M = 1, P = {n}", degree=n,
                                    speed=n * 0.9**n, quality=0.8))  # fmt: skip
        return points
    return [
        varied(base, f"seed-{s}", f"seed {s}", speed=1 + 0.01 * s, quality=0.8 + 0.002 * s, seed=s)
        for s in range(1, 6)
    ]


def _sharing(base: PointResult, shared: int) -> PointResult:
    """Members on one accelerator: each more adds less."""
    point = varied(base, f"k{shared}", f"{shared} per accelerator", members=shared,
                   speed=2 - 1 / shared, quality=0.78 + 0.01 * shared)  # fmt: skip
    score = replace(
        point.score, system_scale=1, members_per_accelerator=shared, seconds=20.0 * shared
    )
    return replace(point, score=score)


def _tradeoff(base: PointResult, degree: int) -> PointResult:
    """Eight accelerators: together slower by communication, each model faster by more of them."""
    size = 8 // degree
    label = f"M = {size}, P = {degree}"
    point = varied(base, f"m{size}-p{degree}", label, members=size, degree=degree,
                   speed=1 - 0.02 * degree, quality=0.86 - 0.004 * degree)  # fmt: skip
    seconds = 160 / (degree * (1 - 0.02 * degree))
    times = tuple(MemberTime(member, 0, 0.0, seconds) for member in range(size))
    return replace(point, members=times, score=replace(point.score, seconds=seconds))


def _optimized(base: PointResult) -> list[PointResult]:
    precisions = [
        varied(base, name, name, speed=1 + 0.3 * index, quality=0.82 - 0.01 * index, precision=name)
        for index, name in enumerate(PRECISIONS)
    ]
    compression = [
        varied(base, "compression", "fp16 gradients", speed=1.2, communication_precision="fp16"),
        varied(base, "both", "mixed-bf16, fp16 gradients", speed=2.2, precision="mixed-bf16",
               communication_precision="fp16"),
    ]  # fmt: skip
    policies = [
        varied(base, f"large-batch{name}", f"batch 512, {name}", quality=0.8 - 0.05 * index,
               learning_rate=2.4 / (1 + index // 2), warmup_epochs=0.0 if index % 2 else 2.0)
        for index, name in enumerate(("", "-no-warm-up", "-unscaled", "-neither"))
    ]  # fmt: skip
    undecayed = varied(base, "no-batch-norm-decay", "no decay of batch norm", quality=0.83)
    return [*precisions, *compression, undecayed, *policies]


def result_of(study: str, base: PointResult, *, doubted: bool = False) -> StudyResult:
    """Make a whole study; `doubted`: on a machine whose timing is not valid."""
    points = points_of(study, base)
    if doubted:
        points = [replace(point, timing_issues=(DOUBT,)) for point in points]
    return StudyResult(
        format=1,
        study=study,
        version="0.0",
        workload="image_classification",
        problem_class="smoke",
        hardware="8 × an accelerator of a host",
        measured_at="2026-11-15",
        points=tuple(points),
        missing=(MissingPoint("fp4", "fp4", "no such arithmetic here", failed=False),),
    )


def configured(**extra: Any) -> Config:
    """On two slots; `__` stands for the dot of a key."""
    overrides = {key.replace("__", "."): value for key, value in extra.items()}
    return configuration.load(overrides={**TWO_SLOTS, **overrides})


def prepared(
    study: str,
    folder: Path,
    *,
    choices: StudyOptions | None = None,
    only: list[str] | None = None,
    runs: Path | None = None,
    **extra: Any,
) -> PreparedStudy:
    """A study in `folder`/study; `runs`: where finished ones are looked for."""
    return prepare(
        STUDIES[study],
        configured(**extra),
        choices or StudyOptions(),
        only=only or [],
        folder=StudyFolder(folder / "study"),
        finished=finished_runs([runs] if runs else []),
    )


def at(wall: float, kind: str, **fields: Any) -> events.Event:
    """An event at a time of the wall clock, with the fields that every event has."""
    common = {"monotonic": wall, "host": "host", "boot": "boot", "sequence": 1}
    return {"event": kind, "wall": wall, **common, **fields}


def pretend_finished(
    path: Path, config: Config, *, joules: float | None = None, source: str | None = None
) -> RunFolder:
    """A run folder as `ai500 run` leaves it, its numbers made up."""
    run = pipeline.prepare(config, path)
    made_up = RunFolder(path.parent.parent / "made up" / path.name)
    finished_synthetic_run(made_up.path, Shape(members=1, slots=1))
    score = run_folder.read(Score, made_up.score)
    record = run_folder.read(TrainRecord, made_up.trial(1).member(0).record)
    changed = replace(record, versions={"source": source or source_sha256()})
    run_folder.write(run.trial(1).member(0).record, changed)
    trials = config.run.trials
    assert isinstance(trials, int)
    trial = replace(score.trials[0], energy_joules=joules)
    for number in range(1, trials + 1):
        run_folder.write(run.trial(number).score, replace(trial, trial=number))
    run_folder.write(run.score, replace(score, trials=(trial,) * trials))
    events.append(run.events, [at(1000.0, "run_start"), at(1060.0, "run_end")])
    return run


def searched(base: PointResult, *steps: tuple[float, float]) -> PointResult:
    """A search whose error fell in `steps` of (operations, error), a second for each 1e9."""
    records = tuple(
        Improvement(seconds=operations / 1e9, operations=operations, error=error, model="0-1")
        for operations, error in steps
    )
    search = TrialSearchScore(
        at_seconds=10.0, min_seconds=5.0, mean_flops=1e9, regulated_score=1e9,
        regulated_at_seconds=9.0, best_model="0-1", initial_error=0.9, models=9, architectures=8,
        tuned=2, lost=0, idle_between_trainings=0.1, without_work=0.1, unreadable_lines=0,
        operations_to_target=None, improvements=records,
    )  # fmt: skip
    trial = replace(base.score.trials[0], search=search)
    mean = mean_of_searches([search], variation=None)
    score = replace(base.score, workload="automl", search=mean, trials=(trial,))
    return replace(base, score=score)
