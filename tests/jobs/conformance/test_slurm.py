"""Slurm keeps the contract."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ai500.jobs.schedulers.slurm import SLURM
from tests.jobs.conformance.contract import Engine, SchedulerContract
from tests.support.slurm.cluster import Cluster


@pytest.mark.long
class TestSlurm(SchedulerContract):
    @pytest.fixture
    def engine(
        self, cluster: Cluster, shared_folder: Path, monkeypatch: pytest.MonkeyPatch
    ) -> Engine:
        monkeypatch.setenv("SLURM_CONF", cluster.environment["SLURM_CONF"])

        @contextmanager
        def outage() -> Iterator[None]:
            cluster.stop_controller()
            yield
            cluster.start_controller()

        settings = {"system.nodes": 2, "system.accelerators_per_node": 1, "slurm.exclusive": True}
        return Engine(SLURM, "slurm", settings, shared_folder, requeues=True, outage=outage)
