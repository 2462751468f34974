"""Records of a trial: bootstraps, placements, tasks, jobs, and the members' training."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from ai500.records.plan import Communication, FrameworkChoice, Operations, OwnCode, Parallelism
from ai500.records.problem import Hyperparameters, ProblemClass
from ai500.records.profiling import Profiling
from ai500.records.search import Search
from ai500.records.system import Slot
from ai500.records.worker_exit import ExitCause, describe_exit


@dataclass(frozen=True, slots=True)
class TrialRecord:
    """Seed and data of a trial, fixed when it starts."""

    trial: int
    seed: int
    store_sha256: str


@dataclass(frozen=True, slots=True)
class BootstrapRecord:
    """One member's bootstrap: a file of repeat counts, not a copy of the data."""

    member: int
    path: str
    samples: int
    drawn: int
    distinct: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Placement:
    """Data that the Data Duplicator staged on one node."""

    node: str
    store: str
    store_sha256: str
    folder: str | None
    """Folder of the staged copy; None: training reads the shared store."""
    samples: int
    bytes: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Task:
    """Complete input of one member's worker; the worker reads no configuration."""

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
    """Folder of the node's copy of the data, if the controller staged it."""
    stage: bool
    """True if the job itself stages the data."""
    scratch: str | None
    node_members: tuple[int, ...]
    """Members that are mapped to this member's nodes; a staged copy holds their samples.

    Empty: any may meet there, as those of a job array do; the copy holds every sample."""
    folder: str
    checkpoint_seconds: float
    convention: str
    meter_seconds: float = 0.0
    """Seconds between two samples of the node's meters; 0: no meters."""
    profile: Profiling | None = None
    process_members: tuple[int, ...] = ()
    """Members that this process trains; empty: only this member."""
    search: Search | None = None
    entry_point: str = "ai500.train.member_process:run"
    """Function that the worker calls for this task, as `module:function`."""
    framework: FrameworkChoice = field(default_factory=FrameworkChoice)
    own_code: OwnCode = field(default_factory=OwnCode)
    bootstrap_sha256: str | None = None
    """SHA-256 of the repeat counts that were drawn for this member; None: not recorded."""


JobState = Literal["pending", "running", "done", "failed", "cancelled", "lost"]


@dataclass(frozen=True, slots=True)
class JobRecord:
    """A submitted job and its last state reported by the scheduler."""

    member: int
    id: str
    attempt: int
    state: JobState
    exit_code: int | None = None
    cause: ExitCause | None = None
    """Why the job failed; None: it did not, or that is not known."""

    @property
    def end(self) -> str:
        """Description of why it failed; empty where that is not known."""
        return describe_exit(self.cause, self.exit_code)


@dataclass(frozen=True, slots=True)
class Progress:
    """Current position of a worker, for the live view."""

    epoch: int
    epochs: int
    step: int
    steps_per_epoch: int
    loss: float | None
    samples_per_second: float | None


@dataclass(frozen=True, slots=True)
class TrainRecord:
    """Provenance and result of one member's training, recorded by its worker."""

    member: int
    parameters: int | None
    samples: int
    steps: int
    epochs: int
    world_size: int
    device: str
    device_name: str
    quality: float
    weights_sha256: str | None
    """None: a script's weights are its own."""
    operations: Operations | None
    """None: not counted (scripts)."""
    effective: dict[str, Any]
    """Optimizer groups, precision and batch size in effect at the end of training."""
    versions: dict[str, str]
    other_conventions: tuple[Operations, ...] = ()
    """The same operations by the conventions that are not the score's [D20]."""
    validation_sha256: str | None = None
    """SHA-256 of the file of validation predictions; None: there is none (searches, scripts)."""
    out_of_bag_sha256: str | None = None
    counted_graph_sha256: str | None = None
    """SHA-256 of graph.json, the graph whose operations were counted; None: not recorded."""
