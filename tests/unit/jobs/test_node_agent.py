"""The node agent: exit codes of ranks that torchrun started."""

from __future__ import annotations

from pathlib import Path

import pytest

from ai500.jobs.node_agent import exit_code_of_rank
from ai500.jobs.schedulers import ATTEMPT_MARK

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
