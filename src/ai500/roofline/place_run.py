"""A run under the roofline: what it attains, what it could, what bounds it, what would help.

Points: a member on its own P_degree accelerators, and the ensemble on all. The single-node model
holds for what stays inside a node, the distributed one for what spans nodes (V2 §6.2, §6.3).
Needs no torch for the built-in problem classes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean

from ai500.core.errors import AI500Error, EnvironmentLacksError, InputError
from ai500.core.schema import SchemaError
from ai500.operations.shipped import shipped_operations
from ai500.pipeline import scoring
from ai500.records import Operations, Plan, System, TrainRecord, TrialScore, run_folder
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
    peak_of,
    roof_flops,
)
from ai500.roofline.traffic import Traffic
from ai500.workloads.protocol import load_workload

KERNEL_PRECISION = {
    "fp32": "fp32",
    "tf32": "tf32",
    "mixed-bf16": "bf16",
    "mixed-fp16": "fp16",
    "fp16": "fp16",
    "fp8": "fp8",
    "int8": "int8",
}
"""Precision of training → of the kernels whose ceiling is its own [D10]."""
SCOPES: tuple[Scope, Scope] = ("between_nodes", "inside_node")
LINK_NAMES: dict[Scope, str] = {
    "between_nodes": "links between nodes",
    "inside_node": "links inside a node",
}


@dataclass(frozen=True)
class Run:
    """What placing needs to know of a run."""

    plan: Plan
    score: TrialScore
    system: System
    members: list[TrainRecord]
    traffic: Traffic | None
    """Counted, per step, the mean of the members; None: not counted."""
    analytical: Traffic | None
    bytes: str
    convention: str
    operations_per_step: float
    flops_factor: float
    """From the score's convention to the one used here."""


def place(folder: RunFolder, record: RooflineRecord) -> RunPlacement:
    """The run's points under these ceilings, with warnings about what does not fit."""
    run = read(folder)
    kernel_precision = KERNEL_PRECISION[run.plan.hyperparameters.precision]
    mine = [one for one in ceilings(record) if one.precision == kernel_precision]
    if not mine:
        raise InputError(
            f"the run trained in {run.plan.hyperparameters.precision}, and the roofline has no "
            f"ceiling in {kernel_precision} (decision D10). Measure one: "
            f"ai500 roofline --precision {kernel_precision} --out FILE"
        )
    ceiling = own_ceiling(mine)
    placed = [_placed(run, record, ceiling, what="member")]
    if run.plan.ensemble_size > 1 or run.plan.system_scale > run.plan.parallel_degree:
        placed.append(_placed(run, record, ceiling, what="ensemble"))
    return RunPlacement(
        run=folder.path.name,
        workload=run.plan.workload,
        precision=run.plan.hyperparameters.precision,
        kernel_precision=kernel_precision,
        convention=run.convention,
        score_convention=run.score.convention,
        score_flops=run.score.flops,
        bytes=run.bytes,
        warnings=tuple(_warnings(run, record)),
        placed=tuple(placed),
        ceilings=record,
    )


def own_ceiling(of_precision: Sequence[Ceiling]) -> Ceiling:
    """CONV's: all workloads are mostly convolutions. Where it can't be measured (FP8 and INT8, in
    which convolutions run as matrix products) GEMM's."""
    return next((one for one in of_precision if one.kernel == "conv"), of_precision[0])


def read(folder: RunFolder) -> Run:
    """From the run folder; a run without a finished trial has no point."""
    plan = run_folder.read(Plan, folder.plan)
    score = scoring.score_run(folder)
    shown = score.shown_trial
    trial = folder.trial(shown.trial)
    folders = [trial.member(member) for member in range(plan.ensemble_size)]
    there = [one for one in folders if one.record.exists()]
    members = [run_folder.read(TrainRecord, one.record) for one in there]
    told = [traffic.counted(one, where) for one, where in zip(members, there, strict=True)]
    known = [one for one, _ in told if one is not None]
    theirs = members[0].operations
    matmul = _matmul(plan, theirs)
    used = matmul or theirs
    steps, images = members[0].steps, members[0].images
    return Run(
        plan=plan,
        score=shown,
        system=run_folder.read(System, folder.system),
        members=members,
        traffic=_mean(known) if len(known) == len(told) else None,
        analytical=traffic.analytical(plan, parameters=members[0].parameters),
        bytes=told[0][1],
        convention=used.convention,
        operations_per_step=used.training(images=images, steps=steps) / steps,
        flops_factor=used.training(images=images, steps=steps)
        / theirs.training(images=images, steps=steps),
    )


def _mean(counts: list[Traffic]) -> Traffic:
    return Traffic(
        fmean(one.inside_node for one in counts), fmean(one.between_nodes for one in counts)
    )


def _matmul(plan: Plan, counted: Operations) -> Operations | None:
    """The same model by the `matmul` convention, which counts as ceilings do; None: not to be had.

    The shipped count is of this model if it agrees with what the members counted; else the model
    is traced again, where torch is.
    """
    official = shipped_operations(plan.workload, plan.problem_class, counted.convention)
    known = shipped_operations(plan.workload, plan.problem_class, "matmul")
    if official and known and official.forward_per_image == counted.forward_per_image:
        return known
    try:
        from ai500.operations import count

        workload = load_workload(plan.workload)
        traced = count(
            workload.model(plan.definition),
            (1, *plan.definition.input_shape),
            convention="matmul",
            loss=workload.loss_operator,
        )
    except (ImportError, AI500Error):
        return None
    if traced.parameters != counted.parameters:
        return None
    return traced.per_image


def _placed(run: Run, record: RooflineRecord, ceiling: Ceiling, *, what: str) -> Placed:
    plan, score = run.plan, run.score
    alone = what == "member"
    ranks = plan.parallel_degree if alone else plan.system_scale
    nodes = len(plan.mapping[0].shares) if alone else _nodes_used(plan)
    flops = score.members_flops_sum / len(run.members) if alone else score.flops
    share = _units_per_rank(run, record) * ranks / record.units
    roof = roof_flops(record, ceiling) * share
    standing = Standing(roof, _channels(run, record, ranks=ranks, nodes=nodes))
    peak = peak_of(record, ceiling.precision)
    bound, limit = _bound(run, record, standing)
    return Placed(
        model="single node" if nodes == 1 else "distributed",
        what="member" if alone else "ensemble",
        nodes=nodes,
        ranks=ranks,
        flops=flops * run.flops_factor,
        ceiling=ceiling.name,
        ceiling_flops=standing.ceiling_flops,
        peak_flops=None if peak is None else peak * share,
        links=_placed_links(run, record, ranks=ranks, nodes=nodes),
        attainable_flops=standing.attainable_flops,
        bound=bound,
        limit=limit,
        advice=tuple(
            advise(
                standing,
                attained_flops=flops * run.flops_factor,
                wire_precision=_wire_precision(plan),
                other_ceilings=_other_ceilings(run, record, ceiling, share=share),
                hierarchical=_hierarchical(run, standing),
                sharded=plan.parallel.sharded,
                bound_known=bound != "not known",
            )
        ),
    )


def _bound(run: Run, record: RooflineRecord, standing: Standing) -> tuple[str, str]:
    """Not known where a roof that is not measured may be lower than those that are."""
    if standing.bound == "communication":
        return standing.bound, standing.limit
    sent = run.traffic or run.analytical
    counted = sent is not None or run.plan.parallel_degree == 1
    if not counted or _unmeasured(sent, record):
        return "not known", "not known"
    return standing.bound, standing.limit


def _unmeasured(sent: Traffic | None, record: RooflineRecord) -> list[Scope]:
    """Classes of links that carry traffic, and whose bandwidth nobody measured."""
    return [
        scope
        for scope in SCOPES
        if sent is not None
        and getattr(sent, scope) > 0
        and links.best_all_reduce(record, scope) is None
    ]


def _nodes_used(plan: Plan) -> int:
    return len({share.node for one in plan.mapping for share in one.shares})


def _units_per_rank(run: Run, record: RooflineRecord) -> float:
    """An accelerator is one; on a CPU a rank has as many cores as it had threads [D8]."""
    if record.unit == "accelerator":
        return 1.0
    return float(run.members[0].effective.get("threads", record.units))


def _bandwidth(record: RooflineRecord, scope: Scope, *, ranks: int, nodes: int) -> float | None:
    """Of all links of this class that so many ranks on so many nodes use; None: not measured."""
    best = links.best_all_reduce(record, scope)
    if best is None:
        return None
    senders = nodes * best.groups if scope == "between_nodes" else ranks
    return links.bus_bandwidth(best) * senders


def _channels(run: Run, record: RooflineRecord, *, ranks: int, nodes: int) -> tuple[Channel, ...]:
    """Classes of links over which something is sent, and whose bandwidth is known."""
    sent = run.traffic or run.analytical
    found = []
    for scope in SCOPES:
        traffic_bytes = getattr(sent, scope) if sent is not None else 0.0
        bandwidth = _bandwidth(record, scope, ranks=ranks, nodes=nodes)
        if traffic_bytes and bandwidth is not None:
            intensity = coi(run.operations_per_step, traffic_bytes=traffic_bytes)
            found.append(Channel(LINK_NAMES[scope], bandwidth, intensity))
    return tuple(found)


def _placed_links(
    run: Run, record: RooflineRecord, *, ranks: int, nodes: int
) -> tuple[PlacedLink, ...]:
    found = []
    for scope in SCOPES:
        counted = getattr(run.traffic, scope) if run.traffic is not None else None
        theory = getattr(run.analytical, scope) if run.analytical is not None else None
        if not counted and not theory:
            continue
        found.append(
            PlacedLink(
                scope=scope,
                bytes_per_step=counted,
                analytical_bytes_per_step=theory,
                coi=run.operations_per_step / counted if counted else None,
                analytical_coi=run.operations_per_step / theory if theory else None,
                bytes_per_second=_bandwidth(record, scope, ranks=ranks, nodes=nodes),
            )
        )
    return tuple(found)


def _wire_precision(plan: Plan) -> str | None:
    """Of gradients that compression could make smaller; None: there are none."""
    averages = plan.parallel.data_degree > 1 and not plan.parallel.sharded
    return plan.communication.precision if averages else None


def _other_ceilings(
    run: Run, record: RooflineRecord, ceiling: Ceiling, *, share: float
) -> dict[str, float]:
    """Training precision → roof, of the same kernel: a product says nothing of convolutions."""
    known = {
        one.precision: roof_flops(record, one) * share
        for one in ceilings(record)
        if one.kernel == ceiling.kernel and one.precision != ceiling.precision
    }
    return {
        name: known[kernels]
        for name, kernels in KERNEL_PRECISION.items()
        if kernels in known and name != "fp16"
    }


def _hierarchical(run: Run, standing: Standing) -> Standing | None:
    """Where that mode would stand; None: it is in use, or the member's nodes can't have it."""
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


def _warnings(run: Run, record: RooflineRecord) -> list[str]:
    found = []
    if not record.complete:
        found.append("the roofline is partial: its measurement was interrupted.")
    trained_on, measured_on = run.members[0].device_name, record.device_name
    cpu = run.plan.device == "cpu"
    if cpu:
        trained_on, measured_on = run.system.cpu, record.system.cpu
    if trained_on != measured_on or (cpu and record.unit != "core"):
        found.append(
            f"the roofline is another machine's: it was measured on {measured_on}, the run "
            f"trained on {trained_on}."
        )
    if run.convention != "matmul":
        found.append(
            f"operations are counted by {run.convention}, ceilings 2 for each multiply-add: the "
            "count by `matmul` was not to be had."
        )
    if run.bytes == "not counted":
        how = "the analytical count stands in" if run.analytical else "COI is not measured"
        found.append(f"nobody counts what ranks send in this mode ({_mode(run.plan)}): {how}.")
    parallel = run.plan.parallel
    if run.traffic is not None and parallel.pipeline_degree * parallel.tensor_degree > 1:
        found.append("activations that tensor and pipeline ranks send are not counted in COI.")
    if parallel.batch_norm == "synchronized" and parallel.data_degree > 1:
        found.append("what synchronized batch norm sends is not counted in COI.")
    found += [
        f"{LINK_NAMES[scope]} carry traffic, but the roofline has not measured them: they are not "
        "among the roofs."
        for scope in _unmeasured(run.traffic or run.analytical, record)
    ]
    return found


def _mode(plan: Plan) -> str:
    return "sharded" if plan.parallel.sharded else plan.parallel.mode


def read_record(path: Path) -> RooflineRecord:
    """A roofline from disk, or what is wrong with the file."""
    if not path.exists():
        raise InputError(f"{path}: no such file. Measure a roofline: ai500 roofline --out {path}")
    try:
        return run_folder.read(RooflineRecord, path)
    except SchemaError as error:
        raise InputError(f"{path} is no roofline of this version of ai500: {error}") from error


def newest_record(folder: Path) -> Path:
    """The roofline measured last in a folder."""
    found = sorted(folder.glob("*.json"), key=lambda file: file.stat().st_mtime)
    if not found:
        raise EnvironmentLacksError(
            f"no roofline in {folder}/ to place the run under. Measure one: ai500 roofline, or "
            "name it with --ceilings FILE."
        )
    return found[-1]
