"""What is wrong with `[slurm]` on every cluster is said before any is asked."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ai500.config import Config
from ai500.core.errors import ConfigError
from ai500.jobs.schedulers.slurm_checks import check_settings, no_node


def _with(time_limit: str) -> Config:
    config = Config()
    return replace(config, slurm=replace(config.slurm, time_limit=time_limit))


@pytest.mark.parametrize(
    "text", ["90", "90:00", "2:00:00", "1-12", "1-12:30", "1-12:30:05", "-1", "UNLIMITED"]
)
def test_a_time_as_slurm_writes_it(text: str) -> None:
    check_settings(_with(text))


@pytest.mark.parametrize("text", ["2h", "2:00:00:00", "two hours", "1.5", "1-", ""])
def test_a_time_that_slurm_does_not_know(text: str) -> None:
    with pytest.raises(ConfigError, match=r"slurm.time_limit = .*'2:00:00' for two hours"):
        check_settings(_with(text))


def test_no_node_is_left_and_why() -> None:
    drained = no_node("gpu", {"n1": "a fan is loud"}, constraint=None)
    assert "no node that can be used now (n1: a fan is loud)" in str(drained)
    assert "no node with slurm.constraint = 'h100'" in str(no_node("gpu", {}, constraint="h100"))
