"""Config → Plan: Eq. 5, the mapping, and what it will cost. Needs neither torch nor the data."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from ai500.config import MAX_COUNT, Config, RunConfig
from ai500.core.editions import edition_seed
from ai500.core.errors import ConfigError, setting_error
from ai500.data.open_store import open_store
from ai500.frameworks.protocol import Framework, check_framework
from ai500.frameworks.script import stated_operations
from ai500.inventory import machine as system
from ai500.metrics.equations import apc
from ai500.operations.shipped import shipped_operations
from ai500.parallel import sharing, topology
from ai500.parallel.data_duplicator import staged_bytes
from ai500.parallel.model_parallelism import inside_member, member_degrees
from ai500.parallel.parallelism_controller import (
    Degrees,
    map_members,
    members_by_node,
    share_nodes,
    solve,
)
from ai500.pipeline.custom_class import planned_class
from ai500.pipeline.own_code import own_code
from ai500.pipeline.programs import program_of_class
from ai500.records import (
    OFFICIAL_CONVENTION,
    Cluster,
    Communication,
    FrameworkChoice,
    Hyperparameters,
    MemberMapping,
    Node,
    Operations,
    Plan,
    ProblemClass,
    Slot,
    System,
    precision,
)
from ai500.records.fields import sample_bytes
from ai500.train.choices import check_training
from ai500.train.learning_rate import scaled_peak
from ai500.workloads.protocol import load_workload


def make_plan(config: Config, machine: System, cluster: Cluster | None = None) -> Plan:
    """Plan a run on this machine or cluster; an error says which settings would work."""
    workload = load_workload(config.workload)
    problem_class = _on_own_data(planned_class(config), config)
    program = program_of_class(problem_class)
    device = _device(config, machine, cluster)
    nodes = (
        _nodes(config, machine, device=device)
        if cluster is None
        else _cluster_nodes(config, cluster, device=device)
    )
    degrees = _degrees(
        config, problem_class, nodes, degree=program.parallel_degree(config, problem_class)
    )
    hyper = hyperparameters(config, problem_class.reference_at(degrees.parallel_degree))
    # Members train neither on a planned machine's nor on a login node's accelerator.
    trains_here = cluster is None and config.system.nodes is None
    framework = _framework(config, hyper, device=device, machine=machine if trains_here else None)
    global_batch = hyper.samples_per_step * degrees.parallel_degree
    steps = _steps_per_epoch(problem_class, global_batch=global_batch)
    mapping = map_members(degrees, nodes)
    _check_slurm(config)
    code = own_code(config)
    operations = None if code.model is not None else _operations(config, problem_class)
    parallel = inside_member(
        config,
        degree=degrees.parallel_degree,
        plan=workload.parallel_plan(problem_class),
        batch_size=hyper.batch_size,
    )
    stage = config.data.stage and framework.reads_staged_data
    plan = Plan(
        workload=config.workload,
        problem_class=config.custom_class.name or problem_class.name,
        definition=problem_class,
        edition=config.run.edition,
        seed=_seed(config.run),
        trials=problem_class.required_runs if config.run.trials == "valid" else config.run.trials,
        ensemble_size=degrees.ensemble_size,
        parallel_degree=degrees.parallel_degree,
        system_scale=degrees.system_scale,
        members_per_accelerator=degrees.members_per_accelerator,
        waves=degrees.waves,
        sampler=config.ensemble.sampler,
        parallel=parallel,
        communication=_communication(config, degrees, mapping),
        scheduler=config.scheduler.kind,
        launcher=config.scheduler.launcher,
        device=device,
        cluster=cluster,
        nodes=nodes,
        mapping=mapping,
        hyperparameters=hyper,
        global_batch_size=global_batch,
        learning_rate=scaled_peak(hyper, global_batch_size=global_batch),
        steps_per_epoch=steps,
        stage=stage,
        operations=operations,
        operations_per_trial=None,
        apc=None
        if operations is None
        else apc(
            operations.per_sample, batch_size=global_batch, ensemble_size=degrees.ensemble_size
        ),
        bytes_per_node=_bytes_per_node(
            problem_class,
            mapping,
            nodes,
            is_array=cluster is not None and config.slurm.start == "array",
        )
        if stage
        else {node.name: 0 for node in nodes},
        estimated_seconds=None,
        estimated_node_hours=None,
        estimate_basis="",
        sharing=sharing.decide(
            config.ensemble.sharing,
            workload,
            members_per_accelerator=degrees.members_per_accelerator,
            parallel_degree=degrees.parallel_degree,
            device=device,
            precision=hyper.precision,
            fields=problem_class.fields,
            framework=framework.name,
            own_code=code,
        ),
        framework=_framework_choice(config, operations),
        own_code=code,
    )
    plan = program.complete(plan, config)
    hours = plan.estimated_seconds and plan.estimated_seconds * len(nodes) / 3600
    return dataclasses.replace(plan, estimated_node_hours=hours)


def _on_own_data(problem_class: ProblemClass, config: Config) -> ProblemClass:
    """Adapt the class to the user's own store; the rules compare the store's identity."""
    if config.data.path is None or not load_workload(config.workload).problem_classes:
        return problem_class
    store = open_store(Path(config.data.path))
    adapt = getattr(load_workload(config.workload), "adapt", None)
    if adapt is not None:
        problem_class = adapt(problem_class, store=store)
    counts = {name: split.count for name, split in store.splits.items()}
    problem_class = dataclasses.replace(
        problem_class,
        train_samples=counts.get("train", 0),
        validation_samples=counts.get("validation", 0),
    )
    store.require_fit(problem_class)
    return problem_class


def hyperparameters(config: Config, reference: Hyperparameters) -> Hyperparameters:
    """Apply the user's changes to the reference hyper-parameters."""
    changes = {
        name: value
        for name in (field.name for field in dataclasses.fields(Hyperparameters))
        if (value := getattr(config.train, name, None)) is not None
    }
    return dataclasses.replace(reference, **changes)


def _framework(
    config: Config, hyper: Hyperparameters, *, device: str, machine: System | None
) -> Framework:
    """Return the framework; refuse what it, the optimizer or the machine can't do."""
    check_training(config, hyper)
    framework = check_framework(config, device=device, precision=hyper.precision)
    precision.check(hyper.precision, device_type=device, machine=machine)
    return framework


def _framework_choice(config: Config, operations: Operations | None) -> FrameworkChoice:
    settings = config.framework
    return FrameworkChoice(
        kind=settings.kind,
        command=settings.command,
        python=settings.python,
        folder=settings.folder,
        operations=operations if settings.kind == "script" else None,
    )


def _device(config: Config, machine: System, cluster: Cluster | None) -> str:
    """Return the device type; on a cluster, GRES `gpu` is `cuda` unless configured."""
    if cluster is not None:
        return config.system.device or ("cuda" if cluster.accelerators_per_node else "cpu")
    return config.system.device or machine.accelerator or "cpu"


def _cluster_nodes(config: Config, cluster: Cluster, *, device: str) -> tuple[Node, ...]:
    """Return as many of the cluster's nodes as configured; Slurm decides which ones run."""
    settings = config.system
    if device == "cpu":
        unit = "CPU slots"
        available = cluster.cpus_per_node // (settings.cores_per_slot or 1)
        count = settings.accelerators_per_node or system.default_cpu_slots(
            settings.cores_per_slot, cores=cluster.cpus_per_node
        )
    else:
        unit, available = "accelerators", cluster.accelerators_per_node
        count = settings.accelerators_per_node or available
    if count > available or count == 0:
        raise setting_error(
            "system.accelerators_per_node",
            count,
            f"a node of {cluster.partition!r} has {available} {unit} (device {device!r}).",
            "Set at most that, another system.device, or another slurm.partition.",
        )
    if settings.nodes is not None and settings.nodes > len(cluster.nodes):
        problem = f"partition {cluster.partition!r} has {len(cluster.nodes)} available nodes."
        raise setting_error("system.nodes", settings.nodes, problem, "Set at most that.")
    slots = tuple(Slot(index=i, device=device, cores=()) for i in range(count))
    return tuple(Node(name, slots) for name in cluster.nodes[: settings.nodes])


def _nodes(config: Config, machine: System, *, device: str) -> tuple[Node, ...]:
    """Return the nodes of the system: this machine's own slots, or as many as configured."""
    settings = config.system
    if device == "cpu":
        cores = settings.cores_per_slot or 1
        count = settings.accelerators_per_node or system.default_cpu_slots(settings.cores_per_slot)
        if settings.nodes is None and count * cores > machine.cores:
            raise setting_error(
                "system.accelerators_per_node",
                count,
                f"slots of {cores} cores need {count * cores} cores; here are {machine.cores}.",
                f"Set at most {machine.cores // cores}, or system.nodes to plan another machine.",
            )
        slots = system.cpu_slots(count, cores_per_slot=settings.cores_per_slot)
    else:
        available = len(machine.accelerators) if machine.accelerator == device else 0
        count = settings.accelerators_per_node or available
        if count == 0 or (settings.nodes is None and count > available):
            raise setting_error(
                "system.device",
                device,
                f"{count} accelerators: torch can use {available} on this machine.",
                'Set system.device = "cpu", or set system.nodes and '
                "system.accelerators_per_node to plan for another machine.",
            )
        slots = system.accelerator_slots(device, count)
    if settings.nodes is None:
        return (Node(name=machine.hostname, slots=slots),)
    width = len(str(settings.nodes))
    return tuple(Node(f"node{i:0{width}d}", slots) for i in range(1, settings.nodes + 1))


def _degrees(
    config: Config, problem_class: ProblemClass, nodes: tuple[Node, ...], *, degree: int | None
) -> Degrees:
    """Solve Eq. 5 for the nodes; `degree` is P_degree, None: Eq. 5 decides."""
    degrees = solve(
        ensemble_size=config.ensemble.size,
        parallel_degree=degree,
        system_scale=_system_scale(config, nodes),
        accelerators_per_node=len(nodes[0].slots),
        least_ensemble_size=problem_class.ensemble_size,
        members_per_accelerator=config.ensemble.members_per_accelerator,
    )
    if degrees.ensemble_size >= MAX_COUNT:
        raise setting_error(
            "ensemble.size",
            degrees.ensemble_size,
            f"less than {MAX_COUNT} members can be planned.",
            "Set ensemble.size, or a larger parallel.degree.",
        )
    return degrees


def _check_slurm(config: Config) -> None:
    """Refuse an array on fixed nodes."""
    if config.scheduler.kind != "slurm":
        return
    if config.slurm.start == "array" and config.slurm.pin:
        raise setting_error(
            "slurm.pin",
            True,
            "the members of an array start on the nodes that become free.",
            'Set slurm.start = "gang".',
        )


def _seed(run: RunConfig) -> int:
    """Return the edition's seed, or the user's own [D22]."""
    seed = edition_seed(run.edition)
    if seed is None:
        raise setting_error(
            "run.edition",
            run.edition,
            "not an edition of the list: a year and a month, 2026-11 or later.",
            "Leave it out, or name the edition that the run is to enter.",
        )
    return seed if run.seed is None else run.seed


def _communication(
    config: Config, degrees: Degrees, mapping: tuple[MemberMapping, ...]
) -> Communication:
    """Check the communication between a member's replicas; one replica does not communicate."""
    _, pipeline, tensor = member_degrees(config.parallel, degree=degrees.parallel_degree)
    mode = config.communication.mode
    for shares in {tuple(len(share.slots) for share in mapped.shares) for mapped in mapping}:
        topology.check(mode, ranks_per_replica=pipeline * tensor, ranks_on_nodes=shares)
    return Communication(mode=mode, precision=config.communication.precision)


def _system_scale(config: Config, nodes: tuple[Node, ...]) -> int:
    available = sum(len(node.slots) for node in nodes)
    if available >= 10 * MAX_COUNT:
        problem = f"less than {10 * MAX_COUNT} accelerators can be planned, not {available}."
        raise setting_error("system.nodes", config.system.nodes, problem)
    scale = config.system.scale or available
    if scale > available:
        raise setting_error(
            "system.scale",
            scale,
            f"there are {available} accelerators ({len(nodes)} nodes × {len(nodes[0].slots)}).",
            f"Set at most {available}, or set system.nodes and system.accelerators_per_node.",
        )
    return scale


def _steps_per_epoch(problem_class: ProblemClass, *, global_batch: int) -> int:
    steps = problem_class.train_samples // global_batch
    if steps == 0:
        raise ConfigError(
            f"a step of {global_batch} samples (train.batch_size × parallel.degree × "
            f"train.accumulation) is more than the {problem_class.train_samples} samples of class "
            f"{problem_class.name}.",
            key="train.batch_size",
            value=global_batch,
            remedy="Set a smaller train.batch_size or parallel.degree.",
        )
    return steps


def _operations(config: Config, problem_class: ProblemClass) -> Operations | None:
    """Return the count that ships with the package for a built-in class, or a script's stated one:
    no torch needed."""
    if config.framework.kind == "script":
        return stated_operations(config.framework.operations)
    counted = shipped_operations(config.workload, config.problem_class, OFFICIAL_CONVENTION)
    reference = load_workload(config.workload).problem_classes[config.problem_class]
    if counted is None or reference.classes != problem_class.classes:
        return None
    return counted


def _bytes_per_node(
    problem_class: ProblemClass,
    mapping: tuple[MemberMapping, ...],
    nodes: tuple[Node, ...],
    *,
    is_array: bool,
) -> dict[str, int]:
    """Return the bytes that each node's copy takes: its members' samples, and validation.

    Which members of a job array meet on a node is not known: the copy has the samples of any.
    """
    members = members_by_node(mapping)
    any_member = is_array and share_nodes(mapping)
    return {
        node.name: staged_bytes(
            problem_class.train_samples,
            validation_samples=problem_class.validation_samples,
            sample_bytes=sample_bytes(problem_class.fields),
            members=None if any_member else len(members[node.name]),
        )
        if node.name in members
        else 0
        for node in nodes
    }
