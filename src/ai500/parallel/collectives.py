"""All-reduce: flat, hierarchical, 2D-torus; a communication precision composes with each.

The modes of point-to-point messages are in `message_passing`.

A reduction along a line of ranks (a row or a column of the grid, see `topology`) cuts the buffer
into a chunk for each rank; every rank receives its chunk from all others and takes the mean in at
least single precision. The finished chunks are encoded once, all-gathered, and decoded from the
same bytes on every rank: all ranks end with the same bits. Each phase takes a mean, never a sum, so
nothing on the wire is larger than the largest gradient.

Error feedback (int8): for each value of its buffer a rank encodes exactly one number: its part of
another rank's chunk, a partial mean in flight, or the finished mean of its own chunk. The rounding
error of that encoding is kept and added before the next one, so that errors do not accumulate.
"""

# Annotations are not postponed here: DistributedDataParallel checks the types of its hook.

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, Protocol

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn.functional import pad

from ai500.core import plugins
from ai500.core.errors import AI500Error
from ai500.parallel import topology
from ai500.parallel.compression import Codec, codec_for
from ai500.parallel.spans import COPY_OUT, EXCHANGE, READY, REDUCE, span

# Renamed in torch 2.13; the old name warns there.
_all_gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor


@dataclass
class Traffic:
    """Bytes that this rank sent, by link class: CT of the roofline (V2 §6)."""

    inside_node: int = 0
    between_nodes: int = 0
    calls: int = 0
    """Number of reduced buffers."""


class Reduction(Protocol):
    """Mean of a flat buffer over a group, in place."""

    lost: dict[str, Tensor]
    """Rounding errors of each buffer, for error feedback; empty without it."""

    def __call__(self, flat: Tensor, *, key: str) -> None:
        """Reduce a buffer; `key` names it from step to step."""

    def describe(self) -> dict[str, Any]:
        """Describe what is sent, and how its bytes are counted."""


class Ranks:
    """The ranks of a process group and their nodes.

    The member's ranks are numbered node by node: `local_size` on each, or as many as it lists.
    """

    def __init__(self, group: dist.ProcessGroup | None, *, local_size: int | Sequence[int]) -> None:
        self.group = group
        alone = not dist.is_initialized()
        self.ranks: list[int] = [0] if alone else dist.get_process_group_ranks(group)
        self.position = self.ranks.index(0 if alone else dist.get_rank())
        if isinstance(local_size, int):
            self.nodes = [rank // local_size for rank in self.ranks]
        else:
            nodes = topology.node_of_rank(local_size)
            self.nodes = [nodes[rank] for rank in self.ranks]

    def count(self, traffic: Traffic, *, to: int, sent: int) -> None:
        """Count bytes sent to the rank at a position of the group."""
        if self.nodes[to] == self.nodes[self.position]:
            traffic.inside_node += sent
        else:
            traffic.between_nodes += sent


class LibraryAllReduce:
    """`torch.distributed.all_reduce` in the tensor's own type, of values times 1/ranks."""

    def __init__(self, ranks: Ranks, *, traffic: Traffic) -> None:
        self._ranks = ranks
        self._traffic = traffic
        self.lost: dict[str, Tensor] = {}

    def __call__(self, flat: Tensor, *, key: str) -> None:
        """Average exactly as DistributedDataParallel without a hook, bit for bit."""
        size = len(self._ranks.ranks)
        flat.mul_(1 / size)
        with span(EXCHANGE, ranks=self._ranks.ranks):
            dist.all_reduce(flat, group=self._ranks.group)
        # The library's own matter; a ring sends this; switches that add send less.
        sent = 2 * (size - 1) * flat.nbytes // size
        self._ranks.count(self._traffic, to=(self._ranks.position + 1) % size, sent=sent)

    def describe(self) -> dict[str, Any]:
        """Describe the reduction; bytes are those of a ring."""
        return {"bytes": "analytical"}


class Line:
    """Ranks of a row or a column of the grid."""

    def __init__(self, positions: Sequence[int], ranks: Ranks, *, traffic: Traffic) -> None:
        self._all = ranks
        self._traffic = traffic
        self._positions = list(positions)
        self.size = len(self._positions)
        self.own = self._positions.index(ranks.position)
        self._ranks = [ranks.ranks[position] for position in positions]
        self._group: dist.ProcessGroup | None = None
        if self.size == len(ranks.ranks):
            self._group = ranks.group
        elif self.size > 1:
            self._group = dist.new_group(self._ranks, use_local_synchronization=True)
        nodes = len({ranks.nodes[position] for position in positions})
        # All-to-all (one call, every pair) unless it would send more between nodes than a ring.
        self._ring = 1 < nodes < self.size

    def reduce_scatter(self, chunks: Tensor, *, codec: Codec, lost: Tensor | None) -> Tensor:
        """Return the mean of all ranks' chunks for this rank; `chunks` has one for each rank."""
        if self.size == 1:
            return chunks[0]
        reduce = self._reduce_ring if self._ring else self._reduce_all_to_all
        return reduce(chunks, codec=codec, lost=lost)

    def _reduce_all_to_all(self, chunks: Tensor, *, codec: Codec, lost: Tensor | None) -> Tensor:
        own_lost = None if lost is None else lost[self.own].clone()
        payload = encode(chunks, codec=codec, lost=lost)
        if lost is not None and own_lost is not None:
            lost[self.own] = own_lost  # the rank's own chunk is not sent here
        received = torch.empty_like(payload)
        with span(EXCHANGE, ranks=self._ranks):
            if payload.device.type == "cpu":
                self._exchange(received, payload)
            else:
                dist.all_to_all_single(received, payload, group=self._group)
        for position in range(self.size):
            if position != self.own:
                self._count(payload[position], to=position)
        with span(COPY_OUT):
            values = codec.decode(received, dtype=chunks.dtype)
            values[self.own] = chunks[self.own]
            return values.mean(0)

    def _reduce_ring(self, chunks: Tensor, *, codec: Codec, lost: Tensor | None) -> Tensor:
        """Pass chunks around a ring: at each hop a chunk becomes the mean of one more rank."""
        right, left = (self.own + 1) % self.size, (self.own - 1) % self.size
        partial = chunks[left]
        for hop in range(1, self.size):
            sending, receiving = (self.own - hop) % self.size, (self.own - hop - 1) % self.size
            payload = encode(
                partial, codec=codec, lost=None if lost is None else lost[sending]
            ).contiguous()
            received = torch.empty_like(payload)
            swap = [  # the receive first: see `_exchange`
                dist.P2POp(dist.irecv, received, self._ranks[left], group=self._group),
                dist.P2POp(dist.isend, payload, self._ranks[right], group=self._group),
            ]
            with span(EXCHANGE, ranks=(self._ranks[left], self._ranks[self.own])):
                for work in dist.batch_isend_irecv(swap):
                    work.wait()
            self._count(payload, to=right)
            with span(COPY_OUT):
                partial = codec.decode(received, dtype=chunks.dtype) * (hop / (hop + 1))
                partial.add_(chunks[receiving], alpha=1 / (hop + 1))
        return partial

    def all_gather(self, payload: Tensor) -> Tensor:
        """Gather all ranks' payloads, in the order of the line; libraries use a ring."""
        if self.size == 1:
            return payload.unsqueeze(0)
        gathered = payload.new_empty(self.size * payload.numel())
        with span(EXCHANGE, ranks=self._ranks):
            if self.size == 2 and payload.device.type == "cpu":
                rows = gathered.view(2, -1)
                rows[self.own] = payload.flatten()
                self._exchange(rows, payload.reshape(1, -1).expand(2, -1))
            else:
                _all_gather(gathered, payload.flatten(), group=self._group)
        for _ in range(self.size - 1):
            self._count(payload, to=(self.own + 1) % self.size)
        return gathered.view(self.size, *payload.shape)

    def _exchange(self, received: Tensor, sent: Tensor) -> None:
        """Send `sent[i]` to rank i of the line and fill `received[i]`, for all ranks but this one.

        gloo announces a receive in the stream of the pair's payload. A rank that sends before it
        announces makes its peer wait for the whole payload: the two directions of a pair would go
        one after the other. So all receives are posted first.
        """
        others = [(self.own + step) % self.size for step in range(1, self.size)]
        receives = [
            dist.P2POp(dist.irecv, received[other], self._ranks[other], group=self._group)
            for other in reversed(others)
        ]
        sends = [
            dist.P2POp(dist.isend, sent[other], self._ranks[other], group=self._group)
            for other in others
        ]
        for work in dist.batch_isend_irecv([*receives, *sends]):
            work.wait()

    def _count(self, payload: Tensor, *, to: int) -> None:
        self._all.count(self._traffic, to=self._positions[to], sent=payload.nbytes)


class Algorithm(Protocol):
    """Mean of a buffer that is cut into equal parts; every rank returns the same bytes."""

    parts: int
    """Number of equal parts of the buffer."""

    def average(self, parts: Tensor, *, codec: Codec, lost: Tensor | None) -> Tensor:
        """Return the encoded mean of each part; `lost` holds a rounding error for each value."""


class Grid:
    """Reduce-scatter along rows, all-reduce along columns, all-gather along rows."""

    def __init__(self, ranks: Ranks, *, grid: topology.Grid, traffic: Traffic) -> None:
        row, column = ranks.position // grid.row, ranks.position % grid.row
        self._row = Line(range(row * grid.row, (row + 1) * grid.row), ranks, traffic=traffic)
        self._column = Line(range(column, grid.row * grid.rows, grid.row), ranks, traffic=traffic)
        self.parts = self._row.size * self._column.size

    def average(self, parts: Tensor, *, codec: Codec, lost: Tensor | None) -> Tensor:
        """Reduce along row and column; the column's finished bytes are all-gathered unchanged."""
        rows, columns = self._row.size, self._column.size
        chunks = parts.view(rows, -1)
        lost = None if lost is None else lost.view(rows, -1)
        own = None if lost is None else lost[self._row.own].view(columns, -1)
        mean = self._row.reduce_scatter(chunks, codec=codec, lost=lost)
        mean = self._column.reduce_scatter(mean.view(columns, -1), codec=codec, lost=own)
        last = None if own is None else own[self._column.own]
        payload = encode(mean, codec=codec, lost=last)
        return self._row.all_gather(self._column.all_gather(payload))


class PartitionedAllReduce:
    """Pads and cuts a buffer for an algorithm, keeps rounding errors, decodes the mean."""

    def __init__(self, algorithm: Algorithm, *, precision: str) -> None:
        self._algorithm = algorithm
        self._precision = precision
        self.lost: dict[str, Tensor] = {}

    def __call__(self, flat: Tensor, *, key: str) -> None:
        """Average by the algorithm, in at least single precision."""
        wire = codec_for(self._precision, dtype=flat.dtype)
        accumulate = torch.promote_types(flat.dtype, torch.float32)
        count = self._algorithm.parts
        padding = -flat.numel() % (count * wire.multiple)
        parts = pad(flat, (0, padding)).to(accumulate).view(count, -1)
        lost = self._lost(key, parts, wire)
        everything = self._algorithm.average(parts, codec=wire, lost=lost)
        with span(COPY_OUT):
            flat.copy_(wire.decode(everything, dtype=accumulate).flatten()[: flat.numel()])

    def _lost(self, key: str, parts: Tensor, wire: Codec) -> Tensor | None:
        if not wire.feeds_back:
            return None
        if key not in self.lost:
            self.lost[key] = torch.zeros_like(parts)
        lost = self.lost[key].to(parts)
        if lost.numel() != parts.numel():
            raise AI500Error(
                f"{key} has {parts.numel()} values, error feedback has {lost.numel()} of it: the "
                "buffers changed.",
                remedy="Reset the collective after DDP has laid out its buckets.",
            )
        self.lost[key] = lost.view_as(parts)
        return self.lost[key]

    def describe(self) -> dict[str, Any]:
        """Describe the reduction; bytes are counted as they are sent."""
        return {"bytes": "counted"}


def encode(values: Tensor, *, codec: Codec, lost: Tensor | None) -> Tensor:
    """Encode `values` plus the last rounding errors; `lost` becomes the new errors."""
    if lost is None:
        return codec.encode(values)
    corrected = values + lost
    payload = codec.encode(corrected)
    # Infinities and NaNs pass through this step and are not fed back to the next one.
    lost.copy_((corrected - codec.decode(payload, dtype=values.dtype)).nan_to_num_(0, 0, 0))
    return payload


class Collective:
    """Mean of gradients over the ranks of a group."""

    def __init__(
        self,
        reduction: Reduction,
        *,
        traffic: Traffic,
        size: int,
        description: dict[str, Any],
        synchronous: bool | None = None,
    ) -> None:
        self.synchronous = synchronous
        """True: declares that no step ends before all ranks' gradients are averaged (V2 §5.1.6).

        The rules read this declaration; None: not declared.
        """
        self.traffic = traffic
        self._reduction = reduction
        self._size = size
        self._description = description
        self._thread: ThreadPoolExecutor | None = None
        self._streams: dict[torch.device, Any] = {}

    def all_reduce_mean(self, flat: Tensor, *, key: str = "flat") -> Tensor:
        """Average a contiguous one-dimensional buffer over the group, in place.

        Each buffer needs a `key` of its own, the same in each step.
        """
        if self._size > 1 and flat.numel():
            self.traffic.calls += 1
            with span(REDUCE, key=key):
                self._reduction(flat, key=key)
        return flat

    def ddp_hook(
        self,
        state: object,
        bucket: dist.GradBucket,  # type: ignore[name-defined]
    ) -> torch.futures.Future[torch.Tensor]:
        """Reduce a bucket, overlapped with the rest of the backward pass; a hook of DDP.

        Buckets are reduced one after another, in the order in which DDP has them ready.
        """
        buffer, key = bucket.buffer(), f"bucket {bucket.index()}"
        with span(READY, key=key):
            pass
        if buffer.device.type == "cpu":
            future: torch.futures.Future[torch.Tensor] = torch.futures.Future()
            self._thread = self._thread or ThreadPoolExecutor(1, "collective")
            self._thread.submit(self._fulfil, future, buffer, key)
            return future
        device_module = torch.get_device_module(buffer.device)
        if buffer.device not in self._streams:
            self._streams[buffer.device] = device_module.Stream(buffer.device)
        stream = self._streams[buffer.device]
        stream.wait_stream(device_module.current_stream(buffer.device))
        future = torch.futures.Future(devices=[buffer.device])
        with device_module.stream(stream):
            self._fulfil(future, buffer, key)
        return future

    def _fulfil(self, future: torch.futures.Future[Tensor], buffer: Tensor, key: str) -> None:
        try:
            with torch.no_grad():
                future.set_result(self.all_reduce_mean(buffer, key=key))
        except Exception as error:
            future.set_exception(error)  # type: ignore[arg-type]

    def reset(self) -> None:
        """Discard rounding errors and traffic counts, after DDP has laid out its buckets."""
        self.load_state_dict({"lost": {}})
        self.traffic.inside_node = self.traffic.between_nodes = self.traffic.calls = 0

    @property
    def keeps_memory(self) -> bool:
        """True if error feedback holds rounding errors."""
        return bool(self._reduction.lost)

    def state_dict(self) -> dict[str, Any]:
        """Return this rank's rounding errors; they differ from rank to rank."""
        return {"lost": {key: lost.cpu() for key, lost in self._reduction.lost.items()}}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore this rank's rounding errors."""
        self._reduction.lost = {key: lost.clone() for key, lost in state["lost"].items()}

    def describe(self) -> dict[str, Any]:
        """Return mode, precision and topology of the collective, for the member's record."""
        return {**self._description, **self._reduction.describe(), "traffic": asdict(self.traffic)}


def make(
    mode: str, precision: str, *, group: dist.ProcessGroup | None, local_size: int | Sequence[int]
) -> Collective:
    """Make the collective of that name; all ranks of `group` call this in the same order."""
    collective: Collective = plugins.load("collective", mode, key="communication.mode")(
        precision, group=group, local_size=local_size
    )
    return collective


def assemble(
    reduction: Reduction, *, ranks: Ranks, traffic: Traffic, **description: Any
) -> Collective:
    """Make a collective of a reduction; `description` names its mode, precision and topology."""
    description["nodes"] = len(set(ranks.nodes))
    return Collective(
        reduction,
        traffic=traffic,
        size=len(ranks.ranks),
        description=description,
        synchronous=True,
    )


def _on_grid(
    mode: str, precision: str, *, group: dist.ProcessGroup | None, local_size: int | Sequence[int]
) -> Collective:
    ranks, traffic = Ranks(group, local_size=local_size), Traffic()
    grid = topology.GRIDS[mode](ranks.nodes)
    reduction: Reduction
    if mode == "all_reduce" and precision == "fp32":
        reduction = LibraryAllReduce(ranks, traffic=traffic)
    else:
        algorithm = Grid(ranks, grid=grid, traffic=traffic)
        reduction = PartitionedAllReduce(algorithm, precision=precision)
    return assemble(
        reduction,
        ranks=ranks,
        traffic=traffic,
        mode=mode,
        precision=precision,
        grid=[grid.row, grid.rows],
    )


# Flat: the library's own, or with compression a grid of one row.
all_reduce = partial(_on_grid, "all_reduce")
# Inside each node, between nodes, inside each node.
hierarchical = partial(_on_grid, "hierarchical")
# Along rows, columns and rows of a nearly square grid.
torus_2d = partial(_on_grid, "torus_2d")
