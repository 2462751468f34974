"""Parsing of Slurm's output: recorded from 22.05, written after 20.11 and 23.11."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ai500.jobs.schedulers.slurm_output import (
    STATES,
    compress_tasks,
    expand_tasks,
    jobs_by_id,
    read_accounting,
    read_queue,
    seconds_of,
    tasks_by_job,
)
from ai500.records import JobState

QUEUE_22_05 = """\
54_[5,12-100%4]|PENDING|0|0|Resources,BeginTime
54_11|RUNNING|2|0|None
54_10|COMPLETING|0|9|None
54_0|COMPLETED|0|0|None
54_1|FAILED|0|1792|NonZeroExitCode
54_2|FAILED|0|9|JobLaunchFailure
54_3|OUT_OF_MEMORY|0|125|OutOfMemory
54_4|CANCELLED|0|15|None
60|TIMEOUT|1|0|TimeLimit
"""
QUEUE_23_11 = """\
54_[5,12-100%4]|PENDING|0|0:0|Resources
54_0|COMPLETED|0|0:0|None
54_1|FAILED|0|7:0|NonZeroExitCode
54_2|FAILED|0|0:9|RaisedSignal:9(Killed)
54_3|OUT_OF_MEMORY|0|0:125|OutOfMemory
61|PENDING|0||launch failed | requeued held
"""
ACCOUNTING = """\
2|PENDING|0:0
1_0|COMPLETED|0:0
1_1|FAILED|7:0
1_2|FAILED|0:9
1_3|RUNNING|0:0
1_4|CANCELLED by 1000|0:15
1_[9-14,16-20]|PENDING|0:0
"""


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("30", 1800),
        ("30:15", 1815),
        ("01:00:00", 3600),
        ("2-00", 172_800),
        ("1-12:30", 131_400),
        ("1-12:30:05", 131_405),
        ("UNLIMITED", None),
        ("INFINITE", None),
        ("NOT_SET", None),
        ("NONE", None),
        ("", None),
    ],
)
def test_slurm_times(text: str, seconds: int | None) -> None:
    assert seconds_of(text) == seconds


def test_every_state_of_the_table_in_both_commands() -> None:
    for word, state in STATES.items():
        ((queued,), _) = read_queue(f"7|{word}|0|0|None")
        ((accounted,), _) = read_accounting(f"7|{word}|0:0")
        assert queued.state == accounted.state == state
        assert queued.slurm_state == accounted.slurm_state == word


def test_the_states_slurms_sources_name() -> None:
    live = "PENDING CONFIGURING REQUEUED RUNNING COMPLETING SUSPENDED STAGE_OUT SPECIAL_EXIT"
    assert {STATES[word] for word in live.split()} == {"pending", "running"}
    broken = "FAILED TIMEOUT NODE_FAIL PREEMPTED BOOT_FAIL DEADLINE OUT_OF_MEMORY LAUNCH_FAILED"
    assert {STATES[word] for word in broken.split()} == {"failed"}


def test_an_unknown_word_lives_in_squeue_and_failed_in_sacct() -> None:
    ((queued,), _) = read_queue("7|DREAMING|0|0|None")
    ((accounted,), _) = read_accounting("7|DREAMING|0:0")
    assert (queued.state, queued.slurm_state) == ("running", "DREAMING")
    assert (accounted.state, accounted.slurm_state) == ("failed", "DREAMING")


@pytest.mark.parametrize("text", [QUEUE_22_05, QUEUE_23_11], ids=["22.05", "23.11"])
def test_exit_codes_of_both_forms(text: str) -> None:
    codes = {job.id: job.exit_code for job in read_queue(text)[0]}
    assert (codes["54_0"], codes["54_1"], codes["54_2"], codes["54_3"]) == (0, 7, -9, None)


def test_rows_of_squeue() -> None:
    jobs = {job.id: job for job in read_queue(QUEUE_22_05)[0]}
    assert (jobs["54_11"].restarts, jobs["54_11"].reason) == (2, None)
    assert (jobs["54_10"].state, jobs["54_10"].exit_code) == ("running", None)
    assert (jobs["54_4"].state, jobs["54_4"].exit_code) == ("cancelled", -15)
    assert (jobs["60"].state, jobs["60"].exit_code, jobs["60"].reason) == (
        "failed", None, "TimeLimit",
    )  # fmt: skip
    assert jobs["54_[5,12-100%4]"].restarts is None
    (held,) = (job for job in read_queue(QUEUE_23_11)[0] if job.id == "61")
    assert held.reason == "launch failed | requeued held"


@pytest.mark.parametrize(
    "line",
    ["hello", "hello 1|RUNNING|0|0|None", "1|RUNNING|0|0", "a|b|c|d|e", "1_|RUNNING|0|0|None",
     "1|Maintenance tonight|0|0|None", "\x00"],
)  # fmt: skip
def test_a_line_that_is_no_row_is_returned_apart(line: str) -> None:
    rows, skipped = read_queue(f"CLUSTER: a\n\n1|RUNNING|0|0|None\n{line}\n2|PENDING|0|0|None\n")
    assert [row.id for row in rows] == ["1", "2"]
    assert skipped == [line]


def test_a_line_of_sacct_that_is_no_row_is_returned_apart() -> None:
    rows, skipped = read_accounting("1_0|COMPLETED|0:0\nNotice|the|wiki\n\n1_1|FAILED|7:0\n")
    assert [row.id for row in rows] == ["1_0", "1_1"]
    assert skipped == ["Notice|the|wiki"]


def test_rows_of_sacct() -> None:
    jobs = jobs_by_id(read_accounting(ACCOUNTING)[0], ["1_1", "1_3", "1_4", "1_10", "1_15", "9"])
    states: dict[str, JobState] = {job_id: job.state for job_id, job in jobs.items()}
    assert states == {"1_1": "failed", "1_3": "running", "1_4": "cancelled", "1_10": "pending"}
    assert (jobs["1_4"].slurm_state, jobs["1_4"].exit_code) == ("CANCELLED", -15)
    assert jobs["1_3"].reason == "known to sacct only"


def test_pending_tasks_are_found_in_their_folded_row() -> None:
    ids = ["54_4", "54_5", "54_6", "54_12", "54_100", "54_101", "60", "54", "5"]
    jobs = jobs_by_id(read_queue(QUEUE_22_05)[0], ids)
    assert sorted(jobs) == ["54_100", "54_12", "54_4", "54_5", "60"]
    assert jobs["54_12"] is jobs["54_5"]  # squeue folds them into one row


@pytest.mark.parametrize(
    ("text", "ranges"),
    [
        ("7", [(7, 7, 1)]),
        ("0-5,7-20:2%3", [(0, 5, 1), (7, 20, 2)]),
        ("1,3,5-6%10", [(1, 1, 1), (3, 3, 1), (5, 6, 1)]),
        ("1,3,...", [(1, 1, 1), (3, 3, 1)]),
        ("", []),
    ],
)
def test_array_expressions(text: str, ranges: list[tuple[int, int, int]]) -> None:
    assert list(expand_tasks(text)) == ranges


@given(st.sets(st.integers(0, 4_000_000)), st.integers(0, 99))
def test_array_expression_round_trip(tasks: set[int], at_once: int) -> None:
    text = compress_tasks(tasks) + (f"%{at_once}" if at_once else "")
    tasks_read = [task for a, b, step in expand_tasks(text) for task in range(a, b + 1, step)]
    assert tasks_read == sorted(tasks)


@given(st.sets(st.integers(0, 60)), st.sets(st.integers(0, 60), min_size=1))
def test_jobs_by_id_is_the_intersection(requested: set[int], pending: set[int]) -> None:
    rows, _ = read_queue(f"7_[{compress_tasks(pending)}]|PENDING|0|0|None")
    assert set(jobs_by_id(rows, [f"7_{task}" for task in requested])) == {
        f"7_{task}" for task in requested & pending
    }


def test_neighbours_are_folded() -> None:
    assert compress_tasks([3, 1, 2, 7, 9, 10]) == "1-3,7,9-10"
    assert tasks_by_job(["12", "34_6", "34_5"]) == {"12": set(), "34": {5, 6}}


def _seconds_to_read(count: int) -> float:
    ids = [f"9_{task}" for task in range(count)]
    pending = compress_tasks(range(0, count // 2, 2))  # nothing folds: the worst expression
    rows = "".join(f"9_{task}|COMPLETED|0|0|None\n" for task in range(1, count, 2))
    begin = time.process_time()
    jobs = jobs_by_id(read_queue(f"9_[{pending}]|PENDING|0|0|None\n{rows}")[0], ids)
    seconds = time.process_time() - begin
    assert len(jobs) == count // 4 + count // 2
    return seconds


@pytest.mark.serial
def test_a_hundred_thousand_tasks_cost_ten_times_ten_thousand() -> None:
    small = min(_seconds_to_read(10_000) for _ in range(3))
    large = min(_seconds_to_read(100_000) for _ in range(3))
    assert large < 30 * small
