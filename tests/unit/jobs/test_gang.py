"""The file of a gang's members by node."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from ai500.core.errors import RunFolderError
from ai500.jobs.gang import GangPart, members_of, parts_by_node, read_node, write_gang
from ai500.jobs.schedulers import JobSpec
from ai500.records import NodeSlots


def job(member: int, *shares: tuple[str, tuple[int, ...]], attempt: int = 1) -> JobSpec:
    places = tuple(NodeSlots(node, slots) for node, slots in shares)
    return JobSpec((member,), attempt, ("python",), {}, Path("log"), places)


def test_members_of_a_part_of_a_node_and_of_several_nodes() -> None:
    jobs = [
        job(0, ("n1", (0, 1)), attempt=2),
        job(1, ("n1", (2, 3))),
        job(2, ("n2", (0, 1, 2, 3)), ("n3", (0, 1, 2, 3))),
        job(3, ("n1", (0, 1))),
    ]
    n1, n2, n3 = parts_by_node(jobs, waves=[0, 0, 0, 1])
    assert [(part.member, part.attempt, part.wave, part.slots) for part in n1.parts] == [
        (0, 2, 0, (0, 1)), (1, 1, 0, (2, 3)), (3, 1, 1, (0, 1)),
    ]  # fmt: skip
    whole = GangPart(2, 1, 0, (0, 1, 2, 3), index=0, count=2, head=1)
    assert n2.parts == (whole,)
    assert n3.parts == (dataclasses.replace(whole, index=1),)


def test_a_member_that_straddles_nodes_has_its_ranks_on_each() -> None:
    jobs = [job(0, ("a", (0, 1, 2, 3)), ("b", (0, 1))), job(1, ("b", (2, 3)), ("c", (0, 1, 2, 3)))]
    a, b, c = parts_by_node(jobs, waves=[0, 0])
    assert [part.ranks for part in (*a.parts, *b.parts, *c.parts)] == ["4,2", "4,2", "2,4", "2,4"]
    assert [part.slots for part in b.parts] == [(0, 1), (2, 3)]
    assert [part.head for part in c.parts] == [1]


def test_slots_count_among_those_that_the_gang_has_on_the_node() -> None:
    """A retry of one member requests its slots only, and Slurm numbers them from 0."""
    [node] = parts_by_node([job(5, ("n7", (2, 3)))], waves=[0])
    assert node.parts[0].slots == (0, 1)


def test_each_node_reads_its_own_line(tmp_path: Path) -> None:
    jobs = [job(member, (f"n{member // 3:04d}", (member % 3,))) for member in range(300)]
    nodes = parts_by_node(jobs, waves=[0] * 300)
    file = tmp_path / "001.gang"
    write_gang(file, nodes)
    assert [read_node(file, number) for number in range(100)] == nodes
    assert members_of(file) == list(range(300))


@pytest.mark.parametrize("damage", ["missing", "changed", "cut"])
def test_a_damaged_file_is_one_error(tmp_path: Path, damage: str) -> None:
    file = tmp_path / "001.gang"
    write_gang(file, parts_by_node([job(0, ("n1", (0,)))], waves=[0]))
    if damage == "missing":
        file.unlink()
    else:
        text = file.read_text()
        file.write_text(text.replace('"wave": 0', '"wave": 1') if damage == "changed" else text[:9])
    with pytest.raises(RunFolderError) as caught:
        read_node(file, 0)
    assert caught.value.path == file
