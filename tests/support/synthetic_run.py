"""A complete run folder from known numbers, without training anything.

Records and events are written as the stages write them; scores and findings come from the real
equations and rules, so that they agree with the events. Two members differ only by their number.
"""

from __future__ import annotations

import dataclasses
import math
import random
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from ai500.bagging.data_sampler import SAMPLERS, bootstrap_header
from ai500.bagging.program import score_trial
from ai500.core import editions, events, schema
from ai500.core.randomness import Stream, derive
from ai500.core.source import Checkout
from ai500.inventory.description import NodeDescription, Processors, Software, State
from ai500.inventory.peaks import MOST_CORES
from ai500.metrics.trials import mean_of_trials
from ai500.operations.shipped import shipped_model, shipped_operations
from ai500.parallel.parallelism_controller import Degrees, map_members
from ai500.records import (
    BootstrapRecord,
    Communication,
    EnsembleResult,
    Hyperparameters,
    JobRecord,
    Node,
    Operations,
    Parallelism,
    Placement,
    Plan,
    ProblemClass,
    Score,
    Slot,
    System,
    TrainRecord,
    TrialRecord,
    run_folder,
)
from ai500.records.fields import image_fields
from ai500.records.findings import Judgement
from ai500.records.run_folder import RunFolder
from ai500.rules.evidence import evidence_of
from ai500.rules.facts import OPTIMIZER_CLASSES, ensemble_facts
from ai500.rules.judgement import judge
from ai500.rules.registry import ENSEMBLE_RULES
from ai500.workloads.protocol import load_workload

OPERATIONS = Operations("aiperf", 14_000_000, 27_000_000, 155_000, 78_000)
CLASS = ProblemClass(
    name="smoke",
    ensemble_size=2,
    target_quality=0.8,
    penalty_exponent=5,
    required_runs=3,
    input_shape=(3, 24, 24),
    fields=image_fields(24, 24, classes=10),
    classes=10,
    train_samples=4032,
    validation_samples=1000,
    out_of_bag_samples=4032,
    reference=Hyperparameters(
        epochs=10,
        batch_size=32,
        optimizer="sgd",
        base_learning_rate=0.2,
        reference_batch_size=256,
        schedule="cosine",
        warmup_epochs=1,
        momentum=0.9,
        weight_decay=5e-4,
    ),
)
"""Numbers of its own, so that a class may change without a test that is not about it."""
EPOCH_SECONDS = 2.0
START_UP_SECONDS = 3.0
# A machine of the future, fast enough for the largest class in a few seconds.
CORE_FLOPS = 1e12
BOOT = "00000000-0000-0000-0000-000000000000"
BEGAN = 1_790_000_000.0


@dataclass(frozen=True)
class Shape:
    """The kind of run to write."""

    members: int = 4
    degree: int = 1
    nodes: int = 1
    slots: int = 2
    members_per_accelerator: int = 1
    trials: int = 1
    epochs: int = 10
    failed: frozenset[int] = frozenset()
    """Members that stop after three epochs, in every trial."""
    resumed: frozenset[int] = frozenset()
    """Members that are interrupted after three epochs and go on in a second attempt."""
    host: str = "host"
    config: str = 'workload = "image_classification"\nproblem_class = "smoke"\n'
    batch_size: int = 32
    workload: str = "image_classification"
    definition: ProblemClass = CLASS
    operations: Operations = OPERATIONS
    graph_sha256: str = "0" * 64
    edition: str = editions.CURRENT
    seed: int | None = None
    """Seed of one's own; None: the edition's."""
    cores: int = 2
    """Cores of each node."""
    epoch_seconds: float | None = None
    """Seconds of an epoch; None: EPOCH_SECONDS."""
    noise: float = 0.0
    """Standard deviation of the epochs' times, relative; another value draws other times."""
    hosts: int = 1
    """Hosts on which the members ran, in turn; of several, each member compares its clock."""

    @property
    def seconds(self) -> float:
        """Seconds of an epoch."""
        return self.epoch_seconds or EPOCH_SECONDS

    def host_of(self, member: int) -> str:
        """Return the host on which a member ran."""
        return self.host if self.hosts == 1 else f"{self.host}{1 + member % self.hosts}"


def write_synthetic_run(path: Path, shape: Shape) -> RunFolder:
    """The folder as `ai500 run` leaves it, without the report."""
    with RunFolder.creating(
        path, version="0.0", source_sha256="0" * 64, checkout=Checkout("c" * 40, dirty=False)
    ):
        run = RunFolder(path)
    plan = make_plan(shape)
    run_folder.write(run.plan, plan)
    run_folder.write(run.system, make_system(shape))
    run.config.write_text(shape.config, encoding="utf-8")
    for trial in range(1, shape.trials + 1):
        _write_trial(run, shape, plan, trial)
    recorded = list(events.read(run.events))
    trials = [score_trial(plan, recorded, trial=number) for number in range(1, shape.trials + 1)]
    score = mean_of_trials(trials, required_runs=plan.definition.required_runs)
    run_folder.write(run.score, score)
    judgement = _judgement(run, plan, score)
    run_folder.write(run.findings, judgement.findings)
    run_folder.write(run.judgement, judgement)
    return run


def official_shape(
    workload: str = "image_classification", name: str = "smoke", *, trials: int | None = None
) -> Shape:
    """A run of a registered class that no rule objects to."""
    definition = load_workload(workload).problem_classes[name]
    counted = shipped_operations(workload, name)
    model = shipped_model(workload, name)
    assert counted is not None
    assert model is not None
    epoch = definition.ensemble_size * definition.train_samples * counted.per_sample
    seconds = max(EPOCH_SECONDS, epoch / MOST_CORES / CORE_FLOPS)
    return Shape(
        cores=min(MOST_CORES, max(2, math.ceil(epoch / seconds / CORE_FLOPS))),
        epoch_seconds=seconds,
        config=f'workload = "{workload}"\nproblem_class = "{name}"\n',
        workload=workload,
        members=definition.ensemble_size,
        slots=definition.ensemble_size,
        trials=trials or definition.required_runs,
        epochs=definition.reference.epochs,
        batch_size=definition.reference_at(1).batch_size,
        definition=definition,
        operations=counted,
        graph_sha256=model.graph_sha256,
    )


def make_system(shape: Shape) -> System:
    """A small machine without accelerators."""
    return System(
        hostname=shape.host,
        operating_system="Synthetic Linux 1",
        kernel="6.0",
        python="3.11.0",
        cpu="Synthetic CPU",
        cores=shape.cores,
        memory_bytes=None,
        accelerator=None,
        accelerators=(),
        libraries={"torch": None},
    )


def describe_node(
    hostname: str, *, before: float, after: float | None, cores: int = 2
) -> NodeDescription:
    """Describe a small node without accelerators as its worker does."""
    return NodeDescription(
        hostname=hostname,
        machine=None,
        virtual=None,
        processors=Processors(
            model="Synthetic CPU",
            cores=cores,
            threads=cores,
            highest_hertz=5e9,
            instructions=("avx512f", "fma"),
        ),
        memory_bytes=None,
        accelerators=(),
        accelerator_links=(),
        disks=(),
        interfaces=(),
        software=Software(),
        before=State(before),
        after=None if after is None else State(after),
    )


def make_plan(shape: Shape) -> Plan:
    """The plan of `CLASS` on the shape's machine."""
    definition = shape.definition
    hyper = dataclasses.replace(
        definition.reference, epochs=shape.epochs, batch_size=shape.batch_size
    )
    width = len(str(shape.nodes))
    names = [f"{shape.host}{i:0{width}d}" for i in range(1, shape.nodes + 1)]
    slots = tuple(Slot(i, "cpu", (i,)) for i in range(shape.slots))
    nodes = tuple(Node(n, slots) for n in (names if shape.nodes > 1 else [shape.host]))
    degrees = Degrees(
        shape.members, shape.degree, shape.nodes * shape.slots, shape.members_per_accelerator
    )
    batch = shape.batch_size * shape.degree
    return Plan(
        workload=shape.workload,
        problem_class=definition.name,
        definition=definition,
        edition=shape.edition,
        seed=shape.seed or editions.edition_seed(shape.edition) or 0,
        trials=shape.trials,
        ensemble_size=shape.members,
        parallel_degree=shape.degree,
        system_scale=degrees.system_scale,
        members_per_accelerator=shape.members_per_accelerator,
        waves=degrees.waves,
        sampler="bootstrap",
        parallel=Parallelism(mode="data", data_degree=shape.degree),
        communication=Communication(),
        scheduler="local",
        launcher="bare",
        device="cpu",
        cluster=None,
        nodes=nodes,
        mapping=map_members(degrees, nodes),
        hyperparameters=hyper,
        global_batch_size=batch,
        learning_rate=hyper.base_learning_rate * batch / hyper.reference_batch_size,
        steps_per_epoch=definition.train_samples // batch,
        stage=True,
        operations=shape.operations,
        operations_per_trial=None,
        apc=None,
        bytes_per_node={node.name: 1_000_000 for node in nodes},
        estimated_seconds=None,
        estimated_node_hours=None,
        estimate_basis="not estimated",
    )


def quality(member: int, epoch: int, trial: int) -> float:
    """A saturating curve; no two members' are equal."""
    final = 0.70 + 0.02 * math.sin(member + trial)
    return final * (1 - math.exp(-epoch / 2.5))


def _evaluated(plan: Plan, shape: Shape) -> list[int]:
    """Epochs after which a member is evaluated."""
    every = plan.hyperparameters.evaluate_every_epochs
    epochs = range(1, shape.epochs + 1)
    return [epoch for epoch in epochs if epoch % every == 0 or epoch == shape.epochs]


def loss(member: int, epoch: int, trial: int = 1) -> float:
    """A falling curve."""
    return 2.3 * math.exp(-epoch / 4) + 0.1 + 0.03 * math.sin(member) + 1e-6 * (trial - 1)


def _write_trial(run: RunFolder, shape: Shape, plan: Plan, trial: int) -> None:
    folder = run.trial(trial)
    began = BEGAN + 10_000.0 * trial
    recorded: list[events.Event] = [
        _event("trial_start", began, shape, trial=trial, seed=_seed(plan, trial))
    ]
    finished = [m for m in range(shape.members) if m not in shape.failed]
    for placement in plan.mapping:
        wave_seconds = START_UP_SECONDS + shape.epochs * shape.seconds * 1.2
        start = began + placement.wave * wave_seconds + 0.01 * placement.member / shape.members
        member = placement.member
        written = _member_events(shape, plan, trial=trial, member=member, start=start)
        recorded += written
        run_folder.write(
            folder.node_description(shape.host_of(member), member),
            describe_node(
                shape.host_of(member), before=start, cores=shape.cores,
                after=None if member in shape.failed else written[-1]["wall"],
            ),
        )  # fmt: skip
    qualities = [quality(m, shape.epochs, trial) for m in finished]
    result = EnsembleResult(
        complete=not shape.failed,
        members=tuple(finished),
        missing=tuple(sorted(shape.failed)),
        member_qualities=tuple(qualities),
        members_mean_quality=fmean(qualities),
        ensemble_quality=fmean(qualities) + 0.12,
        out_of_bag_quality=None,
        out_of_bag_samples=0,
    )
    recorded.append(
        _event("aggregate", began + 9_000, shape, trial=trial, result=schema.encode(result))
    )
    events.append(run.events, recorded)
    run_folder.write(folder.ensemble, result)
    sha256 = plan.definition.store_sha256 or "0" * 64
    run_folder.write(folder.trial, TrialRecord(trial, _seed(plan, trial), sha256))
    run_folder.write(folder.bootstraps, [_bootstrap(plan, m, trial) for m in range(shape.members)])
    run_folder.write(folder.placement, [_placement(plan.definition, node) for node in plan.nodes])
    run_folder.write(
        folder.jobs,
        [
            JobRecord(
                m,
                f"job-{m}-{1 + (m in shape.resumed)}",
                1 + (m in shape.resumed),
                "failed" if m in shape.failed else "done",
            )
            for m in range(shape.members)
        ],
    )
    for member in finished:
        run_folder.write(folder.member(member).record, _record(shape, plan, member, trial))


def _member_events(
    shape: Shape, plan: Plan, *, trial: int, member: int, start: float
) -> list[events.Event]:
    """Return the events of the controller and the member, in order."""
    recorded: list[events.Event] = []
    now, attempt = start, 1

    def record(kind: str, **fields: object) -> None:
        event = _event(kind, now, shape, trial=trial, member=member, attempt=attempt, **fields)
        recorded.append(event | {"host": shape.host_of(member)})

    def submit() -> None:
        nonlocal now
        record("job_submitted", job=f"job-{member}-{attempt}")
        recorded.append(
            _event("job_started", now, shape, trial=trial, member=member,
                   job=f"job-{member}-{attempt}")
        )  # fmt: skip
        now += START_UP_SECONDS

    def compare_clocks() -> None:
        if shape.hosts > 1:
            record("clock", reference=shape.host, offset_seconds=1e-4, uncertainty_seconds=1e-5)

    submit()
    compare_clocks()
    record("first_batch", optimizer_sha256="0" * 64)
    images = plan.steps_per_epoch * plan.global_batch_size
    for epoch in range(1, shape.epochs + 1):
        now += shape.seconds * (1 + 0.1 * math.sin(member)) + 1e-5 * (trial - 1) * epoch
        draw = random.Random(f"{shape.noise} {trial} {member} {epoch}")
        now += shape.seconds * draw.gauss(0.0, shape.noise)
        record("epoch", epoch=epoch, samples=images, steps=plan.steps_per_epoch,
             loss=loss(member, epoch, trial), learning_rate=0.1,
             optimizer_sha256="0" * 64)  # fmt: skip
        if epoch in _evaluated(plan, shape):
            record("quality", epoch=epoch, quality=quality(member, epoch, trial),
                 samples=plan.definition.validation_samples)  # fmt: skip
        if epoch == 3 and member in shape.failed:
            return recorded
        if epoch == 3 and member in shape.resumed:
            record("interrupted", epoch=epoch, step=0)
            attempt = 2
            submit()
            record("resumed", epoch=epoch, step=0)
    record("end", epoch=shape.epochs)
    compare_clocks()
    record("operations", **schema.encode(shape.operations))
    return recorded


def _event(kind: str, now: float, shape: Shape, **fields: object) -> events.Event:
    return {"event": kind, "wall": now, "monotonic": now - BEGAN, "host": shape.host,
            "boot": BOOT, "sequence": 0, **fields}  # fmt: skip


def _seed(plan: Plan, trial: int) -> int:
    return derive(plan.seed, Stream.TRIAL, trial)


def _bootstrap(plan: Plan, member: int, trial: int) -> BootstrapRecord:
    samples = plan.definition.train_samples
    drawn = bootstrap_header(
        SAMPLERS[plan.sampler], samples, seed=_seed(plan, trial), member=member
    )
    return BootstrapRecord(member, "", samples, drawn.drawn, drawn.distinct, drawn.sha256)


def _placement(definition: ProblemClass, node: Node) -> Placement:
    identity = definition.store_sha256 or "0" * 64
    return Placement(node.name, "/store", identity, "/scratch", 5000, 10_000_000, 0.5)


def _record(shape: Shape, plan: Plan, member: int, trial: int) -> TrainRecord:
    steps = plan.steps_per_epoch * shape.epochs
    return TrainRecord(
        member=member,
        parameters=shape.operations.parameters,
        samples=steps * plan.global_batch_size,
        steps=steps,
        epochs=shape.epochs,
        world_size=shape.degree,
        device="cpu",
        device_name="x86_64",
        quality=quality(member, shape.epochs, trial),
        weights_sha256=f"{1000 * trial + member:064x}",
        validation_sha256=f"{10**9 + 1000 * trial + member:064x}",
        operations=shape.operations,
        effective=what_ran(plan, shape, member, trial),
        versions={"ai500": "0.0", "source": "0" * 64, "torch": "2.0"},
    )


def what_ran(plan: Plan, shape: Shape, member: int, trial: int) -> dict[str, Any]:
    """Return the record of a member that followed its task."""
    hyper, parameters = plan.hyperparameters, shape.operations.parameters
    kinds = {"batch norm bias": 9, "batch norm weight": 9, "convolution weight": 11}
    group = {
        "weight_decay": hyper.weight_decay, "momentum": hyper.momentum, "parameters": 29,
        "elements": parameters, "kinds": kinds,
    }  # fmt: skip
    communication = {"mode": "all_reduce", "precision": "fp32"} if shape.degree > 1 else {}
    definition = plan.definition
    return {
        "optimizer": "SGD",
        "optimizer_class": OPTIMIZER_CLASSES[hyper.optimizer],
        "batch_size": hyper.batch_size,
        "global_batch_size": plan.global_batch_size,
        "groups": [group],
        "hyperparameters": schema.encode(hyper),
        "learning_rate": {"policy": "ai500.train.learning_rate.cosine", "source": None},
        "evaluation_epochs": _evaluated(plan, shape),
        "model": {"graph_sha256": shape.graph_sha256, "parameters": parameters},
        "framework": {"name": "pytorch", "version": "2.0"},
        "communication": {"backend": None, "version": None},
        "parallel": {
            "mode": "data", "sharded": False, "data_degree": shape.degree, "pipeline_degree": 1,
            "tensor_degree": 1, "batch_norm": "replica", "communication": communication,
        },
        "numerics": {"precision": "fp32", "products": "IEEE FP32"},
        "data": {
            "store_sha256": definition.store_sha256 or "0" * 64,
            "samples": {
                "train": definition.train_samples,
                "validation": definition.validation_samples,
            },
        },
        "seeds": {"trial": trial, "seed": _seed(plan, trial)},
    }  # fmt: skip


def _judgement(run: RunFolder, plan: Plan, score: Score) -> Judgement:
    """Plan by the class that the shape names, registered or not."""
    evidence = evidence_of(
        run,
        plan=plan,
        score=score,
        events=list(events.read(run.events)),
        read_facts=ensemble_facts,
    )
    if plan.definition != evidence.reference:
        evidence = dataclasses.replace(evidence, reference=plan.definition, model=None)
    return judge(evidence, rules=ENSEMBLE_RULES)
