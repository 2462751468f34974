"""Rounds of messages: what holds for any number of ranks."""

from __future__ import annotations

from collections import defaultdict

import pytest

from ai500.parallel.schedules import ROUNDS, Butterfly, double_binary_tree, rounds

SIZES = (*range(1, 34), 63, 64, 65, 100)


@pytest.mark.parametrize("size", SIZES)
def test_both_trees_reach_all_ranks_and_share_the_work(size: int) -> None:
    """Sanders et al.: no rank sends more than the whole buffer down, whatever their number."""
    trees = double_binary_tree(size)
    for tree in trees:
        root = tree.parents.index(None)
        assert tree.parents.count(None) == 1
        assert tree.sizes[root] == size
        assert max(map(len, tree.children)) <= 2
        assert max(tree.depths) <= size.bit_length()
    both = [rank for rank in range(size) if all(tree.children[rank] for tree in trees)]
    assert both == ([0] if size % 2 and size > 1 else [])
    assert max(sum(len(tree.children[rank]) for tree in trees) for rank in range(size)) <= 2


@pytest.mark.parametrize("size", SIZES)
def test_butterfly_ends_with_a_part_of_all_ranks_at_each_place(size: int) -> None:
    butterfly = Butterfly(size)
    places = range(butterfly.power)
    finished = [butterfly.segment(place, stage=butterfly.stages) for place in places]
    assert sorted(part for segment in finished for part in segment) == list(places)
    assert {butterfly.weight(place, stage=butterfly.stages) for place in places} == {size}
    assert sorted(butterfly.rank_at(place) for place in places) == [
        rank for rank in range(size) if butterfly.place(rank) is not None
    ]
    assert all(butterfly.place(butterfly.rank_at(place)) == place for place in places)


@pytest.mark.parametrize("mode", ROUNDS)
@pytest.mark.parametrize("size", SIZES)
def test_every_gradient_reaches_every_rank(mode: str, size: int) -> None:
    """In the order of rounds, each rank hears of each other rank, and never sends to itself."""
    known = [{rank} for rank in range(size)]
    for transfers in rounds(mode, size):
        before = [set(ranks) for ranks in known]
        for transfer in transfers:
            assert transfer.sender != transfer.receiver
            known[transfer.receiver] |= before[transfer.sender]
    assert all(ranks == set(range(size)) for ranks in known)


@pytest.mark.parametrize("size", [2, 4, 8, 64])
def test_ring_and_butterfly_send_the_least_that_is_possible(size: int) -> None:
    """2 (n − 1)/n of the buffer from each rank; the double tree sends at most twice the buffer."""
    for mode, most in (("ring", 2 * (size - 1) / size), ("butterfly", 2 * (size - 1) / size),
                       ("double_binary_tree", 2.0)):  # fmt: skip
        sent: dict[int, float] = defaultdict(float)
        for transfers in rounds(mode, size):
            for transfer in transfers:
                sent[transfer.sender] += transfer.share
        assert max(sent.values()) <= most + 1e-9, mode
