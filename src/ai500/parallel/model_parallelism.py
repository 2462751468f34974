"""How one member uses its P_degree accelerators, checked against what its workload allows.

Needs no torch: a combination that makes no sense is refused before any job starts.
"""

from __future__ import annotations

import math

from ai500.config import Config, ParallelConfig
from ai500.core.errors import ConfigError
from ai500.records import Parallelism, ParallelPlan

AXES = ("data", "pipeline", "tensor")


def inside_member(
    config: Config, *, degree: int, plan: ParallelPlan | None, batch_size: int
) -> Parallelism:
    """Degrees and micro-batches, or a ConfigError; `batch_size` is a step's, per accelerator."""
    wanted = config.parallel
    data, pipeline, tensor = member_degrees(wanted, degree=degree)
    _check_sharded(config)
    _check_effect(wanted, data=data, pipeline=pipeline, tensor=tensor)
    if wanted.mode not in ("data", "sharded"):
        _check_plan(config, plan, pipeline=pipeline, tensor=tensor)
    return Parallelism(
        mode=wanted.mode,
        sharded=wanted.sharded,
        data_degree=data,
        pipeline_degree=pipeline,
        tensor_degree=tensor,
        pipeline_schedule=wanted.pipeline_schedule or "1f1b",
        microbatches=_microbatches(wanted, stages=pipeline, batch=batch_size * pipeline * tensor),
        batch_norm=wanted.batch_norm,
    )


def member_degrees(wanted: ParallelConfig, *, degree: int) -> tuple[int, int, int]:
    """Data × pipeline × tensor = P_degree; what is left out is derived where only one fits."""
    stated = {axis: getattr(wanted, f"{axis}_degree") for axis in AXES}
    if wanted.mode != "mixed":
        return _one_axis(wanted.mode, stated, degree=degree)
    product = math.prod(value for value in stated.values() if value is not None)
    missing = [axis for axis, value in stated.items() if value is None]
    told = " × ".join(f"{axis} {value}" for axis, value in stated.items() if value is not None)
    if (not missing and product != degree) or degree % product:
        raise ConfigError(
            f'parallel.mode = "mixed" with {told} = {product}: the product must '
            f"{'divide' if missing else 'be'} parallel.degree = {degree}. Change one of "
            "parallel.data_degree, pipeline_degree, tensor_degree, or parallel.degree."
        )
    left = degree // product
    if len(missing) > 1 and left > 1:
        raise ConfigError(
            f'parallel.mode = "mixed" with parallel.degree = {degree}: {" × ".join(missing)} must '
            f"be {left}, and can in more than one way. State parallel.{missing[-1]}_degree."
        )
    found = stated | dict.fromkeys(missing, 1)
    if missing:
        found[missing[0]] = left
    return found["data"], found["pipeline"], found["tensor"]


def _one_axis(mode: str, stated: dict[str, int | None], *, degree: int) -> tuple[int, int, int]:
    axis = mode if mode in AXES else "data"
    for name, value in stated.items():
        if value not in (None, degree if name == axis else 1):
            raise ConfigError(
                f'parallel.{name}_degree = {value} with parallel.mode = "{mode}": all '
                f"parallel.degree = {degree} accelerators are {axis}-parallel. Set parallel.mode = "
                '"mixed" to divide them among several axes.'
            )
    if mode in ("tensor", "pipeline") and degree == 1:
        raise ConfigError(
            f'parallel.mode = "{mode}" with parallel.degree = 1: one accelerator has nobody to '
            'share a model with. Set parallel.degree = 2 or more, or parallel.mode = "data".'
        )
    return tuple(degree if name == axis else 1 for name in AXES)  # type: ignore[return-value]


def _check_sharded(config: Config) -> None:
    wanted, communication = config.parallel, config.communication
    if wanted.mode == "sharded":
        raise ConfigError(
            'parallel.mode = "sharded": sharding is a variant of data parallelism. Set '
            'parallel.mode = "data" and parallel.sharded = true.'
        )
    if not wanted.sharded:
        return
    if wanted.mode != "data":
        raise ConfigError(
            f'parallel.sharded = true with parallel.mode = "{wanted.mode}": FSDP2 shards what '
            'data-parallel ranks would hold twice. Set parallel.mode = "data", or leave sharded '
            "out."
        )
    if (communication.mode, communication.precision) != ("all_reduce", "fp32"):
        raise ConfigError(
            f'parallel.sharded = true with communication.mode = "{communication.mode}", precision '
            f'"{communication.precision}": FSDP2 reduces gradients by its own reduce-scatter. '
            "Leave [communication] at all_reduce and fp32, or sharded out."
        )


def _check_effect(wanted: ParallelConfig, *, data: int, pipeline: int, tensor: int) -> None:
    """A choice that would change nothing is a misunderstanding."""
    if wanted.mode == "mixed" and pipeline == tensor == 1:
        raise ConfigError(
            'parallel.mode = "mixed" with neither a pipeline nor tensor parallelism: that is '
            'parallel.mode = "data". Set it, or parallel.pipeline_degree or tensor_degree.'
        )
    if wanted.sharded and data == 1:
        raise ConfigError(
            "parallel.sharded = true with parallel.degree = 1: there is nobody to share with. "
            "Set parallel.degree = 2 or more, or leave sharded out."
        )
    if wanted.batch_norm == "synchronized" and data == 1:
        raise ConfigError(
            'parallel.batch_norm = "synchronized": a member is one replica here, its statistics '
            "are those of the whole batch already. Leave it out."
        )
    if wanted.pipeline_schedule is not None and pipeline == 1:
        raise ConfigError(
            f'parallel.pipeline_schedule = "{wanted.pipeline_schedule}": there is no pipeline. '
            'Leave it out, or set parallel.mode = "pipeline".'
        )


def _check_plan(config: Config, plan: ParallelPlan | None, *, pipeline: int, tensor: int) -> None:
    if plan is None:
        raise ConfigError(
            f'parallel.mode = "{config.parallel.mode}": {config.workload} has no parallel plan, '
            'so nothing says how its model can be divided. Set parallel.mode = "data".'
        )
    if pipeline > 1 and not plan.stages:
        raise ConfigError(
            f"a pipeline of {pipeline} stages: the parallel plan of {config.workload} has no "
            'stages. Set parallel.mode = "tensor", "data", or "mixed" with '
            "parallel.pipeline_degree = 1."
        )
    if pipeline > max(1, len(plan.stages)):
        raise ConfigError(
            f"a pipeline of {pipeline} stages: the model of class {config.problem_class} can be "
            f"cut into at most {len(plan.stages)}. Set a smaller parallel."
            f"{'pipeline_degree' if config.parallel.mode == 'mixed' else 'degree'}."
        )
    for split in plan.splits:
        if split.channels % tensor:
            raise ConfigError(
                f"tensor parallelism over {tensor} ranks: layer {split.layers} of class "
                f"{config.problem_class} has {split.channels} channels, which {tensor} does not "
                f"divide. Set a divisor of {math.gcd(*(one.channels for one in plan.splits))}."
            )


def _microbatches(wanted: ParallelConfig, *, stages: int, batch: int) -> int:
    """Left out: one for each stage. Then batch norm, whose statistics are a micro-batch's, sees as
    many images as on a data-parallel rank; more would make the pipeline's bubble smaller."""
    if stages == 1:
        if wanted.microbatches not in (None, 1):
            raise ConfigError(
                f"parallel.microbatches = {wanted.microbatches}: only a pipeline has them. For "
                "gradient accumulation set train.accumulation."
            )
        return 1
    if wanted.microbatches is None:
        return stages
    if batch % wanted.microbatches:
        raise ConfigError(
            f"parallel.microbatches = {wanted.microbatches} does not divide the {batch} images "
            "that a pipeline takes in a step (train.batch_size × its accelerators)."
        )
    if wanted.pipeline_schedule != "gpipe" and wanted.microbatches < stages:
        raise ConfigError(
            f"parallel.microbatches = {wanted.microbatches}: 1F1B keeps all {stages} stages busy, "
            f'so it takes at least {stages}. Set more, or parallel.pipeline_schedule = "gpipe".'
        )
    return wanted.microbatches
