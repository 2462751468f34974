"""Sections and keys of the configuration file, each documented where it is declared."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from ai500.core import editions, plugins
from ai500.core.schema import option

MAX_COUNT = 200_000  # more than any machine's nodes: catches typos before planning becomes slow


@dataclass(frozen=True, slots=True)
class CustomClassConfig:
    """A problem class of your own: comparable with no registered class, never an entry.

    With a built-in workload it changes `problem_class`, mostly for your own data; with workload
    custom it defines everything.
    """

    name: str | None = option(None, "name of the class; default: the registered problem_class")
    target_quality: float | None = option(None, "target of Eq. 8", more_than=0)
    penalty_exponent: int | None = option(None, "n of Eq. 8", minimum=1, less_than=1000)
    epochs: int | None = option(None, "epochs of a member", minimum=1, less_than=MAX_COUNT)
    ensemble_size: int | None = option(
        None, "least M; default: problem_class's, 1 with workload custom", minimum=1
    )
    required_runs: int | None = option(
        None,
        "least trials of a valid result; default: as with ensemble_size",
        minimum=1,
    )
    quality_name: str | None = option(
        None,
        "workload custom: name of the quality; accuracy, mean absolute error and mean squared "
        "error are also computed for the ensemble",
    )
    quality_direction: Literal["higher", "lower"] | None = option(
        None, "workload custom: direction in which the quality improves"
    )
    batch_size: int | None = option(
        None, "workload custom: samples per accelerator and step", minimum=1
    )
    train_samples: int | None = option(
        None, "workload custom: samples to draw bootstraps from; default: the store's", minimum=1
    )
    validation_samples: int | None = option(
        None, "workload custom: validation samples; default: the store's", minimum=1
    )
    validation_targets: str | None = option(
        None,
        "workload custom: .npy file with the validation samples' targets; default: the store's",
    )


@dataclass(frozen=True, slots=True)
class RunConfig:
    """Number of trials, edition and seed, sampling period of the meters."""

    trials: int | Literal["valid"] = option(
        1,
        "number of full trials, each with its own seed; 'valid': the least that the class requires",
        minimum=1,
        less_than=MAX_COUNT,
    )
    edition: str = option(
        editions.CURRENT,
        "edition of the list, a year and a month: the seeds of an official result follow from it "
        "(decision D22)",
    )
    seed: int | None = option(
        None,
        "seed from which every random draw of the run is derived; default: the edition's, which "
        "an entry of the list must use",
        minimum=0,
    )
    meter_seconds: float = option(
        1.0,
        "seconds between two samples of power, load and traffic on each node; 0: no meters",
        minimum=0,
        less_than=30,
    )


@dataclass(frozen=True, slots=True)
class EnsembleConfig:
    """Bagging: number of base models and their bootstraps."""

    size: int | None = option(
        None,
        "M of V3 Eq. 4; default: Sys_scale / P_degree, but at least the class's minimum",
        minimum=1,
        less_than=MAX_COUNT,
    )
    members_per_accelerator: int = option(
        1,
        "members that share one accelerator (decision D11); M = k × Sys_scale / P_degree",
        minimum=1,
        less_than=1000,
    )
    sharing: Literal["auto", "process", "processes"] = option(
        "auto",
        "process: members that share an accelerator train in one process; processes: one process "
        "each; auto: one process where possible",
    )
    sampler: str = option("bootstrap", "sampling of a member's data: bootstrap, poisson")


@dataclass(frozen=True, slots=True)
class ParallelConfig:
    """Parallelism inside one member."""

    degree: int | None = option(
        None, "P_degree: accelerators per member; default: all of one node", minimum=1
    )
    mode: str = option("data", "parallelism of a member: data, tensor, pipeline, mixed")
    sharded: bool = option(
        False, "data mode: shard weights, gradients and optimizer state as well (FSDP2)"
    )
    data_degree: int | None = option(
        None, "mixed mode: number of replicas; data × pipeline × tensor = P_degree", minimum=1
    )
    pipeline_degree: int | None = option(None, "mixed mode: number of pipeline stages", minimum=1)
    tensor_degree: int | None = option(
        None, "mixed mode: number of ranks that share each layer", minimum=1
    )
    pipeline_schedule: Literal["1f1b", "gpipe"] | None = option(
        None, "order of the micro-batches in a pipeline; default: 1f1b"
    )
    microbatches: int | None = option(
        None, "micro-batches per batch in a pipeline; default: one per stage", minimum=1
    )
    batch_norm: Literal["replica", "synchronized"] = option(
        "replica",
        "batch-norm statistics: of each replica's batch (as in the papers) or of the whole batch",
    )


@dataclass(frozen=True, slots=True)
class CommunicationConfig:
    """Gradient averaging among the replicas of a member; no effect with one replica."""

    mode: str = option(
        "all_reduce",
        "all_reduce, hierarchical (by node), torus_2d (a grid of at least 2 × 2), ring, "
        "double_binary_tree, butterfly or parameter_server (synchronous)",
    )
    precision: Literal["fp32", "fp16", "bf16", "int8"] = option(
        "fp32", "precision of transmitted gradients; int8 with error feedback"
    )


@dataclass(frozen=True, slots=True)
class FrameworkConfig:
    """Framework that trains the members."""

    kind: str = option(
        "pytorch",
        "pytorch (the reference), jax, tensorflow, mindspore, or script: your own training command",
    )
    command: tuple[str, ...] = option(
        (),
        "script: command that each member runs; {task}: its task file, {python}: the next key",
    )
    python: str | None = option(
        None,
        "interpreter with the framework; script: replaces {python}; default: the jobs' own",
    )
    folder: str | None = option(
        None, "script: working folder of the command; default: the configuration file's"
    )
    operations: str | None = option(
        None, "script: file with the output of `ai500 flops … --json`; default: not counted"
    )


@dataclass(frozen=True, slots=True)
class FreeLevelConfig:
    """Your own model, optimizer or loss on an existing class: the free level (V2 §3.1).

    Each is `module:function`; its source is recorded and disclosed.
    """

    model: str | None = option(
        None,
        "function of the problem class that returns the model; its code is run, its graph counted",
    )
    optimizer: str | None = option(
        None,
        "function of parameters and hyper-parameters that returns the optimizer; its code is run",
    )
    loss: str | None = option(
        None,
        "function of outputs, targets and `hyperparameters` that returns the loss; its code is run",
    )
    folder: str | None = option(
        None, "folder of these modules, visible on every node; default: the configuration file's"
    )


@dataclass(frozen=True, slots=True)
class SystemConfig:
    """The machine; keys that are not set are read from it."""

    device: str | None = option(None, "torch's device type: cpu, cuda, xpu, …")
    nodes: int | None = option(None, "number of nodes", minimum=1, less_than=MAX_COUNT)
    accelerators_per_node: int | None = option(
        None,
        "accelerators of one node; on a CPU-only node: CPU slots (decision D8)",
        minimum=1,
        less_than=1000,
    )
    scale: int | None = option(
        None, "Sys_scale of V3 Eq. 5, in accelerators; default: the whole system", minimum=1
    )
    cores_per_slot: int | None = option(
        None, "cores of a CPU slot; default: half of the node's", minimum=1
    )
    notes: dict[str, str] = field(
        default_factory=dict,
        metadata={"doc": 'facts that no command reports, such as {network = "fat tree, 2:1"}'},
    )


@dataclass(frozen=True, slots=True)
class DataConfig:
    """Source of the samples, and where training reads them."""

    path: str | None = option(
        None, "a packed store (see `ai500 data pack`); default: the class's generated data"
    )
    stage: bool = option(True, "copy each node's samples to its local scratch before training")
    scratch: str | None = option(None, "node-local folder for staged data; default: $TMPDIR")


@dataclass(frozen=True, slots=True)
class TrainConfig:
    """Hyper-parameters; default: the class's reference values. Changes appear in the findings."""

    epochs: int | None = option(None, "passes over the member's bootstrap", minimum=1)
    batch_size: int | None = option(None, "samples per accelerator and micro-step", minimum=1)
    accumulation: int | None = option(
        None, "micro-steps per optimizer step; effective batch = batch_size × P × this", minimum=1
    )
    optimizer: str | None = option(
        None,
        "sgd (with momentum), adam, adamw, adagrad, lars, lamb; sgd_no_vector_decay "
        "(V2 Table 8) breaks a rule",
    )
    base_learning_rate: float | None = option(
        None, "learning rate at the reference batch size; scaled linearly with it", more_than=0
    )
    schedule: str | None = option(
        None, "learning rate after warm-up: cosine, step, polynomial or inverse_time (AIPerf)"
    )
    warmup_epochs: float | None = option(None, "linear warm-up, in epochs", minimum=0)
    decay_epochs: tuple[int, ...] | None = option(
        None, "schedule step: epochs at which the rate is divided by ten"
    )
    decay_power: float | None = option(
        None, "schedule polynomial: exponent; inverse_time: decay per step", more_than=0
    )
    momentum: float | None = option(None, "momentum of sgd and lars", minimum=0, less_than=1)
    betas: tuple[float, float] | None = option(
        None, "betas of adam, adamw and lamb; default: [0.9, 0.999]"
    )
    epsilon: float | None = option(
        None,
        "epsilon of adam, adamw, adagrad and lamb; default: 1e-8, 1e-8, 1e-10, 1e-6",
        more_than=0,
    )
    trust_coefficient: float | None = option(
        None, "trust coefficient of lars; default: 0.001, as in its paper", more_than=0
    )
    weight_decay: float | None = option(
        None, "weight decay of every parameter, batch norm's included", minimum=0
    )
    label_smoothing: float | None = option(
        None, "label smoothing; 0 unless the reference uses it", minimum=0, less_than=1
    )
    precision: str | None = option(
        None, "fp32 (the reference), tf32, mixed-bf16, mixed-fp16, fp16, fp8 or int8"
    )
    evaluate_every_epochs: int | None = option(
        None, "epochs between evaluations (decision D14)", minimum=1
    )
    checkpoint_minutes: float = option(
        5.0, "minutes between checkpoints, besides one after each epoch", more_than=0
    )


@dataclass(frozen=True, slots=True)
class AutomlConfig:
    """Architecture search of workload automl; default: the class's values.

    Changes appear in the findings.
    """

    minutes: float | None = option(
        None, "search time of each worker", more_than=0, less_than=MAX_COUNT
    )
    patience: int | None = option(
        None, "epochs without improvement after which a model's training stops", minimum=1
    )
    batch_sizes: tuple[int, ...] | None = option(
        None, "choices of TPE for the images per accelerator and step"
    )
    kernel_sizes: tuple[int, ...] | None = option(
        None,
        "choices of TPE for the (odd) kernel size of the whole model; added blocks use the first",
    )
    hyperparameter_trials: int | None = option(
        None,
        "trainings of each architecture from a worker's fifth round on, each with the batch and "
        "kernel size that TPE chooses",
        minimum=1,
    )
    max_growth: float | None = option(
        None,
        "upper bound of a model's operations per image / the initial model's: 3 in every "
        "class (decision D21)",
        minimum=1,
    )
    initial_version: Literal["v1.5", "v1"] | None = option(
        None,
        "ResNet at which the search starts: v1.5 has the stride on the 3×3 convolution, v1 (AIPerf "
        "Table III) on the 1×1 (decision D16)",
    )
    buffer_size: int | None = option(
        None, "architectures that each worker keeps ready in its buffer", minimum=1, less_than=1000
    )
    search_threads: int | None = option(
        None,
        "CPU threads of a worker that search architectures during training",
        minimum=1,
        less_than=1000,
    )
    kept_models: int | None = option(
        None, "number of best models that are parents and whose weights are kept", minimum=1
    )


@dataclass(frozen=True, slots=True)
class SchedulerConfig:
    """Scheduler of the members' jobs."""

    kind: str = option(
        "local", "local: processes on this machine; slurm, grid_engine: jobs of a cluster"
    )
    launcher: str = option(
        "bare", "container runtime of a job: bare (none), apptainer, podman, docker, pyxis"
    )
    max_retries: int = option(0, "automatic restarts of a failed member", minimum=0)
    poll_seconds: float | None = option(
        None, "least seconds between two job-state queries; default: the scheduler's", more_than=0
    )
    patience_minutes: float = option(
        30.0, "longest time that the scheduler may not answer before the run detaches", minimum=0
    )
    follow: Literal["queries", "events"] = option(
        "queries",
        "queries: ask the scheduler for the jobs' states; events: members report in the run "
        "folder, and the scheduler is queried when one is overdue",
    )
    overdue_minutes: float = option(
        10.0, "follow = events: silence after which the scheduler is queried", more_than=0
    )


@dataclass(frozen=True, slots=True)
class SlurmConfig:
    """Slurm's options (scheduler.kind = "slurm")."""

    start: Literal["array", "gang"] = option(
        "array", "array: members start as nodes become free; gang: all at once, after a barrier"
    )
    partition: str | None = option(None, "partition; default: the cluster's")
    account: str | None = option(None, "account that is charged")
    qos: str | None = option(None, "quality of service")
    time_limit: str | None = option(None, "time limit of a job: 2:00:00, 1-12:00:00")
    constraint: str | None = option(None, "features the nodes must have, e.g. a100&nvlink")
    exclusive: bool = option(False, "do not share nodes with other jobs")
    exclude: str | None = option(None, "nodes to leave out, in Slurm's notation: n[3-5],n9")
    memory: str | None = option(
        None, "memory per accelerator (or CPU slot): 32G, 500M; default: the site's, else a share"
    )
    gpu_type: str | None = option(None, "type of GPU to request, as GRES names it: a100")
    reservation: str | None = option(None, "reservation to use")
    sbatch: tuple[str, ...] = option(
        (), "additional options of sbatch, one word each, e.g. --mail-type=END"
    )
    srun: tuple[str, ...] = option(
        (), "additional options of srun, one word each, e.g. --network=…"
    )
    setup: tuple[str, ...] = option(
        (), "first shell lines of a job: module load …, source …/bin/activate"
    )
    python: str | None = option(None, "interpreter on the nodes; default: the path of this one")
    cpus_per_accelerator: int | None = option(
        None, "CPUs per accelerator; default: an equal share of the node's", minimum=1
    )
    cpu_bind: str | None = option(None, "srun's --cpu-bind; default: Slurm's")
    gpus_per_task: bool = option(
        True, "request accelerators with --gpus-per-task; false: by slurm.sbatch and slurm.srun"
    )
    checkpoint_signal_seconds: int = option(
        120, "seconds before the time limit at which members write a checkpoint", minimum=1
    )
    pin: bool = option(
        False, "gang: run on the nodes that the plan maps members to; default: Slurm chooses"
    )
    barrier_seconds: float = option(
        900.0,
        "gang: longest wait at the barrier, in seconds",
        more_than=0,
        less_than=2400,
    )


@dataclass(frozen=True, slots=True)
class GridEngineConfig:
    """Grid Engine's options (scheduler.kind = "grid_engine")."""

    queue: str | None = option(None, "queue; default: any that Grid Engine chooses")
    project: str | None = option(None, "project that is charged")
    time_limit: str | None = option(None, "time limit of a job (h_rt): 2:00:00")
    parallel_environment: str = option(
        "smp", "parallel environment whose slots are all on one host ($pe_slots)"
    )
    cores_per_accelerator: int | None = option(
        None, "Grid Engine's slots per accelerator; default: an equal share of a host's", minimum=1
    )
    qsub: tuple[str, ...] = option(
        (), "additional options of qsub, one word each, e.g. -l and gpu=1"
    )
    setup: tuple[str, ...] = option(
        (), "first shell lines of a job: module load …, source …/bin/activate"
    )
    python: str | None = option(None, "interpreter on the hosts; default: the path of this one")


@dataclass(frozen=True, slots=True)
class ContainerConfig:
    """Container of the members, for every scheduler.launcher except bare."""

    image: str | None = option(
        None, "image in the runtime's notation: file.sif, docker://…, localhost/name, path.sqsh"
    )
    python: str = option("python3", "interpreter in the image, with ai500 installed")
    mounts: tuple[str, ...] = option(
        (), "mounts besides the run's own folders: /folder, /host:/container, either with :ro"
    )
    environment: tuple[str, ...] = option((), "additional environment variables to pass, by name")
    flags: tuple[str, ...] = option(
        (), "additional flags of the runtime, e.g. --device=/dev/infiniband"
    )
    runtime: tuple[str, ...] = option(
        (), "program and its global flags, e.g. singularity; default: the launcher's name"
    )
    accelerator_flags: tuple[str, ...] | None = option(
        None, "flags that expose the accelerators, e.g. --rocm; default: the runtime's for NVIDIA"
    )


@dataclass(frozen=True, slots=True)
class Config:
    """The whole configuration file."""

    workload: str = option("image_classification", ", ".join(plugins.BUILT_IN["workload"]))
    problem_class: str = option("smoke", "smoke (laptop), workstation (one GPU), full (the papers)")
    custom_class: CustomClassConfig = field(default_factory=CustomClassConfig)
    run: RunConfig = field(default_factory=RunConfig)
    ensemble: EnsembleConfig = field(default_factory=EnsembleConfig)
    parallel: ParallelConfig = field(default_factory=ParallelConfig)
    communication: CommunicationConfig = field(default_factory=CommunicationConfig)
    framework: FrameworkConfig = field(default_factory=FrameworkConfig)
    free_level: FreeLevelConfig = field(default_factory=FreeLevelConfig)
    system: SystemConfig = field(default_factory=SystemConfig)
    data: DataConfig = field(default_factory=DataConfig)
    train: TrainConfig = field(default_factory=TrainConfig)
    automl: AutomlConfig = field(default_factory=AutomlConfig)
    scheduler: SchedulerConfig = field(default_factory=SchedulerConfig)
    slurm: SlurmConfig = field(default_factory=SlurmConfig)
    grid_engine: GridEngineConfig = field(default_factory=GridEngineConfig)
    container: ContainerConfig = field(default_factory=ContainerConfig)
