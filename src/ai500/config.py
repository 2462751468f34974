"""User Configuration: one TOML file, every key documented where it is declared.

A value left out is derived from the problem class and the machine; `ai500 plan` shows the result.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from dataclasses import Field, dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import Any, Literal

from ai500.core import plugins
from ai500.core.errors import ConfigError
from ai500.core.schema import SchemaError, decode, nearest, option
from ai500.records import precision

MOST = 200_000
"""No machine has as many nodes; a slip of three digits shall not make a plan for hours."""


@dataclass(frozen=True, slots=True)
class RunConfig:
    """How often, and from which seed."""

    trials: int | Literal["valid"] = option(
        1,
        "full trials in turn, each with its own seed; 'valid': the least runs of the class",
        minimum=1,
        less_than=MOST,
    )
    seed: int = option(1, "every random draw of the run is derived from it", minimum=0)
    meter_seconds: float = option(
        1.0,
        "between two samples of power, load and traffic on each node; 0: no meters",
        minimum=0,
        less_than=30,
    )


@dataclass(frozen=True, slots=True)
class EnsembleConfig:
    """Bagging: how many base models, on which bootstraps."""

    size: int | None = option(
        None,
        "M of V3 Eq. 4; left out: Sys_scale / P_degree, at least the class's own",
        minimum=1,
        less_than=MOST,
    )
    members_per_accelerator: int = option(
        1,
        "members that share one accelerator (decision D11); M = k × Sys_scale / P_degree",
        minimum=1,
        less_than=1000,
    )
    sharing: Literal["auto", "process", "processes"] = option(
        "auto", "how they do it: one process for them all, one each; auto: the first where it can"
    )
    sampler: str = option("bootstrap", "how a member's samples are drawn: bootstrap, poisson")


@dataclass(frozen=True, slots=True)
class ParallelConfig:
    """Inside one member."""

    degree: int | None = option(
        None, "P_degree: accelerators per member; left out: those of one node", minimum=1
    )
    mode: str = option("data", "how a member uses them: data, tensor, pipeline, mixed")
    sharded: bool = option(
        False, "with data: weights, gradients and optimizer state are shared out too (FSDP2)"
    )
    data_degree: int | None = option(
        None, "with mixed: replicas; data × pipeline × tensor = P_degree", minimum=1
    )
    pipeline_degree: int | None = option(None, "with mixed: stages of a pipeline", minimum=1)
    tensor_degree: int | None = option(None, "with mixed: ranks that share each layer", minimum=1)
    pipeline_schedule: Literal["1f1b", "gpipe"] | None = option(
        None, "order of the micro-batches of a pipeline; left out: 1f1b"
    )
    microbatches: int | None = option(
        None, "parts of a batch in a pipeline; left out: one for each stage", minimum=1
    )
    batch_norm: Literal["replica", "synchronized"] = option(
        "replica", "statistics of each replica's batch (as the papers), or of the whole batch"
    )


@dataclass(frozen=True, slots=True)
class CommunicationConfig:
    """How the replicas of a member average their gradients; no effect with one replica."""

    mode: str = option(
        "all_reduce", "all_reduce, hierarchical (by node) or torus_2d (a grid of at least 2 × 2)"
    )
    precision: Literal["fp32", "fp16", "bf16", "int8"] = option(
        "fp32", "of what is sent: fp32 (as it is), fp16, bf16 or int8 (with error feedback)"
    )


@dataclass(frozen=True, slots=True)
class SystemConfig:
    """The machine. What is left out is read from it."""

    device: str | None = option(None, "torch's device type: cpu, cuda, xpu, …")
    nodes: int | None = option(None, "number of nodes", minimum=1, less_than=MOST)
    accelerators_per_node: int | None = option(
        None,
        "accelerators of one node; without any: CPU slots (decision D8)",
        minimum=1,
        less_than=1000,
    )
    scale: int | None = option(
        None, "Sys_scale of V3 Eq. 5, in accelerators; left out: all of the system", minimum=1
    )
    cores_per_slot: int | None = option(
        None, "CPU cores of a slot without accelerators; left out: half of the node's", minimum=1
    )
    notes: dict[str, str] = field(
        default_factory=dict,
        metadata={"doc": 'what no command knows of it, such as {network = "fat tree, 2:1"}'},
    )


@dataclass(frozen=True, slots=True)
class DataConfig:
    """Where the samples come from and where they are read during training."""

    path: str | None = option(
        None, "a packed store (see `ai500 data pack`); left out: the class's own data, generated"
    )
    stage: bool = option(True, "copy what a node needs to its local scratch before training")
    scratch: str | None = option(None, "node-local folder for staged data; left out: $TMPDIR")


@dataclass(frozen=True, slots=True)
class TrainConfig:
    """Hyper-parameters. Left out: the class's reference; a change shows in the findings."""

    epochs: int | None = option(None, "passes over the member's bootstrap", minimum=1)
    batch_size: int | None = option(None, "images per accelerator and micro-step", minimum=1)
    accumulation: int | None = option(
        None, "micro-steps per optimizer step; effective batch = batch_size × P × this", minimum=1
    )
    optimizer: str | None = option(None, "sgd (with momentum), adam, adagrad, lars or lamb")
    base_learning_rate: float | None = option(
        None, "at the reference batch size; scaled linearly with the real one", more_than=0
    )
    schedule: str | None = option(
        None, "after warm-up: cosine, step, polynomial or inverse_time (AIPerf's)"
    )
    warmup_epochs: float | None = option(None, "linear warm-up, in epochs", minimum=0)
    decay_epochs: tuple[int, ...] | None = option(
        None, "schedule step: epochs at which the rate is divided by ten"
    )
    decay_power: float | None = option(
        None, "schedule polynomial: its power; inverse_time: its decay a step", more_than=0
    )
    momentum: float | None = option(None, "of sgd and lars", minimum=0, less_than=1)
    betas: tuple[float, float] | None = option(None, "of adam and lamb; theirs: [0.9, 0.999]")
    epsilon: float | None = option(
        None, "of adam, adagrad and lamb; theirs: 1e-8, 1e-10, 1e-6", more_than=0
    )
    trust_coefficient: float | None = option(None, "of lars; the paper's: 0.001", more_than=0)
    weight_decay: float | None = option(
        None, "on every parameter, batch norm's included", minimum=0
    )
    label_smoothing: float | None = option(
        None, "0 unless the reference says so", minimum=0, less_than=1
    )
    precision: str | None = option(
        None, "fp32 (the reference), tf32, mixed-bf16, mixed-fp16, fp16, fp8 or int8"
    )
    evaluate_every_epochs: int | None = option(
        None, "epochs between evaluations (decision D14)", minimum=1
    )
    checkpoint_minutes: float = option(
        5.0, "besides one each epoch, a checkpoint this often", more_than=0
    )


@dataclass(frozen=True, slots=True)
class AutomlConfig:
    """The search of workload automl. Left out: the class's own; a change shows in the findings."""

    minutes: float | None = option(
        None, "how long each worker searches", more_than=0, less_than=MOST
    )
    patience: int | None = option(
        None, "epochs without progress after which a model is given up", minimum=1
    )
    batch_sizes: tuple[int, ...] | None = option(
        None, "images per accelerator and step that TPE chooses from"
    )
    kernel_sizes: tuple[int, ...] | None = option(
        None, "odd kernel sizes of added blocks that TPE chooses from; the first before it begins"
    )
    most_growth: float | None = option(
        None, "operations per image of a model, in those of the initial one", minimum=1
    )
    kept_models: int | None = option(
        None, "parents are drawn from the best so many, whose weights are kept", minimum=1
    )


@dataclass(frozen=True, slots=True)
class SchedulerConfig:
    """Who runs the members' jobs."""

    kind: str = option("local", "local: processes on this machine; slurm: jobs of a cluster")
    launcher: str = option(
        "bare", "what a job runs in: bare (nothing), apptainer, podman, docker, pyxis"
    )
    max_retries: int = option(0, "times a failed member is started again by itself", minimum=0)
    poll_seconds: float | None = option(
        None, "least time between two looks at the jobs; left out: the scheduler's own", more_than=0
    )


@dataclass(frozen=True, slots=True)
class SlurmConfig:
    """How jobs are asked of Slurm (scheduler.kind = "slurm")."""

    start: Literal["array", "gang"] = option(
        "array", "array: members start as nodes come free; gang: all at once, behind a barrier"
    )
    partition: str | None = option(None, "left out: the cluster's default")
    account: str | None = option(None, "who pays")
    qos: str | None = option(None, "quality of service")
    time_limit: str | None = option(None, "of a job, as Slurm writes it: 2:00:00, 1-12:00:00")
    constraint: str | None = option(None, "features the nodes must have, e.g. a100&nvlink")
    exclusive: bool = option(False, "nodes are not shared with other jobs")
    reservation: str | None = option(None, "a reservation to use")
    sbatch: tuple[str, ...] = option((), "more options of sbatch, e.g. --mail-type=END")
    srun: tuple[str, ...] = option((), "more options of srun, e.g. --network=…")
    setup: tuple[str, ...] = option(
        (), "shell lines before anything else in a job: module load …, source …/bin/activate"
    )
    python: str | None = option(None, "interpreter on the nodes; left out: this one's path")
    cpus_per_accelerator: int | None = option(
        None, "left out: the node's CPUs shared out evenly", minimum=1
    )
    cpu_bind: str | None = option(None, "srun's --cpu-bind; left out: Slurm's own choice")
    gpus_per_task: bool = option(
        True, "ask for accelerators with --gpus-per-task; false: leave it to sbatch and srun"
    )
    checkpoint_signal_seconds: int = option(
        120, "before the time limit members are asked to write a checkpoint", minimum=1
    )
    barrier_seconds: float = option(
        900.0,
        "gang: the longest that ready members wait for the others",
        more_than=0,
        less_than=2400,
    )


@dataclass(frozen=True, slots=True)
class ContainerConfig:
    """What the members run in, for every scheduler.launcher but bare."""

    image: str | None = option(
        None, "as the runtime names it: file.sif, docker://…, localhost/name, path.sqsh"
    )
    python: str = option("python3", "the interpreter inside, which can import ai500")
    mounts: tuple[str, ...] = option(
        (), "besides the run's own folders: /folder, /host:/container, either with :ro"
    )
    environment: tuple[str, ...] = option((), "more names of variables to hand through")
    flags: tuple[str, ...] = option((), "more flags of the runtime, e.g. --device=/dev/infiniband")
    runtime: tuple[str, ...] = option(
        (), "the program with its global flags, e.g. singularity; left out: the launcher's name"
    )
    accelerator_flags: tuple[str, ...] | None = option(
        None, "what gives it the accelerators, e.g. --rocm; left out: the runtime's for NVIDIA"
    )


@dataclass(frozen=True, slots=True)
class Config:
    """The whole file."""

    workload: str = option("image_classification", "image_classification, extreme_weather, automl")
    problem_class: str = option("smoke", "smoke (laptop), workstation (one GPU), full (the papers)")
    run: RunConfig = field(default_factory=RunConfig, metadata={"doc": "the trials"})
    ensemble: EnsembleConfig = field(default_factory=EnsembleConfig)
    parallel: ParallelConfig = field(default_factory=ParallelConfig)
    communication: CommunicationConfig = field(default_factory=CommunicationConfig)
    system: SystemConfig = field(default_factory=SystemConfig)
    data: DataConfig = field(default_factory=DataConfig)
    train: TrainConfig = field(default_factory=TrainConfig)
    automl: AutomlConfig = field(default_factory=AutomlConfig)
    scheduler: SchedulerConfig = field(default_factory=SchedulerConfig)
    slurm: SlurmConfig = field(default_factory=SlurmConfig)
    container: ContainerConfig = field(default_factory=ContainerConfig)


def load(path: Path | None = None, *, overrides: dict[str, Any] | None = None) -> Config:
    """The file with `overrides` (dotted keys) over it, validated."""
    data: dict[str, Any] = {} if path is None else _read(path)
    _resolve_paths(data.get("data"), base=Path() if path is None else path.parent)
    for key, value in (overrides or {}).items():
        _set(data, key, value)
    _resolve_paths(data.get("data"), base=Path())
    try:
        config = decode(Config, data)
    except SchemaError as error:
        in_file = path is not None and (error.key or "").partition("[")[0] not in (overrides or {})
        source = str(path) if in_file else "the configuration"
        raise ConfigError(f"{source}: {_with_section(error)}") from error
    _check_names(config)
    return config


def parse_assignment(text: str) -> tuple[str, Any]:
    """`key=value` of --set; the value is TOML, and bare words are text."""
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise ConfigError(f"--set {text}: expected key=value, for example ensemble.size=4")
    try:
        return key.strip(), tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        return key.strip(), value.strip()


def documented_keys() -> Iterator[tuple[str, Field[Any], Any]]:
    """Every key with its declaration and default, in the order of the file."""
    for outer in fields(Config):
        default = getattr(Config(), outer.name)
        if not is_dataclass(default):
            yield outer.name, outer, default
    for outer in fields(Config):
        section = getattr(Config(), outer.name)
        if is_dataclass(section):
            for inner in fields(section):
                yield f"{outer.name}.{inner.name}", inner, getattr(section, inner.name)


def _read(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise ConfigError(f"{path}: no such file. `ai500 init` writes one.") from error
    except UnicodeDecodeError as error:
        why = "it is no text in UTF-8. `ai500 init` writes an example."
        raise ConfigError(f"{path}: not valid TOML: {why}") from error
    except (ValueError, RecursionError) as error:  # TOML's own errors are ValueErrors, too
        raise ConfigError(f"{path}: not valid TOML: {error}") from error
    except OSError as error:
        raise ConfigError(f"{path}: can't be read: {error.strerror}") from error


def _with_section(error: SchemaError) -> str:
    """The error; of a key that other sections have, theirs: `epochs` is `train.epochs`."""
    last = (error.key or "").rpartition(".")[2]
    theirs = [key for key, _, _ in documented_keys() if key.endswith(f".{last}")]
    if not theirs or "unknown key" not in str(error):
        return str(error)
    return f"{error.key}: unknown key; did you mean {' or '.join(map(repr, theirs))}?"


def _resolve_paths(section: Any, *, base: Path) -> None:
    """A path in the file is relative to the file, one from the command line to where one stands."""
    if isinstance(section, dict):
        for key in ("path", "scratch"):
            # What a variable at the beginning stands for, only the node knows.
            if isinstance(section.get(key), str) and section[key][:1] not in ("", "$"):
                section[key] = str((base / section[key]).absolute())


def _set(data: dict[str, Any], key: str, value: Any) -> None:
    *sections, last = key.split(".")
    for section in sections:
        data = data.setdefault(section, {})
        if not isinstance(data, dict):
            raise ConfigError(f"{key}: {section!r} is not a section")
    data[last] = value


def _check_names(config: Config) -> None:
    plugins.check("workload", config.workload, at="workload")
    classes = plugins.load("workload", config.workload).problem_classes
    if config.problem_class not in classes:
        raise ConfigError(
            f"problem_class = {config.problem_class!r}: {config.workload} has no such class; "
            + nearest(config.problem_class, list(classes))
        )
    plugins.check("sampler", config.ensemble.sampler, at="ensemble.sampler")
    plugins.check("engine", config.parallel.mode, at="parallel.mode")
    plugins.check("collective", config.communication.mode, at="communication.mode")
    plugins.check("scheduler", config.scheduler.kind, at="scheduler.kind")
    plugins.check("launcher", config.scheduler.launcher, at="scheduler.launcher")
    if config.train.optimizer is not None:
        plugins.check("optimizer", config.train.optimizer, at="train.optimizer")
    if config.train.schedule is not None:
        plugins.check("learning_rate", config.train.schedule, at="train.schedule")
    if config.train.precision is not None:
        precision.check_name(config.train.precision)
