"""Time of a plan, projected from a run of one node."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from ai500.core.errors import InputError
from ai500.projection import application, platform, simulator
from ai500.projection.application import Application
from ai500.projection.model import Projector, Settings
from ai500.records import Plan


def projected_time(
    plan: Plan, run: Path | None, system: str | None, activations: Path | None = None
) -> Plan:
    """Return the plan with the time that its members would take on nodes like the run's."""
    if run is None or system is None:
        raise InputError(
            "a projected time needs both --measured RUN and --network SYSTEM.",
            key="--measured",
            remedy=f"SYSTEM is a TOML file, or one of {', '.join(platform.SHIPPED)}.",
        )
    simulator.require_simgrid()
    work = application.read_all(run, (), activations=activations)
    target = platform.read(system)
    _check_alike(plan, work, run)
    parallel, hyper = plan.parallel, plan.hyperparameters
    settings = Settings(
        mode=plan.communication.mode,
        precision=plan.communication.precision,
        batch=hyper.batch_size * hyper.accumulation,
        tensor_degree=parallel.tensor_degree,
        pipeline_degree=parallel.pipeline_degree,
        microbatches=parallel.microbatches,
        sharded=parallel.sharded,
        staged=plan.stage,
    )
    work = replace(
        work,
        epochs=hyper.epochs,
        evaluations=application.evaluations_of(plan),
        samples_per_epoch=plan.steps_per_epoch * plan.global_batch_size,
    )
    point = Projector(work, target, settings).project(
        accelerators=plan.system_scale, degree=plan.parallel_degree
    )
    seconds = point.seconds * plan.waves * plan.trials
    return replace(
        plan,
        estimated_seconds=seconds,
        estimated_node_hours=seconds * len(plan.nodes) / 3600,
        estimate_basis=f"projected from {work.run} on {target.name}",
    )


def _check_alike(plan: Plan, work: Application, run: Path) -> None:
    sharing = "{} members on an accelerator".format
    planned = (
        plan.workload,
        plan.problem_class,
        plan.hyperparameters.precision,
        sharing(plan.members_per_accelerator),
    )
    measured = (
        work.workload,
        work.problem_class,
        work.precision,
        sharing(work.members_per_accelerator),
    )
    if planned != measured:
        raise InputError(
            f"{run} is of {', '.join(measured)}; the plan is of {', '.join(planned)}.",
            path=run,
            key="--measured",
        )
