"""The plan of a run: degrees, mapping, operations and costs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from ai500.core import editions
from ai500.records.problem import Hyperparameters, ProblemClass
from ai500.records.search import Search
from ai500.records.system import Cluster, Node

OFFICIAL_CONVENTION = "aiperf"
"""Counting convention of the official score."""


@dataclass(frozen=True, slots=True)
class MemberMapping:
    """Nodes and slots of one member: the job → node mapping of the Parallelism Controller."""

    member: int
    wave: int
    shares: tuple[NodeSlots, ...]


@dataclass(frozen=True, slots=True)
class NodeSlots:
    """The slots of one node that a member uses."""

    node: str
    slots: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Operations:
    """Operations of one image and one optimizer step, by a named convention [D5]."""

    convention: str
    forward_per_sample: int
    backward_per_sample: int
    update_per_step: int
    parameters: int
    uncounted: dict[str, int] = field(default_factory=dict)
    """Operator that no rule counts → number in one step [D23]; empty: all are counted."""

    @property
    def per_sample(self) -> int:
        """Operations of training on one image: forward and backward."""
        return self.forward_per_sample + self.backward_per_sample

    def per_step(self, batch_size: int) -> int:
        """Compute the operations of one optimizer step on `batch_size` samples [D12]."""
        return self.training(samples=batch_size, steps=1)

    def training(self, *, samples: int, steps: int) -> int:
        """Compute the operations of training on `samples` in `steps` optimizer steps [D12]."""
        return samples * self.per_sample + steps * self.update_per_step


def most_uncounted(counts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """Return each operator that a count leaves out, with its largest number."""
    largest: dict[str, int] = {}
    for count in counts:
        for operator, number in count.items():
            largest[operator] = max(number, largest.get(operator, 0))
    return largest


def list_operators(operators: Mapping[str, int]) -> str:
    """List operators by name and number, as `aten::lstsq ×2`."""
    return ", ".join(f"{name} ×{number}" for name, number in operators.items())


@dataclass(frozen=True, slots=True)
class Parallelism:
    """Division of one member among its P_degree accelerators: data × pipeline × tensor."""

    mode: str
    sharded: bool = False
    data_degree: int = 1
    pipeline_degree: int = 1
    tensor_degree: int = 1
    pipeline_schedule: str = "1f1b"
    microbatches: int = 1
    """Micro-batches per batch in a pipeline; 1 without a pipeline."""
    batch_norm: str = "replica"

    @property
    def degree(self) -> int:
        """P_degree: accelerators of the member."""
        return self.data_degree * self.pipeline_degree * self.tensor_degree


@dataclass(frozen=True, slots=True)
class Communication:
    """Gradient averaging among the replicas of a member."""

    mode: str = "all_reduce"
    precision: str = "fp32"


@dataclass(frozen=True, slots=True)
class FrameworkChoice:
    """Framework that trains the members, with the command of a script."""

    kind: str = "pytorch"
    command: tuple[str, ...] = ()
    """Words of a script's command; empty: the framework has a worker of its own."""
    python: str | None = None
    """Interpreter of the framework's worker; None: the job's own."""
    folder: str | None = None
    """Working folder of a script's command."""
    operations: Operations | None = None
    """Operations that the user states for a script; None: not counted."""


@dataclass(frozen=True, slots=True)
class OwnCode:
    """Parts of the training that are the user's own, each as `module:function`; None: ai500's.

    Entries with such parts are of the free level (V2 §3.1).
    """

    model: str | None = None
    optimizer: str | None = None
    loss: str | None = None
    folder: str | None = None
    """Folder of the modules; None: they are installed."""

    @property
    def parts(self) -> tuple[str, ...]:
        """Names of the parts that are the user's own."""
        return tuple(
            part for part in ("model", "optimizer", "loss") if getattr(self, part) is not None
        )


@dataclass(frozen=True, slots=True)
class Sharing:
    """Processes of the members that share an accelerator [D11]."""

    mode: Literal["alone", "process", "processes"]
    """`process`: one for all members; `processes`: one each; `alone`: nothing is shared."""
    reason: str = ""
    """Why one process for all is not possible; empty otherwise."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Result of planning: members, their nodes, their operations, and an estimate of the time."""

    workload: str
    problem_class: str
    definition: ProblemClass
    """The problem class, adapted to the user's data if there is any."""
    seed: int
    """Seed from which all seeds of the run are derived: the edition's, or the user's own."""
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
    """The scheduler's cluster; None: this machine is the whole system."""
    nodes: tuple[Node, ...]
    mapping: tuple[MemberMapping, ...]
    hyperparameters: Hyperparameters
    global_batch_size: int
    learning_rate: float
    steps_per_epoch: int
    stage: bool
    operations: Operations | None
    """Operations per image and step; None: not counted yet (a plugin's workload without torch)."""
    operations_per_trial: int | None
    apc: float | None
    """Amount of parallel computation of one iteration, V3 Eq. 4."""
    bytes_per_node: dict[str, int]
    estimated_seconds: float | None
    estimated_node_hours: float | None
    estimate_basis: str
    sharing: Sharing = Sharing("alone")
    search: Search | None = None
    """Settings of an architecture search; None: an ensemble is trained."""
    framework: FrameworkChoice = FrameworkChoice()
    edition: str = editions.CURRENT
    """Edition of the list that the run is made for; an official run has its seed [D22]."""
    own_code: OwnCode = OwnCode()
