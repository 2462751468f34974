"""The local scheduler keeps the contract."""

from __future__ import annotations

from pathlib import Path

import pytest

from ai500.jobs.schedulers.local import LOCAL
from tests.jobs.conformance.contract import Engine, SchedulerContract


class TestLocal(SchedulerContract):
    @pytest.fixture
    def engine(self, tmp_path: Path) -> Engine:
        settings = {"system.accelerators_per_node": 2}
        return Engine(LOCAL, "local", settings, folder=tmp_path, unknown_id="local-0-1")
