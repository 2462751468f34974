"""Living processes, and their ancestors; a rank whose torchrun died while the rank began."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from ai500.core.processes import (
    AGENT_VARIABLE,
    children_of,
    is_descendant,
    is_running,
    parent_of,
    resident_bytes,
)
from tests.support.commands import SOURCE

pytestmark = pytest.mark.slow
KEEPER = """
import subprocess, sys
kept = bytearray(b"x") * (40 << 20)
if sys.argv[1:]:
    child = subprocess.Popen([sys.executable, "-c", sys.argv[1]], stdin=subprocess.PIPE)
print("kept", flush=True)
sys.stdin.read()
"""
RANK = """
import os, time
while {orphan} and os.getppid() == {torchrun}:
    time.sleep(0.01)
from ai500.train.worker import die_with_parent
die_with_parent()
print("training", flush=True)
"""
TORCHRUN = """
import os, subprocess, sys
rank = {rank!r}.format(torchrun=os.getpid(), orphan={orphan})
rank = subprocess.Popen([sys.executable, "-c", rank])
if not {orphan}:
    rank.wait()
"""


def output_of_rank(*, orphan: bool) -> str:
    rank = RANK.replace("{orphan}", str(orphan))
    return subprocess.run(
        [sys.executable, "-c", TORCHRUN.format(rank=rank, orphan=orphan)],
        env={**os.environ, "PYTHONPATH": str(SOURCE), AGENT_VARIABLE: str(os.getpid())},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=60,
    ).stdout


def test_a_rank_whose_torchrun_has_died_exits() -> None:
    assert output_of_rank(orphan=True) == ""


def test_a_rank_whose_torchrun_lives_trains() -> None:
    assert output_of_rank(orphan=False) == "training\n"


def test_parents_and_children() -> None:
    with subprocess.Popen(["sleep", "60"]) as child:
        assert parent_of(child.pid) == os.getpid()
        assert child.pid in children_of(os.getpid())
        assert is_running(str(child.pid))
        assert is_descendant(child.pid, of=os.getpid())
        assert is_descendant(child.pid, of=os.getppid())
        assert not is_descendant(os.getpid(), of=child.pid)
        child.kill()
    assert parent_of(child.pid) is None
    assert not any(map(is_running, (str(child.pid), "0", "-1", "", "9" * 30, "1.tmp")))
    assert is_running("1")  # root's
    assert not is_descendant(child.pid, of=os.getpid())


def test_memory_of_a_process_and_its_descendants() -> None:
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", KEEPER, KEEPER], **pipes) as parent:  # type: ignore[call-overload]
        for _ in range(2):
            assert parent.stdout.readline() == b"kept\n"
        both = resident_bytes(parent.pid)
        child = resident_bytes(*children_of(parent.pid))
        assert both is not None and child is not None
        assert child > 40 << 20
        assert both > child + (40 << 20)
        parent.stdin.close()
    assert resident_bytes(parent.pid) is None
