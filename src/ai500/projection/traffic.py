"""Messages of gradient averaging as rounds of transfers, by communication mode.

The rounds are those of `parallel.collectives` (lines of a grid) and `parallel.schedules` (messages
between ranks). Rounds that repeat are listed once with their number; of many rounds that differ
only in distance an even sample stands for all.

Folding: every node of a large member does the same as the others, so that a part of its nodes
(`platform.folded_nodes`) stands for all. Its rounds have the sizes and the numbers of the whole
member's, among the ranks of the part.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from ai500.core.errors import InputError
from ai500.parallel import schedules, topology

CONCURRENT_RANKS = 8
"""Ranks up to which an all-to-all is one round of all pairs; above: one round per distance."""
SAMPLED_ROUNDS = 8
"""Rounds that stand for all distances of an all-to-all, or all clients of a parameter server."""


@dataclass(frozen=True, slots=True)
class Round:
    """Concurrent transfers between ranks, made `times` times."""

    transfers: Sequence[tuple[int, int, float]]
    """Sender, receiver, bytes."""
    times: float


def folded_ranks(nodes: Sequence[int], *, most_nodes: int | None) -> int:
    """Return the ranks that stand for all; `nodes` has each rank's node, in ascending order."""
    if most_nodes is None or nodes[-1] < most_nodes:
        return len(nodes)
    return next(rank for rank, node in enumerate(nodes) if node >= most_nodes)


def rounds(
    mode: str,
    nodes: Sequence[int],
    *,
    buffer: float,
    library: bool,
    most_nodes: int | None = None,
) -> list[Round]:
    """Return the rounds that average a buffer of `buffer` wire bytes; `nodes` has each rank's node.

    `library`: a flat all-reduce is the communication library's own, a ring (FP32). `most_nodes`:
    nodes that stand for all; None: each for itself.
    """
    size = len(nodes)
    if size == 1:
        return []
    part = folded_ranks(nodes, most_nodes=most_nodes)
    if mode == "ring" or (mode == "all_reduce" and library):
        return [_shift([range(part)], 1, buffer / size, times=2 * (size - 1))]
    if mode in topology.GRIDS:
        return _on_grid(topology.GRIDS[mode](nodes), nodes, buffer, part=part)
    if mode == "parameter_server":
        clients = sampled(range(1, part))
        gather = [Round([(client, 0, buffer)], (size - 1) / len(clients)) for client in clients]
        # The server's link carries all of it, whoever receives.
        share = (size - 1) / (part - 1)
        return [*gather, Round([(0, client, share * buffer) for client in range(1, part)], 1)]
    if mode == "double_binary_tree":
        # The levels that the whole tree has more are as the part's middle one.
        levels = list(_mirrored(mode, part, buffer))
        more = math.ceil(math.log2(size)) - math.ceil(math.log2(part))
        return [replace(levels[len(levels) // 2], times=2 * more), *levels] if more else levels
    if mode == "butterfly":
        return list(_butterfly(size, part, buffer))
    raise InputError(
        f"communication.mode = {mode!r}: a plugin's mode has no known messages to project.",
        key="communication.mode",
        value=mode,
        remedy=f"Choose one of {', '.join([*topology.GRIDS, *schedules.ROUNDS])}.",
    )


def sharded_rounds(
    nodes: Sequence[int], *, buffer: float, passes: int, most_nodes: int | None = None
) -> list[Round]:
    """Return the rounds of FSDP2: `passes` times a ring of half an all-reduce."""
    size = len(nodes)
    if size == 1:
        return []
    part = folded_ranks(nodes, most_nodes=most_nodes)
    return [_shift([range(part)], 1, buffer / size, times=passes * (size - 1))]


def sampled(places: range) -> list[int]:
    """Return at most SAMPLED_ROUNDS places, evenly spread, the first and the last among them."""
    if len(places) <= SAMPLED_ROUNDS:
        return list(places)
    step = (len(places) - 1) / (SAMPLED_ROUNDS - 1)
    return [places[round(index * step)] for index in range(SAMPLED_ROUNDS)]


def _mirrored(mode: str, size: int, buffer: float) -> Iterator[Round]:
    """Yield the first half of the rounds twice: the second has the same messages the other way."""
    everything = list(schedules.rounds(mode, size))
    for transfers in everything[: len(everything) // 2]:
        yield Round([(t.sender, t.receiver, t.share * buffer) for t in transfers], 2)


def _butterfly(size: int, part: int, buffer: float) -> Iterator[Round]:
    """Yield the exchanges; distances beyond the part are as far as the part's farthest."""
    if part == size:
        yield from _mirrored("butterfly", size, buffer)
        return
    stages = range(size.bit_length() - 1)
    if size & (size - 1) == 0:
        for stage in stages:
            yield Round(_exchanges(range(part), stage, buffer / (2 << stage)), 2)
        return
    # In the first half every second rank folds its buffer into its neighbour's, and the others
    # exchange; in the second half all do. Nodes of both kinds are in the part.
    yield Round([(rank, rank + 1, buffer) for rank in range(0, part // 2 - 1, 2)], 2)
    halves = range(1, part // 2, 2), range(part // 2, part)
    for stage in stages:
        share = buffer / (2 << stage)
        yield Round([pair for half in halves for pair in _exchanges(half, stage, share)], 2)


def _exchanges(ranks: range, stage: int, size: float) -> list[tuple[int, int, float]]:
    """Return what each of a power of two of these ranks sends to its partner of a stage."""
    power = 1 << (len(ranks).bit_length() - 1)
    distance = min(1 << stage, power // 2)
    return [(ranks[place], ranks[place ^ distance], size) for place in range(power)]


def _on_grid(grid: topology.Grid, nodes: Sequence[int], buffer: float, *, part: int) -> list[Round]:
    size = len(nodes)
    # Rows stay whole where the part has at least two of them.
    row = grid.row if 2 * grid.row <= part or grid.rows == 1 else part // 2
    row = min(row, part)
    rows = min(grid.rows, part // row)
    lines = [range(first, first + row) for first in range(0, row * rows, row)]
    columns = [range(first, row * rows, row) for first in range(row)]
    result = []
    if grid.row > 1:
        result += [
            *_reduce_scatter(lines, nodes, buffer / grid.row, ranks=grid.row),
            _shift(lines, 1, buffer / grid.row, times=grid.row - 1),
        ]
    if grid.rows > 1:
        result += [
            *_reduce_scatter(columns, nodes, buffer / size, ranks=grid.rows),
            _shift(columns, 1, buffer / size, times=grid.rows - 1),
        ]
    return result


def _reduce_scatter(
    lines: Sequence[range], nodes: Sequence[int], chunk: float, *, ranks: int
) -> list[Round]:
    """Reduce along lines as `collectives.Line`: a ring where nodes hold several ranks of a line.

    `ranks` is the length of a line in the whole member.
    """
    size = len(lines[0])
    if 1 < len({nodes[rank] for rank in lines[0]}) < size:
        return [_shift(lines, 1, chunk, times=ranks - 1)]
    if ranks <= CONCURRENT_RANKS:
        pairs = [
            (sender, receiver, chunk)
            for line in lines
            for sender in line
            for receiver in line
            if sender != receiver
        ]
        return [Round(pairs, (ranks - 1) / (size - 1))]
    distances = sampled(range(1, size))
    times = (ranks - 1) / len(distances)
    return [_shift(lines, distance, chunk, times=times) for distance in distances]


def _shift(lines: Sequence[range], distance: int, chunk: float, *, times: float) -> Round:
    transfers = [
        (line[place], line[(place + distance) % len(line)], chunk)
        for line in lines
        for place in range(len(line))
    ]
    return Round(transfers, times)
