"""All-reduce by point-to-point messages: ring, double binary tree, butterfly, parameter server.

The rounds are those of `schedules`. In each, a rank combines what it receives with what it holds as
means weighted by the ranks behind them, in at least single precision. The rank that finishes a part
encodes it once; its bytes are passed on unchanged and decoded on every rank, so all ranks end with
the same bits. A rank encodes each value of its buffer at most once per step, which error feedback
needs (see `collectives`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import torch
import torch.distributed as dist
from torch import Tensor

from ai500.parallel import schedules
from ai500.parallel.collectives import (
    Algorithm,
    Collective,
    PartitionedAllReduce,
    Ranks,
    Traffic,
    assemble,
    encode,
)
from ai500.parallel.compression import Codec
from ai500.parallel.spans import COPY_OUT, EXCHANGE, span


class Messages:
    """Point-to-point messages between the ranks of a group, named by their positions."""

    def __init__(self, ranks: Ranks, *, traffic: Traffic) -> None:
        self._ranks = ranks
        self._traffic = traffic
        self.size = len(ranks.ranks)
        self.own = ranks.position
        if self.size > 1:
            # NCCL connects a group in its first call, in which all ranks must take part.
            dist.barrier(group=ranks.group)

    def exchange(
        self,
        *,
        sent: Sequence[tuple[int, Tensor]] = (),
        received: Sequence[tuple[int, Tensor]] = (),
    ) -> None:
        """Send and receive the messages of one round; each is a rank and a contiguous tensor.

        Every rank calls this in every round, also without messages: a profile counts rounds.
        """
        ranks, group = self._ranks.ranks, self._ranks.group
        # Receives first: see `collectives.Line._exchange`.
        operations = [
            dist.P2POp(dist.irecv, t, ranks[source], group=group) for source, t in received
        ]
        operations += [dist.P2POp(dist.isend, t, ranks[to], group=group) for to, t in sent]
        # A receiver waits for its senders; a sender may go on.
        waits_for = {self.own, *(source for source, _ in received)}
        with span(EXCHANGE, ranks=[ranks[rank] for rank in sorted(waits_for)]):
            for work in dist.batch_isend_irecv(operations) if operations else ():
                work.wait()
        for to, tensor in sent:
            self._ranks.count(self._traffic, to=to, sent=tensor.nbytes)


class Ring:
    """Pass partial means, then finished parts, to the right neighbour."""

    def __init__(self, messages: Messages) -> None:
        self._messages = messages
        self.parts = messages.size

    def average(self, parts: Tensor, *, codec: Codec, lost: Tensor | None) -> Tensor:
        """Reduce-scatter in n − 1 rounds, all-gather in n − 1 rounds."""
        size, own = self.parts, self._messages.own
        right, left = (own + 1) % size, (own - 1) % size
        mean = parts[left]
        for hop in range(1, size):
            sending, receiving = (own - hop) % size, (own - hop - 1) % size
            payload = encode(mean, codec=codec, lost=None if lost is None else lost[sending])
            incoming = torch.empty_like(payload)
            self._messages.exchange(sent=[(right, payload)], received=[(left, incoming)])
            mean = _combine(
                codec.decode(incoming, dtype=parts.dtype), parts[receiving], weights=(hop, 1)
            )
        payload = encode(mean, codec=codec, lost=None if lost is None else lost[own])
        gathered = payload.new_empty(size, payload.numel())
        gathered[own] = payload
        for hop in range(size - 1):
            self._messages.exchange(
                sent=[(right, gathered[(own - hop) % size])],
                received=[(left, gathered[(own - hop - 1) % size])],
            )
        return gathered


class DoubleBinaryTree:
    """Reduce to the root and broadcast from it, one half of the buffer in each of two trees."""

    parts = 2

    def __init__(self, messages: Messages) -> None:
        self._messages = messages
        self._trees = schedules.double_binary_tree(messages.size)
        self._deepest = max(depth for tree in self._trees for depth in tree.depths)

    def average(self, parts: Tensor, *, codec: Codec, lost: Tensor | None) -> Tensor:
        """Take both trees level by level, so that both use the links at once."""
        own = self._messages.own
        means = list(parts)
        weights = [1, 1]
        # Every rank encodes each half once: for its parent, or as the root's finished mean.
        payload = torch.empty_like(codec.encode(parts))
        for level in range(self._deepest, -1, -1):
            senders = [tree for tree in (0, 1) if self._trees[tree].depths[own] == level]
            for tree in senders:
                residual = None if lost is None else lost[tree]
                payload[tree] = encode(means[tree], codec=codec, lost=residual)
            if level == 0:
                break
            incoming = [
                (tree, child, torch.empty_like(payload[tree]))
                for tree in (0, 1)
                for child in self._trees[tree].children[own]
                if self._trees[tree].depths[child] == level
            ]
            self._messages.exchange(
                sent=[(self._parent(tree), payload[tree]) for tree in senders],
                received=[(child, message) for _, child, message in incoming],
            )
            for tree, child, message in incoming:
                weight = self._trees[tree].sizes[child]
                decoded = codec.decode(message, dtype=parts.dtype)
                means[tree] = _combine(means[tree], decoded, weights=(weights[tree], weight))
                weights[tree] += weight
        self._broadcast(payload)
        return payload

    def _broadcast(self, payload: Tensor) -> None:
        """Pass each root's bytes down its tree."""
        own = self._messages.own
        for level in range(1, self._deepest + 1):
            depths = [tree.depths for tree in self._trees]
            self._messages.exchange(
                sent=[
                    (child, payload[tree])
                    for tree in (0, 1)
                    for child in self._trees[tree].children[own]
                    if depths[tree][child] == level
                ],
                received=[
                    (self._parent(tree), payload[tree])
                    for tree in (0, 1)
                    if depths[tree][own] == level
                ],
            )

    def _parent(self, tree: int) -> int:
        parent = self._trees[tree].parents[self._messages.own]
        assert parent is not None  # the root has depth 0, and sends to no parent
        return parent


class Butterfly:
    """Recursive halving and doubling; ranks beyond a power of two fold into a neighbour."""

    def __init__(self, messages: Messages) -> None:
        self._messages = messages
        self._schedule = schedules.Butterfly(messages.size)
        self._place = self._schedule.place(messages.own)
        self.parts = self._schedule.power

    def average(self, parts: Tensor, *, codec: Codec, lost: Tensor | None) -> Tensor:
        """Fold, halve, double, unfold."""
        if self._place is None:
            return self._folded(parts, codec=codec, lost=lost)
        folds = self._place < self._schedule.folded
        if self._schedule.folded:
            incoming = torch.empty_like(codec.encode(parts))
            self._messages.exchange(received=[(self._messages.own - 1, incoming)] if folds else [])
            if folds:
                decoded = codec.decode(incoming, dtype=parts.dtype)
                parts = _combine(parts, decoded, weights=(1, 1))
        gathered = self._double(self._halve(parts, codec=codec, lost=lost))
        if self._schedule.folded:
            self._messages.exchange(sent=[(self._messages.own - 1, gathered)] if folds else [])
        return gathered

    def _halve(self, parts: Tensor, *, codec: Codec, lost: Tensor | None) -> Tensor:
        """Exchange halves with ranks at distances 1, 2, 4, …; return the finished part's bytes."""
        schedule, place = self._schedule, self._own_place
        means = parts
        for stage in range(schedule.stages):
            partner = place ^ 1 << stage
            before = schedule.segment(place, stage=stage)
            kept, sent = (schedule.segment(p, stage=stage + 1) for p in (place, partner))
            payload = encode(
                means[sent.start - before.start : sent.stop - before.start],
                codec=codec,
                lost=None if lost is None else lost[sent.start : sent.stop],
            )
            incoming = torch.empty_like(payload)
            to = schedule.rank_at(partner)
            self._messages.exchange(sent=[(to, payload)], received=[(to, incoming)])
            means = _combine(
                means[kept.start - before.start : kept.stop - before.start],
                codec.decode(incoming, dtype=parts.dtype),
                weights=(
                    schedule.weight(place, stage=stage),
                    schedule.weight(partner, stage=stage),
                ),
            )
        own = schedule.segment(place, stage=schedule.stages)
        payload = encode(
            means, codec=codec, lost=None if lost is None else lost[own.start : own.stop]
        )
        gathered = payload.new_empty(self.parts, payload.shape[-1])
        gathered[own.start] = payload[0]
        return gathered

    def _double(self, gathered: Tensor) -> Tensor:
        """Exchange all finished parts with ranks at distances …, 4, 2, 1."""
        schedule, place = self._schedule, self._own_place
        for stage in reversed(range(schedule.stages)):
            partner = place ^ 1 << stage
            own, other = (schedule.segment(p, stage=stage + 1) for p in (place, partner))
            to = schedule.rank_at(partner)
            self._messages.exchange(
                sent=[(to, gathered[own.start : own.stop])],
                received=[(to, gathered[other.start : other.stop])],
            )
        return gathered

    def _folded(self, parts: Tensor, *, codec: Codec, lost: Tensor | None) -> Tensor:
        """Give the buffer to the next rank, and receive the mean from it."""
        payload = encode(parts, codec=codec, lost=lost)
        self._messages.exchange(sent=[(self._messages.own + 1, payload)])
        for _ in range(2 * self._schedule.stages):
            self._messages.exchange()
        gathered = torch.empty_like(payload)
        self._messages.exchange(received=[(self._messages.own + 1, gathered)])
        return gathered

    @property
    def _own_place(self) -> int:
        assert self._place is not None  # ranks that fold do not halve
        return self._place


class ParameterServer:
    """Rank 0 receives all gradients, averages them, and sends the mean to all: synchronous.

    Rank 0 also trains. Weights are not held by the server alone: every rank applies the mean.
    """

    parts = 1

    def __init__(self, messages: Messages) -> None:
        self._messages = messages

    def average(self, parts: Tensor, *, codec: Codec, lost: Tensor | None) -> Tensor:
        """Push in the order of ranks, so that the server holds one buffer besides its own."""
        size, own = self._messages.size, self._messages.own
        payload = torch.empty_like(codec.encode(parts))
        mean = parts
        if own != 0:
            payload = encode(parts, codec=codec, lost=lost)
        for rank in range(1, size):
            self._messages.exchange(
                sent=[(0, payload)] if own == rank else [],
                received=[(rank, payload)] if own == 0 else [],
            )
            if own == 0:
                decoded = codec.decode(payload, dtype=parts.dtype)
                mean = _combine(mean, decoded, weights=(rank, 1))
        if own == 0:
            payload = encode(mean, codec=codec, lost=lost)
        self._messages.exchange(
            sent=[(rank, payload) for rank in range(1, size)] if own == 0 else [],
            received=[] if own == 0 else [(0, payload)],
        )
        return payload


def _combine(first: Tensor, second: Tensor, *, weights: tuple[int, int]) -> Tensor:
    """Return the weighted mean of two partial means."""
    total = sum(weights)
    with span(COPY_OUT):
        return (first * (weights[0] / total)).add_(second, alpha=weights[1] / total)


ALGORITHMS: dict[str, Callable[[Messages], Algorithm]] = {
    "ring": Ring,
    "double_binary_tree": DoubleBinaryTree,
    "butterfly": Butterfly,
    "parameter_server": ParameterServer,
}


def _make(
    mode: str, precision: str, *, group: dist.ProcessGroup | None, local_size: int | Sequence[int]
) -> Collective:
    ranks, traffic = Ranks(group, local_size=local_size), Traffic()
    algorithm = ALGORITHMS[mode](Messages(ranks, traffic=traffic))
    reduction = PartitionedAllReduce(algorithm, precision=precision)
    rounds = len(list(schedules.rounds(mode, len(ranks.ranks))))
    return assemble(
        reduction, ranks=ranks, traffic=traffic, mode=mode, precision=precision, rounds=rounds
    )


ring = partial(_make, "ring")
double_binary_tree = partial(_make, "double_binary_tree")
butterfly = partial(_make, "butterfly")
parameter_server = partial(_make, "parameter_server")
