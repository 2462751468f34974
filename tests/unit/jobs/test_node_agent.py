"""The node agent: exit codes of ranks, and locks of workers that were started before."""

from __future__ import annotations

from pathlib import Path

import pytest

from ai500.core.heartbeat import sign
from ai500.jobs import node_agent
from ai500.jobs.node_agent import exit_code_of_rank
from ai500.jobs.schedulers import ATTEMPT_MARK
from ai500.records.run_folder import MemberFolder, lock_within

REPORT = """{mark}1 of member 0
Root Cause (first observed failure):
[0]:
  exitcode  : -11 (pid: 90)
{mark}2 of member 0
loading
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
Root Cause (first observed failure):
[0]:
  time      : 2026-11-17_04:00:00
  rank      : 1 (local_rank: 1)
  exitcode  : {code} (pid: 99)
  error_file: <N/A>
"""


@pytest.mark.parametrize(("code", "expected"), [(-9, 137), (3, 3), (1, 1)])
def test_the_rank_that_failed_gives_the_exit_code(tmp_path: Path, code: int, expected: int) -> None:
    log = tmp_path / "log.txt"
    log.write_text(REPORT.format(mark=ATTEMPT_MARK, code=code))
    assert exit_code_of_rank(log) == expected


def test_without_a_report_nothing_is_known(tmp_path: Path) -> None:
    log = tmp_path / "log.txt"
    assert exit_code_of_rank(log) is None
    log.write_text(f"{ATTEMPT_MARK}1 of member 0\nno report\n")
    assert exit_code_of_rank(log) is None


class _Uninterrupted:
    interrupted = False


@pytest.mark.parametrize(("attempt", "waits"), [("2", False), ("1", True)])
def test_only_a_worker_of_another_attempt_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, attempt: str, waits: bool
) -> None:
    """On the member's first node rank 0 may train already, and wait for this node's ranks."""
    waited: list[Path] = []
    monkeypatch.setattr(node_agent, "wait_while_beating", lambda lock, **_: waited.append(lock))
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    with (tmp_path / ".lock").open("a", encoding="utf-8") as file:
        assert lock_within(file, seconds=0.0)
        monkeypatch.setenv("AI500_ATTEMPT", attempt)
        sign(file)
        monkeypatch.setenv("AI500_ATTEMPT", "2")
        node_agent._wait_for_earlier_worker(MemberFolder(tmp_path), _Uninterrupted())  # type: ignore[arg-type]
    assert bool(waited) is waits
