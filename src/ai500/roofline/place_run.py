"""Place a run under the roofline: attained and attainable FLOPS, the bound, and advice.

Points: a member on its own P_degree accelerators, and the ensemble on all. The single-node model
holds for what stays inside a node, the distributed one for what spans nodes (V2 §6.2, §6.3).
Imports no torch for the built-in problem classes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any

from ai500.automl.program import SEARCH
from ai500.core import events
from ai500.core.errors import AI500Error, EnvironmentLacksError, InputError
from ai500.core.schema import SchemaError
from ai500.operations.shipped import shipped_operations
from ai500.pipeline import scoring
from ai500.pipeline.programs import program_of
from ai500.records import Operations, Plan, System, TrainRecord, TrialScore, require, run_folder
from ai500.records.run_folder import RunFolder
from ai500.roofline import links, traffic
from ai500.roofline.advice import advise
from ai500.roofline.model import Channel, Standing, coi
from ai500.roofline.records import (
    Ceiling,
    Placed,
    PlacedLink,
    RooflineRecord,
    RunPlacement,
    Scope,
    ceilings,
    is_above_roof,
    peak_of,
    roof_flops,
)
from ai500.roofline.search_steps import CONVENTION, search_step
from ai500.roofline.traffic import Traffic
from ai500.workloads.protocol import load_workload

# Training precision → precision of the kernels whose ceiling applies [D10].
KERNEL_PRECISION = {
    "fp32": "fp32",
    "tf32": "tf32",
    "mixed-bf16": "bf16",
    "mixed-fp16": "fp16",
    "fp16": "fp16",
    "fp8": "fp8",
    "int8": "int8",
}
SCOPES: tuple[Scope, Scope] = ("between_nodes", "inside_node")
LINK_NAMES: dict[Scope, str] = {
    "between_nodes": "links between nodes",
    "inside_node": "links inside a node",
}


@dataclass(frozen=True)
class RunFacts:
    """Facts of a run that its placement needs."""

    plan: Plan
    score: TrialScore
    system: System
    members: list[TrainRecord]
    traffic: Traffic | None
    """Bytes counted per step, mean of the members; None: not counted."""
    analytical: Traffic | None
    traffic_source: str
    convention: str
    operations_per_step: float
    flops_factor: float
    """Factor from the score's convention to the one used here."""


def place_run(
    folder: RunFolder, record: RooflineRecord, *, memory_bytes_per_second: float | None = None
) -> RunPlacement:
    """Place the run's points under these ceilings, with warnings.

    `memory_bytes_per_second` is what a profile counted; None: it did not.
    """
    run = read_run(folder)
    kernel_precision = KERNEL_PRECISION[run.plan.hyperparameters.precision]
    matching = [each for each in ceilings(record) if each.precision == kernel_precision]
    if not matching:
        raise InputError(
            f"The run trained in {run.plan.hyperparameters.precision}, but the roofline has no "
            f"ceiling in {kernel_precision} (decision D10).",
            key="train.precision",
            value=run.plan.hyperparameters.precision,
            remedy=f"Measure one: ai500 roofline --precision {kernel_precision} --out FILE",
        )
    ceiling = run_ceiling(matching)
    placed = [_place_point(run, record, ceiling, subject="member")]
    if run.plan.ensemble_size > 1 or run.plan.system_scale > run.plan.parallel_degree:
        placed.append(_place_point(run, record, ceiling, subject="ensemble"))
    return RunPlacement(
        run=folder.path.name,
        workload=run.plan.workload,
        precision=run.plan.hyperparameters.precision,
        kernel_precision=kernel_precision,
        convention=run.convention,
        score_convention=run.score.convention or run.convention,
        score_flops=require(run.score.flops, "flops"),
        traffic_source=run.traffic_source,
        warnings=(*_warnings(run, record), *_doubts(placed)),
        placed=tuple(placed),
        ceilings=record,
        memory_bytes_per_second=memory_bytes_per_second,
    )


def _doubts(placed: Sequence[Placed]) -> list[str]:
    """Doubt ceilings that a run exceeds: no run is faster than its roof."""
    above = [point for point in placed if point.above_roof]
    if not above:
        return []
    fastest = max(above, key=lambda point: point.flops / point.attainable_flops)
    return [
        f"the {fastest.subject} is {fastest.flops / fastest.attainable_flops:.2f} times as fast as "
        "its roof, which no run can be: the ceilings were measured on a busy machine, or at other "
        "clocks. Measure them again on an idle one: ai500 roofline"
    ]


def run_ceiling(of_precision: Sequence[Ceiling]) -> Ceiling:
    """Return CONV's ceiling: all workloads are mostly convolutions.

    GEMM's where CONV cannot be measured (FP8 and INT8, whose convolutions run as matrix products).
    """
    return next((ceiling for ceiling in of_precision if ceiling.kernel == "conv"), of_precision[0])


def read_run(folder: RunFolder) -> RunFacts:
    """Read the facts from the run folder; raises for a run without a finished trial."""
    plan = run_folder.read(Plan, folder.plan)
    score = scoring.score_run(folder)
    shown = score.shown_trial
    trial = folder.trial(shown.trial)
    folders = [trial.member(member) for member in range(plan.ensemble_size)]
    finished = [member_folder for member_folder in folders if member_folder.record.exists()]
    members = [run_folder.read(TrainRecord, member_folder.record) for member_folder in finished]
    counts = [traffic.counted(*pair) for pair in zip(members, finished, strict=True)]
    counted = [count for count, _ in counts if count is not None]
    scored, parameters = members[0].operations, members[0].parameters
    if scored is None or parameters is None or score.flops is None:
        raise InputError(
            f"{folder.path}: its operations were not counted, so it has no place under a roofline.",
            key="framework.operations",
            path=folder.path,
            remedy="Run it with framework.operations.",
        )
    facts = RunFacts(
        plan=plan,
        score=shown,
        system=run_folder.read(System, folder.system),
        members=members,
        traffic=_mean(counted) if len(counted) == len(counts) else None,
        analytical=traffic.analytical(plan, parameters=parameters),
        traffic_source=counts[0][1],
        **_step_operations(plan, members[0], scored),
    )
    return _search_facts(facts, folder) if program_of(plan) is SEARCH else facts


def _step_operations(plan: Plan, member: TrainRecord, scored: Operations) -> dict[str, Any]:
    placed = _matmul_operations(plan, scored) or scored
    steps, samples = member.steps, member.samples
    training = placed.training(samples=samples, steps=steps)
    return {
        "convention": placed.convention,
        "operations_per_step": training / steps,
        "flops_factor": training / scored.training(samples=samples, steps=steps),
    }


def _search_facts(facts: RunFacts, folder: RunFolder) -> RunFacts:
    """Replace what a single model's record can't say of a search's models."""
    plan, trial = facts.plan, facts.score.trial
    recorded = [event for event in events.read(folder.events) if event.get("trial") == trial]
    step = search_step(plan, folder.trial(trial).members, recorded)
    alone = plan.parallel_degree == 1
    sent = step.traffic
    return replace(
        facts,
        traffic=Traffic(0.0, 0.0) if alone else sent,
        traffic_source=traffic.source(facts.members[0]) if alone or sent else "not counted",
        analytical=traffic.analytical(plan, parameters=round(step.parameters)),
        convention=CONVENTION,
        operations_per_step=step.operations,
        flops_factor=step.flops_factor,
    )


def _mean(counts: list[Traffic]) -> Traffic:
    return Traffic(
        fmean(count.inside_node for count in counts), fmean(count.between_nodes for count in counts)
    )


def _matmul_operations(plan: Plan, counted: Operations) -> Operations | None:
    """Return the operations of the model by the `matmul` convention, which counts as ceilings do.

    The shipped count applies if it agrees with the members' own; else the model is traced again,
    where torch is installed. None: neither is possible.
    """
    official = shipped_operations(plan.workload, plan.problem_class, counted.convention)
    by_matmul = shipped_operations(plan.workload, plan.problem_class, "matmul")
    if official and by_matmul and official.forward_per_sample == counted.forward_per_sample:
        return by_matmul
    try:
        from ai500.operations import count, example_input

        workload = load_workload(plan.workload)
        traced = count(
            workload.model(plan.definition),
            example_input((1, *plan.definition.input_shape), dtype=plan.definition.input_dtype),
            convention="matmul",
            loss=workload.loss_operator,
        )
    except (ImportError, AI500Error):
        return None
    if traced.parameters != counted.parameters:
        return None
    return traced.as_record()


def _place_point(
    run: RunFacts, record: RooflineRecord, ceiling: Ceiling, *, subject: str
) -> Placed:
    plan, score = run.plan, run.score
    is_member = subject == "member"
    ranks = plan.parallel_degree if is_member else plan.system_scale
    nodes = len(plan.mapping[0].shares) if is_member else _nodes_used(plan)
    flops = require(score.flops, "flops")
    if is_member:
        flops = require(score.members_flops_sum, "members_flops_sum") / len(run.members)
    share = _units_per_rank(run, record) * ranks / record.units
    roof = roof_flops(record, ceiling) * share
    placed_links = _point_links(run, record, ranks=ranks, nodes=nodes)
    standing = Standing(roof, _channels(run, placed_links))
    peak = peak_of(record, ceiling.precision)
    attained = flops * run.flops_factor
    bound, limit = _bound(run, record, standing, attained_flops=attained)
    return Placed(
        model="single node" if nodes == 1 else "distributed",
        subject="member" if is_member else "ensemble",
        nodes=nodes,
        ranks=ranks,
        flops=attained,
        ceiling=ceiling.name,
        ceiling_flops=standing.ceiling_flops,
        peak_flops=None if peak is None else peak * share,
        links=placed_links,
        attainable_flops=standing.attainable_flops,
        bound=bound,
        limit=limit,
        advice=tuple(
            advise(
                standing,
                attained_flops=attained,
                wire_precision=_wire_precision(plan),
                other_ceilings=_other_ceilings(run, record, ceiling, share=share),
                hierarchical=_hierarchical(run, standing),
                sharded=plan.parallel.sharded,
                bound_known=bound != "not known",
            )
        ),
    )


def _bound(
    run: RunFacts, record: RooflineRecord, standing: Standing, *, attained_flops: float
) -> tuple[str, str]:
    """Return kind and name of the lowest roof.

    "not known" if an unmeasured one may be lower, or if the run is above what was measured.
    """
    if is_above_roof(attained_flops, attainable_flops=standing.attainable_flops):
        return "not known", "not known"
    if standing.bound == "communication":
        return standing.bound, standing.limit
    sent = run.traffic or run.analytical
    counted = sent is not None or run.plan.parallel_degree == 1
    if not counted or _unmeasured(sent, record):
        return "not known", "not known"
    return standing.bound, standing.limit


def _unmeasured(sent: Traffic | None, record: RooflineRecord) -> list[Scope]:
    """Return the classes of links that carry traffic but were not measured."""
    return [
        scope
        for scope in SCOPES
        if getattr(sent, scope, 0) > 0 and links.best_all_reduce(record, scope) is None
    ]


def _nodes_used(plan: Plan) -> int:
    return len({share.node for member in plan.mapping for share in member.shares})


def _units_per_rank(run: RunFacts, record: RooflineRecord) -> float:
    """Return 1 accelerator, or on a CPU the threads of a rank [D8]."""
    if record.unit == "accelerator":
        return 1.0
    return float(run.members[0].effective.get("threads", record.units))


def _bandwidth(record: RooflineRecord, scope: Scope, *, ranks: int, nodes: int) -> float | None:
    """Return the bandwidth of all links of a class that these ranks use; None: not measured."""
    best = links.best_all_reduce(record, scope)
    if best is None:
        return None
    senders = nodes * best.groups if scope == "between_nodes" else ranks
    return links.bus_bandwidth(best) * senders


def _channels(run: RunFacts, placed_links: Sequence[PlacedLink]) -> tuple[Channel, ...]:
    """Return the classes of links in use whose bandwidth is known."""
    channels = []
    for link in placed_links:
        intensity = link.analytical_coi if run.traffic is None else link.coi
        if intensity is not None and link.bytes_per_second is not None:
            channels.append(Channel(LINK_NAMES[link.scope], link.bytes_per_second, intensity))
    return tuple(channels)


def _point_links(
    run: RunFacts, record: RooflineRecord, *, ranks: int, nodes: int
) -> tuple[PlacedLink, ...]:
    """Return the classes of links that carry traffic."""
    operations, placed_links = run.operations_per_step, []
    for scope in SCOPES:
        counted, computed = (getattr(sent, scope, None) for sent in (run.traffic, run.analytical))
        if counted or computed:
            bandwidth = _bandwidth(record, scope, ranks=ranks, nodes=nodes)
            placed_links.append(
                PlacedLink(
                    scope,
                    bytes_per_step=counted,
                    analytical_bytes_per_step=computed,
                    coi=coi(operations, traffic_bytes=counted) if counted else None,
                    analytical_coi=coi(operations, traffic_bytes=computed) if computed else None,
                    bytes_per_second=bandwidth,
                )
            )
    return tuple(placed_links)


def _wire_precision(plan: Plan) -> str | None:
    """Return the precision of gradients that compression could shrink; None: there are none."""
    averages = plan.parallel.data_degree > 1 and not plan.parallel.sharded
    return plan.communication.precision if averages else None


def _other_ceilings(
    run: RunFacts, record: RooflineRecord, ceiling: Ceiling, *, share: float
) -> dict[str, float]:
    """Return training precision → roof, of the same kernel."""
    roofs = {
        other.precision: roof_flops(record, other) * share
        for other in ceilings(record)
        if other.kernel == ceiling.kernel and other.precision != ceiling.precision
    }
    return {
        name: roofs[kernel_precision]
        for name, kernel_precision in KERNEL_PRECISION.items()
        if kernel_precision in roofs and name != "fp16"
    }


def _hierarchical(run: RunFacts, standing: Standing) -> Standing | None:
    """Return the position in hierarchical mode; None: in use, or impossible on these nodes."""
    plan = run.plan
    nodes = traffic.nodes_of_ranks(plan)
    flat = plan.communication.mode == "all_reduce" and not plan.parallel.sharded
    only_data = plan.parallel.data_degree == len(nodes)
    if not flat or not only_data or len(standing.channels) < 2:
        return None
    ranks_of_nodes = set(Counter(nodes).values())
    if len(set(nodes)) == 1 or len(ranks_of_nodes) > 1 or ranks_of_nodes == {1}:
        return None
    now = traffic.on_grid(nodes, mode="all_reduce", gradient_bytes=1.0)
    then = traffic.on_grid(nodes, mode="hierarchical", gradient_bytes=1.0)
    between, inside = standing.channels
    return replace(
        standing,
        channels=(
            replace(between, coi=between.coi * now.between_nodes / then.between_nodes),
            replace(inside, coi=inside.coi * now.inside_node / then.inside_node),
        ),
    )


def _warnings(run: RunFacts, record: RooflineRecord) -> list[str]:
    warnings = []
    parallel = run.plan.parallel
    if not record.complete:
        warnings.append("the roofline is partial: its measurement was interrupted.")
    trained_on, measured_on = run.members[0].device_name, record.device_name
    cpu = run.plan.device == "cpu"
    if cpu:
        trained_on, measured_on = run.system.cpu, record.system.cpu
    if trained_on != measured_on or (cpu and record.unit != "core"):
        warnings.append(
            f"the roofline is of another machine: it was measured on {measured_on}, the run "
            f"trained on {trained_on}."
        )
    if run.convention != "matmul":
        warnings.append(
            f"operations are counted by {run.convention}, ceilings as 2 per multiply-add: no "
            "count by `matmul` is available."
        )
    if run.traffic_source == "not counted":
        consequence = "the analytical count is used" if run.analytical else "COI is not measured"
        mode = "sharded" if parallel.sharded else parallel.mode
        warnings.append(f"bytes sent are not counted in this mode ({mode}): {consequence}.")
    if run.traffic is not None and parallel.pipeline_degree * parallel.tensor_degree > 1:
        warnings.append("activations that tensor and pipeline ranks send are not counted in COI.")
    if parallel.batch_norm == "synchronized" and parallel.data_degree > 1:
        warnings.append("bytes sent by synchronized batch norm are not counted in COI.")
    warnings += [
        f"{LINK_NAMES[scope]} carry traffic but were not measured: they are not among the roofs."
        for scope in _unmeasured(run.traffic or run.analytical, record)
    ]
    return warnings


def read_record(path: Path) -> RooflineRecord:
    """Read a roofline from disk."""
    if not path.exists():
        raise InputError(
            f"{path}: no such file.",
            path=path,
            remedy=f"Measure a roofline: ai500 roofline --out {path}",
        )
    try:
        return run_folder.read(RooflineRecord, path)
    except SchemaError as error:
        raise InputError(
            f"{path} is not a roofline of this version of ai500: {error}", path=path
        ) from error


def newest_record(folder: Path) -> Path:
    """Return the newest roofline in a folder."""
    files = sorted(folder.glob("*.json"), key=lambda file: file.stat().st_mtime)
    if not files:
        raise EnvironmentLacksError(
            f"{folder}/ has no roofline to place the run under.",
            path=folder,
            remedy="Measure one with `ai500 roofline`, or name it with --ceilings FILE.",
        )
    return files[-1]
