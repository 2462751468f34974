"""Bytes sent to average gradients: as counted by the run's collectives, and in theory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ai500.core import events
from ai500.parallel import schedules, topology
from ai500.parallel.topology import Grid
from ai500.records import Plan, TrainRecord
from ai500.records.run_folder import MemberFolder
from ai500.roofline.model import WIRE_BYTES


@dataclass(frozen=True, slots=True)
class Traffic:
    """Bytes of all ranks of one member in one optimizer step, by link class."""

    inside_node: float
    between_nodes: float


def counted(record: TrainRecord, folder: MemberFolder) -> tuple[Traffic | None, str]:
    """Return the bytes per step counted by the member's collectives, and their source.

    None: not counted. A resumed member counts from its last start, so only steps since then divide.
    """
    origin = source(record)
    if origin == "none":
        return Traffic(0.0, 0.0), origin
    steps = record.steps - _steps_before_resume(record, folder)
    if origin == "not counted" or steps <= 0:
        return None, "not counted"
    sent = record.effective["parallel"]["communication"]["traffic"]
    return Traffic(sent["inside_node"] / steps, sent["between_nodes"] / steps), origin


def source(record: TrainRecord) -> str:
    """Name what the member's bytes are: of its payload or its tensors; none; not counted."""
    if record.world_size == 1:
        return "none"
    communication: Any = record.effective.get("parallel", {}).get("communication")
    if not isinstance(communication, dict) or "traffic" not in communication:
        return "not counted"
    return str(communication["bytes"])


def _steps_before_resume(record: TrainRecord, folder: MemberFolder) -> int:
    resumed = [event for event in events.read(folder.events) if event["event"] == "resumed"]
    # A worker of a search resumes no position: its history has each model's steps.
    if not resumed or "epoch" not in resumed[-1]:
        return 0
    per_epoch = record.steps // record.epochs
    return int(resumed[-1]["epoch"]) * per_epoch + int(resumed[-1]["step"])


def analytical(plan: Plan, *, parameters: int) -> Traffic | None:
    """Return gradient bytes × the algorithm's factor; None: activations are sent too, or instead.

    Each of n ranks sends 2 (n−1)/n of its buffer along a line (docs/communication.md). FSDP2
    gathers weights twice for each part of an accumulated batch and scatters gradients once.
    """
    parallel = plan.parallel
    if parallel.pipeline_degree * parallel.tensor_degree > 1:
        return None
    nodes = nodes_of_ranks(plan)
    if len(nodes) == 1:
        return Traffic(0.0, 0.0)
    if parallel.sharded:
        passes = 2 * plan.hyperparameters.accumulation + 1
        return along_line(nodes, 4.0 * parameters, passes=passes)
    mode, precision = plan.communication.mode, plan.communication.precision
    return in_mode(nodes, mode=mode, gradient_bytes=WIRE_BYTES[precision] * parameters)


def nodes_of_ranks(plan: Plan) -> list[int]:
    """Return the node of each rank of a member, numbered node by node."""
    shares = plan.mapping[0].shares
    return [node for node, share in enumerate(shares) for _ in share.slots]


def in_mode(nodes: Sequence[int], *, mode: str, gradient_bytes: float) -> Traffic | None:
    """Return the traffic of all ranks in a communication mode; None: a mode of another package."""
    if mode in topology.GRIDS:
        return on_grid(nodes, mode=mode, gradient_bytes=gradient_bytes)
    if mode in schedules.ROUNDS:
        return by_messages(nodes, mode=mode, gradient_bytes=gradient_bytes)
    return None


def by_messages(nodes: Sequence[int], *, mode: str, gradient_bytes: float) -> Traffic:
    """Return the traffic of all ranks in a mode of point-to-point messages."""
    inside = between = 0.0
    for transfers in schedules.rounds(mode, len(nodes)):
        for transfer in transfers:
            if nodes[transfer.sender] == nodes[transfer.receiver]:
                inside += transfer.share * gradient_bytes
            else:
                between += transfer.share * gradient_bytes
    return Traffic(inside, between)


def on_grid(nodes: Sequence[int], *, mode: str, gradient_bytes: float) -> Traffic:
    """Return the traffic of all ranks in a communication mode: along all rows, then all columns."""
    grid: Grid = topology.GRIDS[mode](nodes)
    inside = between = 0.0
    rows = [list(range(first, first + grid.row)) for first in range(0, len(nodes), grid.row)]
    columns = [list(range(first, len(nodes), grid.row)) for first in range(grid.row)]
    for lines, size in ((rows, gradient_bytes), (columns, gradient_bytes / grid.row)):
        for line in lines:
            sent = along_line([nodes[rank] for rank in line], size)
            inside += sent.inside_node
            between += sent.between_nodes
    return Traffic(inside, between)


def along_line(nodes: Sequence[int], size: float, *, passes: int = 2) -> Traffic:
    """Return the traffic of a ring: each rank sends (n−1)/n of a buffer in each pass."""
    count = len(nodes)
    sent_per_rank = passes * (count - 1) / count * size
    inside_links = sum(nodes[i] == nodes[(i + 1) % count] for i in range(count))
    return Traffic(
        inside_node=sent_per_rank * inside_links,
        between_nodes=sent_per_rank * (count - inside_links),
    )
