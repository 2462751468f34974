"""A real Grid Engine keeps the contract, and trains an ensemble."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ai500.jobs.schedulers.grid_engine import GRID_ENGINE
from ai500.records import Score, run_folder
from ai500.records.run_folder import RunFolder
from tests.jobs.conformance.contract import Engine, SchedulerContract
from tests.support.grid_engine.cluster import GridEngine
from tests.support.slurm.running import Submit, member_log, run_events, wait_for_event
from tests.support.slurm.scripted import written

SLOTS = 2


@pytest.fixture(scope="session")
def cell() -> Iterator[GridEngine]:
    """Start a Grid Engine with two slots; check that it leaves no process behind."""
    base = Path(tempfile.mkdtemp(prefix="ai500-sge-", dir="/var/tmp"))
    with GridEngine(base / "cell", slots=SLOTS) as running:
        yield running
    assert not running.processes()
    shutil.rmtree(base)


@pytest.fixture
def engine(
    cell: GridEngine, shared_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Engine]:
    """Point Grid Engine's commands to the cell; delete its jobs after the test."""
    for name, value in cell.environment.items():
        if name.startswith("SGE_"):
            monkeypatch.setenv(name, value)

    @contextmanager
    def outage() -> Iterator[None]:
        cell.stop_master()
        yield
        cell.start_master()

    settings: dict[str, object] = {"system.accelerators_per_node": SLOTS}
    yield Engine(
        GRID_ENGINE, "grid_engine", settings, shared_folder, "999999.1", requeues=True,
        outage=outage,
    )  # fmt: skip
    cell.heal()


class TestQuick:
    """The test of the contract that `make test` runs."""

    start = SchedulerContract.start
    test = SchedulerContract.test_jobs_get_their_words_environment_and_log


@pytest.mark.long
class TestGridEngine(SchedulerContract):
    """All tests of the contract."""


@pytest.mark.long
def test_an_ensemble_survives_its_controller_and_a_cancel(
    cell: GridEngine, engine: Engine, shared_folder: Path, submit: Submit
) -> None:
    """Members that sleep in place of training stop with a checkpoint, and continue from it."""
    run, config = shared_folder / "run", written(shared_folder)
    settings = ["scheduler.kind=grid_engine", "system.accelerators_per_node=2", "ensemble.size=3",
                "parallel.degree=1", "system.scale=2",
                'grid_engine.setup=["export EPOCH_SECONDS=90"]']  # fmt: skip
    words = [word for setting in settings for word in ("--set", setting)]
    command = submit(cell, "run", "--config", config, "--out", run, *words)
    wait_for_event(command, run / "events.jsonl", "job_submitted")
    command.kill()
    resumed = submit(cell, "resume", run)
    wait_for_event(resumed, member_log(run, 0), "first_batch")
    cancelled = submit(cell, "cancel", run)
    assert cancelled.wait(300) == 0, cancelled.err
    assert resumed.wait(300) == 130
    assert not cell.run("qstat", "-u", "*").strip(), "no job is left"
    wait_for_event(cancelled, member_log(run, 0), "interrupted", timeout=5)
    quick = 'grid_engine.setup=["export EPOCH_SECONDS=0.1"]'
    again = submit(cell, "resume", run, "--set", quick)
    assert again.wait(500) == 0, again.err
    assert run_folder.read(Score, RunFolder(run).score).complete
    submitted = [event["member"] for event in run_events(run, "job_submitted")]
    assert sorted(submitted) == [0, 0, 1, 1, 2, 2], "the killed controller's jobs were found"
