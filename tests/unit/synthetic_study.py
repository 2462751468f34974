"""Results of every study from known numbers, without training anything."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from ai500 import rundir
from ai500.study.collect import collect
from ai500.study.folder import StudyFolder
from ai500.study.records import MemberTime, Missing, PlannedPoint, PointResult, StudyResult
from ai500.train.precision import PRECISIONS
from tests.unit.synthetic_run import Shape, write_synthetic_run

DOUBT = "the members use all 2 cores of the machine"


def finished_synthetic_run(path: Path, shape: Shape) -> None:
    """A run folder with the scores of its trials in place."""
    run = write_synthetic_run(path, shape)
    for trial in rundir.read_json(run.score)["trials"]:
        rundir.write(run.trial(trial["trial"]).score, trial)


def measured_point(path: Path, shape: Shape | None = None) -> PointResult:
    """What a study collects from a synthetic run."""
    finished_synthetic_run(path, shape or Shape(members=1, slots=1))
    point = PlannedPoint("point", "a point", {}, digest="0" * 64, run=str(path))
    found = collect(StudyFolder(path.parent / "study"), point)
    assert isinstance(found, PointResult)
    return found


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
    """The base with another size, speed and quality."""
    penalty = (quality / base.score.target_quality) ** 5
    flops = base.score.flops * speed
    score = replace(
        base.score,
        ensemble_size=members,
        parallel_degree=degree,
        system_scale=members * degree,
        flops=flops,
        vflops=flops * penalty,
        penalty_coefficient=penalty,
        ensemble_quality=quality,
        members_mean_quality=quality - 0.05,
    )
    trial = replace(score, trial=1, trials=(), epochs_to_target=7)
    times = tuple(MemberTime(m, 0, 0.1 * m, 20 + 0.5 * m) for m in range(members))
    return replace(
        base,
        name=name,
        label=label,
        score=replace(score, trials=(trial,)),
        images_per_second=(base.images_per_second or 0.0) * speed,
        members=times,
        **changes,  # type: ignore[arg-type]
    )


def points_of(study: str, base: PointResult) -> list[PointResult]:
    """As many points as a node of eight accelerators gives."""
    if study == "scaling":
        return [
            varied(base, f"m{m}", f"M = {m}", members=m, speed=m * 0.98 ** (m - 1),
                   quality=0.78 + 0.01 * m)
            for m in range(1, 9)
        ]  # fmt: skip
    if study == "tradeoff":
        return [
            varied(base, f"m{8 // p}-p{p}", f"M = {8 // p}, P = {p}", members=8 // p, degree=p,
                   speed=1 + 0.02 * p, quality=0.86 - 0.004 * p)
            for p in (1, 2, 4, 8)
        ]  # fmt: skip
    if study == "optimizations":
        return _optimized(base)
    if study == "data-parallel":
        found = []
        for n in (1, 2, 4, 8):
            found.append(varied(base, f"ensemble-{n}", f"M = {n}, P = 1", members=n,
                                speed=n * 0.99, quality=0.79 + 0.01 * n))  # fmt: skip
            if n > 1:
                found.append(varied(base, f"single-{n}", f"M = 1, P = {n}", degree=n,
                                    speed=n * 0.9**n, quality=0.8))  # fmt: skip
        return found
    return [
        varied(base, f"seed-{s}", f"seed {s}", speed=1 + 0.01 * s, quality=0.8 + 0.002 * s, seed=s)
        for s in range(1, 6)
    ]


def _optimized(base: PointResult) -> list[PointResult]:
    precisions = [
        varied(base, name, name, speed=1 + 0.3 * at, quality=0.82 - 0.01 * at, precision=name)
        for at, name in enumerate(PRECISIONS)
    ]
    others = [
        varied(base, "compression", "fp16 gradients", speed=1.2),
        varied(base, "both", "mixed-bf16, fp16 gradients", speed=2.2),
    ]
    policies = [
        varied(base, f"large-batch{name}", f"batch 512, {name}", quality=0.8 - 0.05 * at,
               learning_rate=2.4 / (1 + at // 2), warmup_epochs=0.0 if at % 2 else 2.0)
        for at, name in enumerate(("", "-no-warm-up", "-unscaled", "-neither"))
    ]  # fmt: skip
    return [*precisions, *others, *policies]


def result_of(study: str, base: PointResult, *, doubted: bool = False) -> StudyResult:
    """A whole study; `doubted`: on a machine too small for a claim about speed."""
    points = points_of(study, base)
    if doubted:
        points = [replace(one, doubts=(DOUBT,)) for one in points]
    return StudyResult(
        format=1,
        study=study,
        version="0.0",
        workload="image_classification",
        problem_class="smoke",
        hardware="8 × an accelerator of a host",
        measured_at="2026-11-15",
        points=tuple(points),
        missing=(Missing("fp4", "fp4", "no such arithmetic here", failed=False),),
    )
