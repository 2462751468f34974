"""Ranks of a member that straddles nodes [D17], started by torchrun as on its nodes."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from ai500.core.errors import AI500Error
from ai500.frameworks.protocol import NodePlace
from ai500.frameworks.pytorch import PYTORCH
from ai500.records import Task
from ai500.records.run_folder import MemberFolder
from tests.support.small_search import task as small_task

RANKS = """
import json, os, sys
names = ("RANK", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "WORLD_SIZE", "GROUP_RANK")
place = {name: int(os.environ[name]) for name in names}
json.dump(place, open(os.path.join(sys.argv[1], f"{place['RANK']}.json"), "w"))
"""


@pytest.fixture
def task(tmp_path: Path) -> Task:
    return dataclasses.replace(small_task(tmp_path), parallel_degree=3, folder=str(tmp_path))


def place(index: int, *ranks: int) -> NodePlace:
    return NodePlace(index=index, count=2, node=f"n{index}", job="1", ranks=ranks)


def test_torchrun_numbers_unequal_ranks_node_by_node(
    task: Task, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AI500_HEAD", "127.0.0.1")
    script = tmp_path / "ranks.py"
    script.write_text(RANKS)
    started = []
    for index in (0, 1):
        command = PYTORCH.command(task, folder=MemberFolder(tmp_path), place=place(index, 2, 1))
        torchrun = command.words[: command.words.index("--no-python") + 1]
        words = [*torchrun, sys.executable, str(script), str(tmp_path)]
        started.append(subprocess.Popen(words, env=os.environ | {"OMP_NUM_THREADS": "1"}))
    assert [process.wait(timeout=240) for process in started] == [0, 0]
    places = [json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(3)]
    assert [(p["GROUP_RANK"], p["LOCAL_RANK"], p["LOCAL_WORLD_SIZE"]) for p in places] == [
        (0, 0, 2), (0, 1, 2), (1, 0, 1),
    ]  # fmt: skip
    assert {p["WORLD_SIZE"] for p in places} == {3}


def test_a_place_knows_its_ranks(task: Task) -> None:
    assert [place(i, 2, 1).local_ranks(task) for i in (0, 1)] == [2, 1]
    assert [place(i, 2, 1).first_rank(task) for i in (0, 1)] == [0, 2]
    equal = dataclasses.replace(task, parallel_degree=4)
    assert [place(i).local_ranks(equal) for i in (0, 1)] == [2, 2]
    assert [place(i).first_rank(equal) for i in (0, 1)] == [0, 2]
    with pytest.raises(AI500Error) as refused:
        place(0, 2, 2).local_ranks(task)
    assert (refused.value.key, refused.value.value) == ("parallel_degree", (2, 2))
