"""Every noun that touches disk. Each stage takes records and leaves records in the run folder.

    Plan → BootstrapRecord[M] → Placement[nodes] → Task[M] → JobRecord[M] → TrainRecord[M]
         → EnsembleResult → Score → Finding[]

A value that was not measured is None.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from ai500.automl.records import SearchScore
from ai500.automl.settings import Search
from ai500.schema import option
from ai500.workloads.protocol import Hyperparameters, ProblemClass


@dataclass(frozen=True, slots=True)
class Slot:
    """One accelerator, or on a machine without any a fixed set of CPU cores [D8]."""

    index: int
    device: str
    """A torch device name such as `cuda:0` or `cpu`."""
    cores: tuple[int, ...]
    """CPU cores the process is pinned to; empty: its share of those it finds itself on."""


@dataclass(frozen=True, slots=True)
class Node:
    """One host and its slots."""

    name: str
    slots: tuple[Slot, ...]


@dataclass(frozen=True, slots=True)
class System:
    """The system under test, as far as the machine tells by itself."""

    hostname: str
    operating_system: str
    kernel: str
    python: str
    cpu: str
    cores: int
    memory_bytes: int | None
    accelerator: str | None
    """Device type by torch's name, None without one."""
    accelerators: tuple[str, ...]
    libraries: dict[str, str | None]


@dataclass(frozen=True, slots=True)
class Cluster:
    """What the scheduler told of the cluster when the run was planned."""

    name: str
    partition: str
    nodes: tuple[str, ...]
    """Those that can be used, in the scheduler's order."""
    unusable: dict[str, str]
    """Node → why not."""
    cpus_per_node: int
    accelerators_per_node: int
    max_array_size: int
    max_seconds: int | None
    accounting: bool
    version: str
    threads_per_core: int = 1


@dataclass(frozen=True, slots=True)
class Mapping:
    """Where one member runs: the job → node mapping of the Parallelism Controller."""

    member: int
    wave: int
    shares: tuple[Share, ...]


@dataclass(frozen=True, slots=True)
class Share:
    """The slots of one node that a member uses."""

    node: str
    slots: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Operations:
    """Operations of one image and one optimizer step, by a named convention [D5]."""

    convention: str
    forward_per_image: int
    backward_per_image: int
    update_per_step: int
    parameters: int


@dataclass(frozen=True, slots=True)
class Parallelism:
    """How one member uses its P_degree accelerators: data × pipeline × tensor."""

    mode: str
    sharded: bool = False
    data_degree: int = 1
    pipeline_degree: int = 1
    tensor_degree: int = 1
    pipeline_schedule: str = "1f1b"
    microbatches: int = 1
    """Parts of a batch that are in the pipeline at once; 1 without a pipeline."""
    batch_norm: str = "replica"

    @property
    def degree(self) -> int:
        """P_degree."""
        return self.data_degree * self.pipeline_degree * self.tensor_degree


@dataclass(frozen=True, slots=True)
class Communication:
    """How the replicas of a member average their gradients."""

    mode: str = "all_reduce"
    precision: str = "fp32"


@dataclass(frozen=True, slots=True)
class Sharing:
    """How the members that share an accelerator train [D11]."""

    how: Literal["alone", "process", "processes"]
    """`process`: one for all of them; `processes`: one for each."""
    reason: str = ""
    """Why they have processes of their own."""


@dataclass(frozen=True, slots=True)
class Plan:
    """The dry run: what will run where, how much of it, and how long it may take."""

    workload: str
    problem_class: str
    definition: ProblemClass
    """The class, with the user's own data in it where there is any."""
    seed: int
    trials: int
    ensemble_size: int
    parallel_degree: int
    system_scale: int
    members_per_accelerator: int
    waves: int
    sampler: str
    parallel: Parallelism
    communication: Communication
    scheduler: str
    launcher: str
    device: str
    cluster: Cluster | None
    """None: this machine is the whole system."""
    nodes: tuple[Node, ...]
    mapping: tuple[Mapping, ...]
    hyperparameters: Hyperparameters
    global_batch_size: int
    learning_rate: float
    steps_per_epoch: int
    stage: bool
    operations: Operations | None
    """None: counted by nobody yet (an outside workload, planned without torch)."""
    operations_per_trial: int | None
    apc: float | None
    """Amount of parallel computation of one iteration, Eq. 4."""
    bytes_per_node: dict[str, int]
    estimated_seconds: float | None
    estimated_node_hours: float | None
    estimate_basis: str
    sharing: Sharing = Sharing("alone")
    search: Search | None = None
    """What each worker of a search does; None: an ensemble is trained."""


@dataclass(frozen=True, slots=True)
class TrialRecord:
    """What a trial is fixed on from its beginning."""

    trial: int
    seed: int
    store_sha256: str


@dataclass(frozen=True, slots=True)
class BootstrapRecord:
    """One member's bootstrap: a file of repeat counts, never a copy of the data."""

    member: int
    path: str
    samples: int
    drawn: int
    distinct: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Placement:
    """What the Data Duplicator brought to one node; `folder` None: read from the shared store."""

    node: str
    store: str
    store_sha256: str
    folder: str | None
    samples: int
    bytes: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Profiling:
    """Some steps of a member are looked at closely, instead of training it."""

    steps: int
    how: Literal["trace", "counters"] = "trace"


@dataclass(frozen=True, slots=True)
class Task:
    """All that one member's worker needs to know; it reads nothing else."""

    run: str
    trial: int
    member: int
    seed: int
    workload: str
    definition: ProblemClass
    hyperparameters: Hyperparameters
    parallel: Parallelism
    communication: Communication
    parallel_degree: int
    steps_per_epoch: int
    slots: tuple[Slot, ...]
    bootstrap: str
    store: str
    staged: str | None
    """The node's copy, where the controller made it."""
    stage: bool
    """The job has to make the node's copy itself."""
    scratch: str | None
    node_members: tuple[int, ...]
    """Members whose samples a copy on this member's nodes holds: those mapped there."""
    folder: str
    checkpoint_seconds: float
    convention: str
    meter_seconds: float = 0.0
    """Between two samples of the node's meters; 0: no meters."""
    profile: Profiling | None = None
    together: tuple[int, ...] = ()
    """Members that one process trains, this one among them; empty: this one alone."""
    search: Search | None = None


JobState = Literal["pending", "running", "done", "failed", "cancelled", "lost"]


@dataclass(frozen=True, slots=True)
class JobRecord:
    """A submitted job and the last state the scheduler told."""

    member: int
    id: str
    attempt: int
    state: JobState
    exit_code: int | None = None


@dataclass(frozen=True, slots=True)
class Progress:
    """A worker's last word on where it is, for the live view."""

    epoch: int
    epochs: int
    step: int
    steps_per_epoch: int
    loss: float | None
    images_per_second: float | None


@dataclass(frozen=True, slots=True)
class TrainRecord:
    """What one member's training did, told by the worker itself."""

    member: int
    parameters: int
    images: int
    steps: int
    epochs: int
    world_size: int
    device: str
    device_name: str
    quality: float
    weights_sha256: str
    operations: Operations
    effective: dict[str, Any]
    """The optimizer's own groups, precision and batch as they were when training ended."""
    versions: dict[str, str]


@dataclass(frozen=True, slots=True)
class EnsembleResult:
    """Aggregation: the members' predictions against the ensemble's."""

    complete: bool
    members: tuple[int, ...]
    missing: tuple[int, ...]
    member_qualities: tuple[float, ...]
    members_mean_quality: float
    ensemble_quality: float
    out_of_bag_quality: float | None
    out_of_bag_samples: int


@dataclass(frozen=True, slots=True)
class Score:
    """One trial's score, or the mean of the trials (then with them in `trials`)."""

    workload: str
    problem_class: str
    convention: str
    complete: bool
    trial: int | None
    seed: int | None
    flops: float
    """Official: all members' operations / (last end − first start) [D6]."""
    vflops: float
    penalty_coefficient: float
    target_quality: float
    quality_name: str
    ensemble_quality: float
    members_mean_quality: float
    out_of_bag_quality: float | None
    seconds: float
    time_to_quality_seconds: float
    time_to_target_seconds: float | None
    """When the members' mean first reached the target; None: not reached."""
    operations: float
    validation_operations: float
    apc: float
    members_flops_sum: float
    """Sum of the members' own rates, beside the official figure [D6]."""
    start_skew_seconds: float
    idle_seconds: float
    """Part of the window in which no member trained: start-up of later waves, interruptions."""
    ensemble_size: int
    parallel_degree: int
    system_scale: int
    members_per_accelerator: int
    waves: int
    clock: Literal["monotonic", "wall"]
    """One host: its monotonic clock. Several: wall clocks, less their measured offsets."""
    clock_offset_seconds: float | None
    """The largest offset of a node's wall clock that was corrected; None: not measured."""
    clock_uncertainty_seconds: float | None
    """How far the window may be off for it; None: not measured on every node."""
    energy_joules: float | None = None
    """What the metered parts of all nodes drew in the window; None: not measured."""
    watts: float | None = None
    flops_per_watt: float | None = None
    vflops_per_watt: float | None = None
    power_coverage: str | None = None
    """What the power meters cover, such as `accelerators` or `whole nodes`."""
    epochs_to_target: int | None = None
    """Of one trial: the evaluation at which the members' mean first reached the target."""
    kept_trials: tuple[int, ...] = ()
    """Of a run: the trials whose mean it is; the others are shown beside it."""
    score_variation: float | None = None
    """Of a run: sample standard deviation / mean of VFLOPS over all complete trials."""
    epochs_to_target_variation: float | None = None
    """The same of the epochs to the target (V2 Table 2); None where a trial did not reach it."""
    search: SearchScore | None = None
    """None: no search, an ensemble."""
    trials: tuple[Score, ...] = ()


@dataclass(frozen=True, slots=True)
class RunState:
    """The identity of a run folder."""

    format: int = option(1, "version of the run folder's layout", minimum=1)
    version: str = option("", "version of ai500 that made it")
    name: str = option("", "name of the run")
