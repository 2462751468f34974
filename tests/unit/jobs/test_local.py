"""The local scheduler starts the next job of a slot while the one before it is about to end."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from ai500.core.slot_locks import VARIABLE
from ai500.jobs.launchers import bare
from ai500.jobs.schedulers import PREPARING, JobSpec, JobStatus, StartsEarly
from ai500.jobs.schedulers.local import LocalScheduler
from ai500.records import NodeSlots

UNTIL_TOLD = (
    "touch {folder}/{member}.began; until [ -e {folder}/{member}.end ]; do sleep 0.02; done"
)

Make = Callable[..., LocalScheduler]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    """Make schedulers; end what a failed test leaves running."""
    made: list[LocalScheduler] = []

    def of(**settings: object) -> LocalScheduler:
        made.append(LocalScheduler(bare(None), **settings))  # type: ignore[arg-type]
        return made[-1]

    yield of
    for scheduler in made:
        scheduler.cancel(list(scheduler._running))


def job(folder: Path, member: int, *slots: int) -> JobSpec:
    return JobSpec(
        members=(member,),
        attempt=1,
        command=("sh", "-c", UNTIL_TOLD.format(folder=folder, member=member)),
        environment={},
        log=folder / f"{member}.log",
        shares=(NodeSlots("here", slots),),
    )


def states(scheduler: LocalScheduler, ids: Sequence[str]) -> list[str]:
    return [status.state for status in scheduler.states(ids).values()]


def end(scheduler: LocalScheduler, folder: Path, member: int, job_id: str) -> JobStatus:
    (folder / f"{member}.end").touch()
    deadline = time.monotonic() + 30
    while (status := scheduler.states([job_id])[job_id]).state == "running":
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return status


def test_the_next_job_starts_when_the_one_on_its_slot_ends_soon(make: Make, tmp_path: Path) -> None:
    scheduler = make(slot_locks=tmp_path / "slots")
    assert isinstance(scheduler, StartsEarly)
    ids = scheduler.submit([job(tmp_path, member, 0) for member in range(3)])
    assert states(scheduler, ids) == ["running", "pending", "pending"]
    scheduler.end_soon([ids[0]])
    assert states(scheduler, ids) == ["running", "running", "pending"]
    reasons = [status.reason for status in scheduler.states(ids).values()]
    assert reasons == [None, PREPARING, None]
    scheduler.end_soon([ids[1]])  # the first has not ended: a third would wait for two
    assert states(scheduler, ids) == ["running", "running", "pending"]
    assert end(scheduler, tmp_path, 0, ids[0]).state == "done"
    assert states(scheduler, ids) == ["done", "running", "running"]
    assert scheduler.states(ids)[ids[1]].reason is None
    for member in (1, 2):
        assert end(scheduler, tmp_path, member, ids[member]).state == "done"
    scheduler.close()
    assert not (tmp_path / "slots").exists()


def test_all_slots_of_a_job_have_to_be_free_soon(make: Make, tmp_path: Path) -> None:
    scheduler = make(slot_locks=tmp_path / "slots")
    jobs = [job(tmp_path, 0, 0), job(tmp_path, 1, 1), job(tmp_path, 2, 0, 1)]
    ids = scheduler.submit(jobs)
    scheduler.end_soon([ids[0]])
    assert states(scheduler, ids) == ["running", "running", "pending"]
    scheduler.end_soon([ids[1]])
    assert states(scheduler, ids) == ["running"] * 3


def test_a_cancelled_trial_leaves_no_locks(make: Make, tmp_path: Path) -> None:
    scheduler = make(slot_locks=tmp_path / "slots")
    ids = scheduler.submit([job(tmp_path, member, 0) for member in range(2)])
    scheduler.cancel(ids[1:])
    assert (tmp_path / "slots").exists()
    scheduler.cancel(ids)
    assert states(scheduler, ids) == ["cancelled", "cancelled"]
    assert not (tmp_path / "slots").exists()


def test_a_failed_job_waits_for_the_one_that_took_its_slots(make: Make, tmp_path: Path) -> None:
    scheduler = make(slot_locks=tmp_path / "slots")
    ids = scheduler.submit([job(tmp_path, 0, 0), job(tmp_path, 1, 0)])
    scheduler.end_soon([ids[0]])
    assert states(scheduler, ids) == ["running", "running"]
    end(scheduler, tmp_path, 0, ids[0])
    (again,) = scheduler.submit([job(tmp_path, 2, 0)])
    assert states(scheduler, [*ids, again]) == ["done", "running", "pending"]


@pytest.mark.parametrize(
    "settings", [{}, {"slot_locks": Path("slots"), "early_memory": 1e9}], ids=["alone", "memory"]
)
def test_no_early_start_without_locks_or_memory(
    settings: dict[str, object], make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    scheduler = make(**settings)
    ids = scheduler.submit([job(tmp_path, member, 0) for member in range(2)])
    scheduler.end_soon([ids[0]])
    assert states(scheduler, ids) == ["running", "pending"]
    end(scheduler, tmp_path, 0, ids[0])
    assert states(scheduler, ids) == ["done", "running"]


@pytest.mark.parametrize("own", [True, False])
def test_jobs_find_their_own_locks_alone(
    own: bool, make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A script that is a member itself may run ai500: it must not wait for its own slots."""
    monkeypatch.setenv(VARIABLE, "/outer")
    scheduler = make(slot_locks=tmp_path / "slots") if own else make()
    spec = job(tmp_path, 0, 0)
    show = JobSpec(
        members=spec.members, attempt=1, command=("sh", "-c", f'echo "${VARIABLE}"'),
        environment={}, log=spec.log, shares=spec.shares,
    )  # fmt: skip
    (job_id,) = scheduler.submit([show])
    while scheduler.states([job_id])[job_id].state == "running":
        time.sleep(0.02)
    assert (str(tmp_path / "slots") in show.log.read_text()) == own
    assert "/outer" not in show.log.read_text()
    assert (tmp_path / "slots").is_dir() == own
