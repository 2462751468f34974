"""Parallelism inside a member: how it uses its P_degree accelerators, checked at plan time.

Needs no torch: an invalid combination is refused before any job starts.
"""

from __future__ import annotations

import math

from ai500.config import Config, ParallelConfig
from ai500.core.errors import ConfigError, setting_error
from ai500.records import Parallelism, ParallelPlan

AXES = ("data", "pipeline", "tensor")


def inside_member(
    config: Config, *, degree: int, plan: ParallelPlan | None, batch_size: int
) -> Parallelism:
    """Return degrees and micro-batches of a member, or raise ConfigError.

    `batch_size` is the number of images of a step per accelerator.
    """
    parallel = config.parallel
    data, pipeline, tensor = member_degrees(parallel, degree=degree)
    _check_sharded(config)
    _check_effect(parallel, data=data, pipeline=pipeline, tensor=tensor)
    if parallel.mode not in ("data", "sharded"):
        _check_plan(config, plan, pipeline=pipeline, tensor=tensor)
    return Parallelism(
        mode=parallel.mode,
        sharded=parallel.sharded,
        data_degree=data,
        pipeline_degree=pipeline,
        tensor_degree=tensor,
        pipeline_schedule=parallel.pipeline_schedule or "1f1b",
        microbatches=_microbatches(parallel, stages=pipeline, batch=batch_size * pipeline * tensor),
        batch_norm=parallel.batch_norm,
    )


def member_degrees(parallel: ParallelConfig, *, degree: int) -> tuple[int, int, int]:
    """Solve data × pipeline × tensor = P_degree; a missing degree is derived if it is unique."""
    stated = {axis: getattr(parallel, f"{axis}_degree") for axis in AXES}
    if parallel.mode != "mixed":
        return _single_axis(parallel.mode, stated, degree=degree)
    product = math.prod(value for value in stated.values() if value is not None)
    missing = [axis for axis, value in stated.items() if value is None]
    factors = " × ".join(f"{axis} {value}" for axis, value in stated.items() if value is not None)
    if (not missing and product != degree) or degree % product:
        raise ConfigError(
            f'parallel.mode = "mixed" with {factors} = {product}: the product must '
            f"{'divide' if missing else 'be'} parallel.degree = {degree}.",
            key="parallel.degree",
            value=degree,
            remedy="Change one of parallel.data_degree, pipeline_degree, tensor_degree, or "
            "parallel.degree.",
        )
    remaining = degree // product
    if len(missing) > 1 and remaining > 1:
        raise ConfigError(
            f'parallel.mode = "mixed" with parallel.degree = {degree}: {" × ".join(missing)} must '
            f"be {remaining}, which has several solutions.",
            key=f"parallel.{missing[-1]}_degree",
            remedy=f"Set parallel.{missing[-1]}_degree.",
        )
    degrees = stated | dict.fromkeys(missing, 1)
    if missing:
        degrees[missing[0]] = remaining
    return degrees["data"], degrees["pipeline"], degrees["tensor"]


def _single_axis(mode: str, stated: dict[str, int | None], *, degree: int) -> tuple[int, int, int]:
    axis = mode if mode in AXES else "data"
    for name, value in stated.items():
        if value not in (None, degree if name == axis else 1):
            raise ConfigError(
                f'parallel.{name}_degree = {value} with parallel.mode = "{mode}": all '
                f"parallel.degree = {degree} accelerators are {axis}-parallel.",
                key=f"parallel.{name}_degree",
                value=value,
                remedy='Set parallel.mode = "mixed" to divide them among several axes.',
            )
    if mode in ("tensor", "pipeline") and degree == 1:
        raise ConfigError(
            f'parallel.mode = "{mode}" with parallel.degree = 1: a model is divided among at least '
            "two accelerators.",
            key="parallel.mode",
            value=mode,
            remedy='Set parallel.degree = 2 or more, or parallel.mode = "data".',
        )
    return tuple(degree if name == axis else 1 for name in AXES)  # type: ignore[return-value]


def _check_sharded(config: Config) -> None:
    parallel, communication = config.parallel, config.communication
    if parallel.mode == "sharded":
        remedy = 'Set parallel.mode = "data" and parallel.sharded = true.'
        problem = "sharding is a variant of data parallelism."
        raise setting_error("parallel.mode", "sharded", problem, remedy)
    if not parallel.sharded:
        return
    if parallel.mode != "data":
        raise ConfigError(
            f'parallel.sharded = true with parallel.mode = "{parallel.mode}": FSDP2 shards what '
            "data-parallel ranks replicate.",
            key="parallel.sharded",
            value=True,
            remedy='Set parallel.mode = "data", or leave sharded out.',
        )
    if (communication.mode, communication.precision) != ("all_reduce", "fp32"):
        raise ConfigError(
            f'parallel.sharded = true with communication.mode = "{communication.mode}", precision '
            f'"{communication.precision}": FSDP2 reduces gradients by its own reduce-scatter.',
            key="parallel.sharded",
            value=True,
            remedy="Leave [communication] at all_reduce and fp32, or sharded out.",
        )


def _check_effect(parallel: ParallelConfig, *, data: int, pipeline: int, tensor: int) -> None:
    """Refuse a setting without effect: its author expects one."""
    if parallel.mode == "mixed" and pipeline == tensor == 1:
        raise ConfigError(
            'parallel.mode = "mixed" with neither a pipeline nor tensor parallelism: that is '
            'parallel.mode = "data".',
            key="parallel.mode",
            value="mixed",
            remedy="Set it, or parallel.pipeline_degree or tensor_degree.",
        )
    if parallel.sharded and data == 1:
        raise ConfigError(
            "parallel.sharded = true with parallel.degree = 1: there is no other rank to shard "
            "over.",
            key="parallel.sharded",
            value=True,
            remedy="Set parallel.degree = 2 or more, or leave sharded out.",
        )
    if parallel.batch_norm == "synchronized" and data == 1:
        raise ConfigError(
            'parallel.batch_norm = "synchronized": the member has one replica, so its statistics '
            "are those of the whole batch already.",
            key="parallel.batch_norm",
            value="synchronized",
            remedy="Leave it out.",
        )
    if parallel.pipeline_schedule is not None and pipeline == 1:
        key, schedule = "parallel.pipeline_schedule", parallel.pipeline_schedule
        remedy = 'Leave it out, or set parallel.mode = "pipeline".'
        raise setting_error(key, schedule, "there is no pipeline.", remedy)


def _check_plan(config: Config, plan: ParallelPlan | None, *, pipeline: int, tensor: int) -> None:
    if plan is None:
        raise ConfigError(
            f'parallel.mode = "{config.parallel.mode}": {config.workload} has no parallel plan, '
            "which would define how its model is divided.",
            key="parallel.mode",
            value=config.parallel.mode,
            remedy='Set parallel.mode = "data".',
        )
    if pipeline > 1 and not plan.stages:
        raise ConfigError(
            f"a pipeline of {pipeline} stages: the parallel plan of {config.workload} has no "
            "stages.",
            key="parallel.mode",
            value=config.parallel.mode,
            remedy='Set parallel.mode = "tensor", "data", or "mixed" with '
            "parallel.pipeline_degree = 1.",
        )
    if pipeline > max(1, len(plan.stages)):
        key = _degree_key(config, "pipeline")
        raise ConfigError(
            f"a pipeline of {pipeline} stages: the model of class {config.problem_class} can be "
            f"cut into at most {len(plan.stages)}.",
            key=key,
            value=pipeline,
            remedy=f"Set a smaller {key}.",
        )
    for split in plan.splits:
        if split.groups % tensor:
            parts = f"{split.channels} channels"
            if split.group > 1:
                parts += f" in {split.groups} groups that stay together"
            raise ConfigError(
                f"tensor parallelism over {tensor} ranks: layer {split.layers} of class "
                f"{config.problem_class} has {parts}, which {tensor} does not divide.",
                key=_degree_key(config, "tensor"),
                value=tensor,
                remedy=f"Set a divisor of {math.gcd(*(layer.groups for layer in plan.splits))}.",
            )


def _degree_key(config: Config, axis: str) -> str:
    return f"parallel.{axis}_degree" if config.parallel.mode == "mixed" else "parallel.degree"


def _microbatches(parallel: ParallelConfig, *, stages: int, batch: int) -> int:
    """Return the micro-batches of a step, by default one per stage.

    Then batch norm, whose statistics are a micro-batch's, sees as many images as on a data-parallel
    rank; more micro-batches would make the pipeline's bubble smaller.
    """
    if stages == 1:
        if parallel.microbatches not in (None, 1):
            remedy = "For gradient accumulation set train.accumulation."
            key, count = "parallel.microbatches", parallel.microbatches
            raise setting_error(key, count, "only a pipeline has them.", remedy)
        return 1
    if parallel.microbatches is None:
        return stages
    if batch % parallel.microbatches:
        raise ConfigError(
            f"parallel.microbatches = {parallel.microbatches} does not divide the {batch} samples "
            "that a pipeline takes in a step (train.batch_size × its accelerators).",
            key="parallel.microbatches",
            value=parallel.microbatches,
        )
    if parallel.pipeline_schedule != "gpipe" and parallel.microbatches < stages:
        raise ConfigError(
            f"parallel.microbatches = {parallel.microbatches}: 1F1B keeps all {stages} stages "
            f"busy, so it needs at least {stages}.",
            key="parallel.microbatches",
            value=parallel.microbatches,
            remedy='Set more, or parallel.pipeline_schedule = "gpipe".',
        )
    return parallel.microbatches
