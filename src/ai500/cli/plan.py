"""Before a run: `ai500 init` and `ai500 plan`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ai500 import config as configuration
from ai500.automl.program import SEARCH
from ai500.bagging.program import ENSEMBLE
from ai500.cli.arguments import AsJson
from ai500.cli.options import ConfigOptions, with_options
from ai500.cli.terminal import Row, console, print_json, rows
from ai500.config import Config
from ai500.core import schema
from ai500.core.atomic import write_text
from ai500.core.editions import edition_seed
from ai500.core.errors import InputError
from ai500.core.units import human_bytes, human_seconds, human_si, ranges
from ai500.jobs.trial_jobs import conflicts, preview, refusal
from ai500.parallel.sharing import describe_sharing
from ai500.pipeline import prospects
from ai500.pipeline import stages as pipeline
from ai500.pipeline.disk_use import DiskUse, disk_use, lacking
from ai500.pipeline.programs import program_of
from ai500.projection.planned_time import projected_time
from ai500.records import Cluster, MemberMapping, Plan, Search
from ai500.records.run_folder import RunFolder
from ai500.report.formats import counted, known
from ai500.workloads.protocol import sample_noun

MEMBERS_SHOWN = 16
NODES_SHOWN = 8


def init(
    path: Annotated[Path, typer.Argument(help="File to write.")] = Path("ai500.toml"),
    force: Annotated[bool, typer.Option("--force", help="Overwrite an existing file.")] = False,
) -> None:
    """Write ai500.toml with every key, its meaning and its default.

    Example: ai500 init && ai500 plan
    """
    if path.exists() and not force:
        raise InputError(
            f"{path} exists.",
            path=path,
            remedy="Use --force to overwrite it, or name another file.",
        )
    write_text(path, configuration.template())
    print(f"wrote {path}; `ai500 plan` shows its effect on this machine")


@with_options()
def plan(
    selected: ConfigOptions,
    measured: Annotated[
        Path | None,
        typer.Option("--measured", help="Finished run of one node: projects the time from it."),
    ] = None,
    network: Annotated[
        str | None,
        typer.Option("--network", help="System of `ai500 project` whose network the nodes have."),
    ] = None,
    activations: Annotated[
        Path | None,
        typer.Option("--activations", help="For a divided model: run that divided its model so."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show the plan of a run: members, mapping, operations, time.

    Starts nothing and needs no torch. With --measured and --network the time is projected from a
    run of the same workload and class on one node (docs/projection.md).

    Example: ai500 plan --class full --set system.nodes=8
    """
    config = selected.load()
    config, made = planned(config)
    if measured is not None or network is not None:
        made = projected_time(made, measured, network, activations)
    folder = RunFolder(Path("runs") / "RUN")
    scripts = preview(folder, config, made)
    problems = [*conflicts(config, made), *refusal(made, scripts)]
    uses = disk_use(config, made, folder.path)
    if as_json:
        more = {
            "scripts": dict(scripts),
            "obstacles": schema.encode(prospects.obstacles(made)),
            "disk": uses,
            "conflicts": problems,
        }
        print_json({**schema.encode(made), **more})
        return
    show_prospects(made)
    show_plan(made)
    if problems:
        rows("Cannot run as planned", [(str(n), text) for n, text in enumerate(problems, 1)])
    rows("Disk of the run", [(use.content, _disk(use)) for use in uses])
    for sentence in lacking(uses):
        console.print(f"warning: {sentence}", markup=False)
    for name, text in scripts:
        console.print(
            f"Script: {name} (trial 1, run folder {folder.path})", style="bold", markup=False
        )
        print(text)


def planned(config: Config) -> tuple[Config, Plan]:
    """Plan a configuration; `--runs valid` chooses a layout of one wave where it can."""
    _, made = pipeline.survey_and_plan(config)
    return prospects.with_one_wave(config, made) if config.run.trials == "valid" else (config, made)


def show_prospects(plan: Plan) -> None:
    """Say first whether the result can be valid, and what to change."""
    obstacles = prospects.obstacles(plan)
    if not obstacles:
        console.print("This run can be a valid result.", style="bold green")
        return
    reasons = counted(len(obstacles), "reason")
    rows(
        f"This run cannot be a valid result ({reasons})",
        [(each.rule, f"{each.message}. {each.remedy}") for each in obstacles],
    )


def _steps(plan: Plan) -> tuple[str, str]:
    epochs = plan.hyperparameters.epochs
    return "steps", f"{epochs} epochs of {plan.steps_per_epoch} steps per member"


def _search(plan: Plan) -> tuple[str, str]:
    epochs, search = plan.hyperparameters.epochs, plan.search
    assert isinstance(search, Search)
    return "search", (
        f"{search.minutes:g} min per member: models of at most {epochs} epochs, TPE from round "
        f"{search.warmup_rounds + 1}, at most {search.max_growth:g} times the initial model's "
        "operations"
    )


WORK = {ENSEMBLE.name: _steps, SEARCH.name: _search}


def _operations(plan: Plan) -> str:
    count = plan.operations
    if count is None and plan.framework.kind == "script":
        return "not measured: framework.operations is not set"
    if count is None:
        return "counted when the run traces the model"
    noun = sample_noun(plan.workload)
    per_sample = f"{human_si(count.per_sample)}FLOP per {noun}"
    if plan.operations_per_trial is None:
        return f"{per_sample} of the initial model"
    return f"{human_si(plan.operations_per_trial)}FLOP per trial, {per_sample}"


def _convention(plan: Plan) -> str:
    return "" if plan.operations is None else f"convention {plan.operations.convention}"


def _seeds(plan: Plan) -> str:
    """Say where the seeds come from [D22]."""
    if plan.seed == edition_seed(plan.edition):
        return f"seeds of edition {plan.edition}"
    return f"your own seed {plan.seed}: no entry of the list"


def _own_code(plan: Plan) -> list[Row]:
    """List the parts of the user's own, which only the free level allows."""
    parts = [f"{part} {getattr(plan.own_code, part)}" for part in plan.own_code.parts]
    return [("your own", f"{', '.join(parts)}: free level only")] if parts else []


def show_plan(plan: Plan) -> None:
    """Print the plan as tables within 80 columns; `-v` adds equations, decisions, conventions."""
    sharing = plan.members_per_accelerator
    unit = "CPU slot" if plan.device == "cpu" else "accelerator"
    layout = (
        f"{counted(plan.ensemble_size, program_of(plan).member_noun)} × "
        f"{counted(plan.parallel_degree, unit)} of {plan.system_scale:,}, "
        f"{'one wave' if plan.waves == 1 else f'{plan.waves} waves'}"
        + (f", {sharing} share each" if sharing > 1 else "")
    )
    equation = (
        f"V3 Eq. 5: Sys_scale {plan.system_scale} = M {plan.ensemble_size} × "
        f"P_degree {plan.parallel_degree}"
        + (f" / {sharing} (D11)" if sharing > 1 else "")
        + (f", in {plan.waves} waves (D13)" if plan.waves > 1 else "")
    )
    seconds = plan.estimated_seconds
    nodes = counted(len(plan.nodes), "node")
    table: list[Row] = [
        *_custom_class(plan),
        *_own_code(plan),
        ("layout", layout, equation),
        ("device", f"{plan.device}, {nodes}, scheduler {plan.scheduler}"),
        *([] if plan.cluster is None else [("cluster", _cluster(plan, plan.cluster))]),
        *([] if plan.framework.kind in ("pytorch", "script") else [_framework(plan)]),
        ("parallel", _parallel(plan)),
        *([("sharing", describe_sharing(plan.sharing, sharing))] if sharing > 1 else []),
        ("batch", _batch(plan)),
        *(_script(plan) if plan.framework.kind == "script" else _training(plan)),
        WORK[program_of(plan).name](plan),
        ("operations", _operations(plan), _convention(plan)),
        (
            "per step",
            known(plan.apc, lambda count: f"{human_si(count)}FLOP", "not counted"),
            "APC, V3 Eq. 4",
        ),
        ("trials", f"{plan.trials}, {_seeds(plan)}", "D3, D22"),
        ("time", plan.estimate_basis if seconds is None else _time(plan, seconds)),
    ]
    rows(f"Plan: {plan.workload}, class {plan.problem_class}", table)
    places = [(f"member {place.member}", _place(place)) for place in plan.mapping]
    rows("Job → node mapping", places, most=MEMBERS_SHOWN)
    rows("Data per node", _data(plan), most=NODES_SHOWN)


def _data(plan: Plan) -> list[Row]:
    """List the nodes' copies; nodes that hold equally much are one row."""
    text = "to the node's scratch" if plan.stage else "not staged: read from the shared store"
    nodes: dict[int, list[str]] = {}
    for node, size in plan.bytes_per_node.items():
        nodes.setdefault(size, []).append(node)
    return [
        (
            names[0] if len(names) == 1 else f"{names[0]} … {names[-1]}",
            ("" if len(names) == 1 else f"{len(names):,} nodes × ") + f"{human_bytes(size)} {text}",
        )
        for size, names in nodes.items()
    ]


def _disk(use: DiskUse) -> str:
    size = f"not known: {use.reason}" if use.bytes is None else f"at most {human_bytes(use.bytes)}"
    where = f"in {use.folder}"
    if use.file_system is not None and use.free_bytes is not None:
        where += f" (on {use.file_system}, {human_bytes(use.free_bytes)} free)"
    return f"{size}, {use.kept}, {where}"


def _place(place: MemberMapping) -> str:
    shares = [
        f"{share.node} {'slot' if len(share.slots) == 1 else 'slots'} {ranges(share.slots)}"
        for share in place.shares
    ]
    return f"wave {place.wave + 1}: {', '.join(shares)}"


def _custom_class(plan: Plan) -> list[Row]:
    """Label a class of the user's own."""
    definition = plan.definition
    if definition.custom is None:
        return []
    after = f" after {definition.custom.base}" if definition.custom.base else ""
    return [
        (
            "class",
            f"your own{after}: target {definition.target_quality:g}, n = "
            f"{definition.penalty_exponent}; comparable with no registered class, never an entry",
        )
    ]


def _training(plan: Plan) -> list[Row]:
    """Describe how ai500's worker trains a member."""
    hyper = plan.hyperparameters
    return [
        ("learning rate", _learning_rate(plan)),
        ("optimizer", f"{hyper.optimizer}, weight decay {hyper.weight_decay:g} on everything"),
        ("precision", hyper.precision),
        ("communication", _communication(plan)),
    ]


def _framework(plan: Plan) -> tuple[str, str]:
    """Name a framework other than the reference, and its interpreter."""
    return ("framework", f"{plan.framework.kind}, {plan.framework.python or 'this interpreter'}")


def _script(plan: Plan) -> list[Row]:
    """Describe how a script trains a member."""
    return [("script", f"{' '.join(plan.framework.command)}, in {plan.framework.folder}")]


def _cluster(plan: Plan, cluster: Cluster) -> str:
    software = f"Slurm {cluster.version}" if plan.scheduler == "slurm" else cluster.version
    unusable = f", {len(cluster.unusable)} more not usable" if cluster.unusable else ""
    first = next(iter(cluster.unusable.items()), None)
    return (
        f"{cluster.name} ({software}, accounting "
        f"{'present' if cluster.accounting else 'absent'}), partition {cluster.partition}: "
        f"{len(cluster.nodes)} nodes of "
        f"{cluster.cpus_per_node} CPUs and {cluster.accelerators_per_node} accelerators{unusable}"
        + (f" ({first[0]}: {first[1]})" if first else "")
    )


def _batch(plan: Plan) -> str:
    """Describe the effective batch of one optimizer step."""
    hyper = plan.hyperparameters
    product = f"{hyper.batch_size} per accelerator × {plan.parallel_degree}"
    if hyper.accumulation > 1:
        product += f" × accumulation {hyper.accumulation}"
    return f"effective batch {plan.global_batch_size} = {product}"


def _parallel(plan: Plan) -> str:
    """Describe how a member divides its accelerators."""
    parallel = plan.parallel
    if parallel.mode == "data":
        text = "data" + (", sharded" if parallel.sharded else "")
    else:
        text = (
            f"{parallel.mode}: data {parallel.data_degree} × pipeline {parallel.pipeline_degree} × "
            f"tensor {parallel.tensor_degree}"
        )
    if parallel.pipeline_degree > 1:
        text += f", {parallel.pipeline_schedule} of {parallel.microbatches} micro-batches"
    return text + (", batch norm synchronized" if parallel.batch_norm == "synchronized" else "")


def _communication(plan: Plan) -> str:
    """Describe how gradients are averaged over replicas, if there are several."""
    communication, replicas = plan.communication, plan.parallel.data_degree
    if replicas == 1:
        return "none: one replica per member"
    if plan.parallel.sharded:
        return f"reduce-scatter and all-gather of FSDP2 over {replicas} ranks"
    return (
        f"{communication.mode} of gradients in {communication.precision} over {replicas} replicas"
    )


def _learning_rate(plan: Plan) -> str:
    """Describe linear scaling, warm-up and decay."""
    hyper = plan.hyperparameters
    epochs = ", ".join(map(str, hyper.decay_epochs))
    steps = f" after epochs {epochs}" if hyper.schedule == "step" else ""
    return (
        f"{hyper.base_learning_rate:g} × {plan.global_batch_size}/{hyper.reference_batch_size} = "
        f"{plan.learning_rate:.4g} after {hyper.warmup_epochs:g} "
        f"epoch{'' if hyper.warmup_epochs == 1 else 's'} of warm-up, then "
        f"{hyper.schedule}{steps}"
    )


def _time(plan: Plan, seconds: float) -> str:
    hours = plan.estimated_node_hours or 0.0
    return f"about {human_seconds(seconds)}, {hours:.2g} node-hours ({plan.estimate_basis})"
