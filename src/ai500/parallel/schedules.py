"""Message schedules of the point-to-point collectives: who sends what, in which round. No torch.

    ring                n − 1 rounds around the ring, twice      Patarasuk and Yuan, 2009
    double_binary_tree  two trees, half of the buffer on each    Sanders, Speck and Träff, 2009
    butterfly           recursive halving, then doubling         Rabenseifner, 2004
    parameter_server    all ranks to one rank, and back          Li et al., 2014; synchronous here

All ranks go through the same rounds in the same order, so a round never waits for a later one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property


@dataclass(frozen=True, slots=True)
class Transfer:
    """One message; ranks are positions in their group."""

    sender: int
    receiver: int
    share: float
    """Share of the whole buffer that is sent."""


@dataclass(frozen=True)
class Tree:
    """A tree through all ranks: partial means go up to the root, the mean comes down."""

    parents: tuple[int | None, ...]
    """Parent of each rank; None: the root."""

    @cached_property
    def children(self) -> tuple[tuple[int, ...], ...]:
        """Children of each rank."""
        ranks = range(len(self.parents))
        return tuple(
            tuple(child for child in ranks if self.parents[child] == rank) for rank in ranks
        )

    @cached_property
    def depths(self) -> tuple[int, ...]:
        """Edges between each rank and the root."""
        return tuple(self._depth(rank) for rank in range(len(self.parents)))

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """Ranks of the subtree below each rank, itself included."""
        sizes = [1] * len(self.parents)
        for rank in sorted(range(len(sizes)), key=lambda rank: -self.depths[rank]):
            parent = self.parents[rank]
            if parent is not None:
                sizes[parent] += sizes[rank]
        return tuple(sizes)

    def _depth(self, rank: int) -> int:
        parent = self.parents[rank]
        return 0 if parent is None else 1 + self._depth(parent)


def double_binary_tree(size: int) -> tuple[Tree, Tree]:
    """Return two binary trees; the inner ranks of one are leaves of the other.

    With an odd number of ranks, rank 0 alone is an inner rank of both, with one child in each.
    """
    parents = [_binary_parent(rank, size=size) for rank in range(size)]
    if size % 2 == 0:  # mirrored: odd and even ranks change places
        second = [size - 1 - rank for rank in range(size)]
    else:  # shifted by one rank
        second = [(rank + 1) % size for rank in range(size)]
    moved: list[int | None] = [None] * size
    for rank, parent in enumerate(parents):
        moved[second[rank]] = None if parent is None else second[parent]
    return Tree(tuple(parents)), Tree(tuple(moved))


def _binary_parent(rank: int, *, size: int) -> int | None:
    """Return the parent in a tree whose odd ranks are leaves, and whose root is rank 0."""
    if rank == 0:
        return None
    bit = rank & -rank
    parent = (rank ^ bit) | (bit << 1)
    return parent if parent < size else rank ^ bit


@dataclass(frozen=True)
class Butterfly:
    """Recursive halving and doubling among the largest power of two of the ranks.

    Of `size − power` pairs of ranks, the first of each folds its buffer into the second's before,
    and receives the mean after. The distance doubles as messages halve, so that large messages go
    to near ranks.
    """

    size: int

    @cached_property
    def power(self) -> int:
        """Ranks that halve and double, a power of two."""
        return 1 << (self.size.bit_length() - 1)

    @property
    def stages(self) -> int:
        """Exchanges of halving."""
        return self.power.bit_length() - 1

    @property
    def folded(self) -> int:
        """Ranks that only fold: 0, 2, 4, …"""
        return self.size - self.power

    def place(self, rank: int) -> int | None:
        """Return a rank's place among those that halve and double; None: it folds."""
        if rank < 2 * self.folded:
            return rank // 2 if rank % 2 else None
        return rank - self.folded

    def rank_at(self, place: int) -> int:
        """Return the rank at a place."""
        return 2 * place + 1 if place < self.folded else place + self.folded

    def weight(self, place: int, *, stage: int) -> int:
        """Return the ranks in the partial mean that a place holds before a stage."""
        first = place >> stage << stage
        places = range(first, first + (1 << stage))
        return len(places) + sum(place < self.folded for place in places)

    def segment(self, place: int, *, stage: int) -> range:
        """Return the parts, of `power`, that a place holds before a stage of halving."""
        first = sum((place >> bit & 1) * (self.power >> bit + 1) for bit in range(stage))
        return range(first, first + (self.power >> stage))


def rounds(mode: str, size: int) -> Iterator[list[Transfer]]:
    """Yield the messages of each round of a mode."""
    yield from ROUNDS[mode](size)


def _ring(size: int) -> Iterator[list[Transfer]]:
    for _ in range(2 * (size - 1)):
        yield [Transfer(rank, (rank + 1) % size, 1 / size) for rank in range(size)]


def _double_binary_tree(size: int) -> Iterator[list[Transfer]]:
    upward: list[list[Transfer]] = []
    trees = double_binary_tree(size)
    deepest = max(depth for tree in trees for depth in tree.depths)
    for level in range(deepest, 0, -1):
        upward.append(
            [
                Transfer(rank, parent, 0.5)
                for tree in trees
                for rank, parent in enumerate(tree.parents)
                if parent is not None and tree.depths[rank] == level
            ]
        )
    yield from upward
    for transfers in reversed(upward):
        yield [Transfer(up.receiver, up.sender, up.share) for up in transfers]


def _butterfly(size: int) -> Iterator[list[Transfer]]:
    butterfly = Butterfly(size)
    fold = [Transfer(2 * pair, 2 * pair + 1, 1.0) for pair in range(butterfly.folded)]
    if fold:
        yield fold
    stages = range(butterfly.stages)
    for stage in (*stages, *reversed(stages)):
        yield [
            Transfer(
                butterfly.rank_at(place),
                butterfly.rank_at(place ^ 1 << stage),
                1 / (2 << stage),
            )
            for place in range(butterfly.power)
        ]
    if fold:
        yield [Transfer(up.receiver, up.sender, up.share) for up in fold]


def _parameter_server(size: int) -> Iterator[list[Transfer]]:
    for rank in range(1, size):
        yield [Transfer(rank, 0, 1.0)]
    if size > 1:
        yield [Transfer(0, rank, 1.0) for rank in range(1, size)]


ROUNDS: dict[str, Callable[[int], Iterator[list[Transfer]]]] = {
    "ring": _ring,
    "double_binary_tree": _double_binary_tree,
    "butterfly": _butterfly,
    "parameter_server": _parameter_server,
}
"""Communication mode → function from the number of ranks to the messages of each round."""
