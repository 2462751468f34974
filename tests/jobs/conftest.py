"""Real Slurm clusters for the tests; without Slurm's packages these tests fail, they don't skip."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack, contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from tests.support.slurm.cluster import Cluster
from tests.support.slurm.running import (
    run_ensemble,
    shared_store,
    submit,
    undisturbed,
    undisturbed_pairs,
)

# Imported here and nowhere else: a fixture that two modules import is made twice.
__all__ = ["run_ensemble", "shared_store", "submit", "undisturbed", "undisturbed_pairs"]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add the end of slurmctld's log to a failure: the cluster's files are deleted."""
    report = yield
    used = getattr(item, "funcargs", {}).get("cluster")
    if report.failed and isinstance(used, Cluster):
        log = used.base / "log" / "slurmctld.log"
        lines = log.read_text(errors="replace").splitlines() if log.exists() else []
        report.sections.append(("slurmctld.log", "\n".join(lines[-40:])))
    return report


@contextmanager
def started(base: Path, **options: Any) -> Iterator[Cluster]:
    """Start a cluster; check that it leaves no process behind."""
    cluster = Cluster(base, **options)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()
        deadline = time.monotonic() + 15
        while (left := cluster.processes()) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert not left, f"processes {left} outlive their cluster"


@pytest.fixture(scope="session")
def slurm_folder() -> Iterator[Path]:
    """Make a short folder that all nodes see: each node has its own /tmp."""
    folder = Path(tempfile.mkdtemp(prefix="ai500-slurm-", dir="/var/tmp"))
    yield folder
    shutil.rmtree(folder)


@pytest.fixture(scope="session")
def cluster(slurm_folder: Path) -> Iterator[Cluster]:
    """Start the cluster of all tests: 4 nodes of 2 CPUs; `heal` restores it after each test."""
    with started(slurm_folder / "cluster") as running:
        yield running


@pytest.fixture(autouse=True)
def heal(request: pytest.FixtureRequest) -> Iterator[None]:
    """Restore the shared cluster after a test: no jobs, all nodes idle."""
    used = request.getfixturevalue("cluster") if "cluster" in request.fixturenames else None
    yield
    if used:
        used.heal()


@pytest.fixture
def make_cluster(slurm_folder: Path) -> Iterator[Callable[..., Cluster]]:
    """Start a cluster with other `Settings` for one test."""
    number = count()
    with ExitStack() as stack:

        def make(**options: Any) -> Cluster:
            base = Path(tempfile.mkdtemp(prefix=f"{next(number)}-", dir=slurm_folder))
            stack.callback(shutil.rmtree, base)
            return stack.enter_context(started(base, **options))

        yield make


@pytest.fixture
def shared_folder(slurm_folder: Path, request: pytest.FixtureRequest) -> Path:
    """Make an empty folder on the file system that the login node and all nodes share.

    Its name contains a blank, to test the quoting of paths.
    """
    return Path(tempfile.mkdtemp(prefix=f"shared {request.node.name} ", dir=slurm_folder))
