"""Why a worker died: the cause, its text, and an advice that helps."""

from __future__ import annotations

import pytest

from ai500.records import JobRecord, WorkerExit
from ai500.records.worker_exit import ExitCause, exit_cause, exit_remedy, signal_of


def ended(code: int, *, out_of_memory: bool | None = None) -> WorkerExit:
    return WorkerExit(1, "node", code, out_of_memory)


@pytest.mark.parametrize(
    ("code", "state", "exits", "cause"),
    [
        (137, None, [ended(137, out_of_memory=True)], "out_of_memory"),
        (1, None, [ended(1, out_of_memory=False), ended(1, out_of_memory=True)], "out_of_memory"),
        (None, "OUT_OF_MEMORY", [], "out_of_memory"),
        (137, None, [ended(137, out_of_memory=False)], "signal"),
        (137, None, [ended(137)], "signal"),
        (139, None, [ended(139)], "signal"),
        (-9, None, [], "signal"),
        (-15, "TIMEOUT", [], "time_limit"),
        (None, "DEADLINE", [], "time_limit"),
        (None, "NODE_FAIL", [], "node_failure"),
        (0, "PREEMPTED", [], "preempted"),
        (127, "FAILED", [], "not_started"),
        (126, None, [], "not_started"),
        (None, "LAUNCH_FAILED", [], "not_started"),
        (2, None, [ended(2)], "input"),
        (3, "FAILED", [], "environment"),
        (1, "FAILED", [ended(1)], "error"),
        (0, None, [], None),
        (None, None, [], None),
        (None, "a plugin's word", [], None),
    ],
)
def test_the_cause_of_an_end(
    code: int | None, state: str | None, exits: list[WorkerExit], cause: ExitCause | None
) -> None:
    assert exit_cause(code, state, exits) == cause


@pytest.mark.parametrize(
    ("code", "name"),
    [(137, "SIGKILL"), (-9, "SIGKILL"), (139, "SIGSEGV"), (1, None), (0, None), (128, None),
     (255, None), (None, None)],
)  # fmt: skip
def test_the_signal_of_an_exit_code(code: int | None, name: str | None) -> None:
    assert signal_of(code) == name


def test_a_record_says_why_it_failed() -> None:
    job = JobRecord(0, "1", 1, "failed", 137, "signal")
    assert job.end == "killed by SIGKILL (exit code 137)"
    assert JobRecord(0, "1", 1, "failed", None, "node_failure").end == "its node failed"
    assert JobRecord(0, "1", 1, "done", 0).end == ""


@pytest.mark.parametrize("cause", ["out_of_memory", "not_started"])
def test_a_resume_alone_is_no_advice_where_it_can_not_help(cause: ExitCause) -> None:
    remedy = exit_remedy(cause, run="runs/first")
    assert remedy.startswith("A resume alone would")
    assert "ai500 resume runs/first" in remedy


@pytest.mark.parametrize("cause", [None, "signal", "time_limit", "node_failure", "preempted"])
def test_a_resume_is_the_advice_where_it_helps(cause: ExitCause | None) -> None:
    assert exit_remedy(cause, run="runs/first").startswith("`ai500 resume runs/first`")


@pytest.mark.parametrize("cause", ["input", "environment", "error"])
def test_an_error_is_mended_before_a_resume(cause: ExitCause) -> None:
    remedy = exit_remedy(cause, run="runs/first")
    assert "what the error names" in remedy.partition("`ai500 resume runs/first`")[0]
