"""Records of a trial: bootstraps, placements, tasks, jobs, and what each member trained."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from ai500.records.plan import Communication, Operations, Parallelism
from ai500.records.problem import Hyperparameters, ProblemClass
from ai500.records.profiling import Profiling
from ai500.records.search import Search
from ai500.records.system import Slot


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
    process_members: tuple[int, ...] = ()
    """Members that one process trains, this one among them; empty: this one alone."""
    search: Search | None = None
    entry_point: str = "ai500.train.member_process:run"
    """`module:function` that the worker calls for this task."""


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
