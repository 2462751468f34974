"""A limit on submitted jobs: members follow in portions, as earlier ones end."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from ai500.jobs.schedulers import slurm_commands
from ai500.jobs.schedulers.slurm_commands import QueueFullError
from ai500.records.run_folder import RunFolder
from tests.support.simulated_slurm import TRIAL, SimulatedSlurm, controller_for, plan_ensemble

LIMIT = 8


class Limited(SimulatedSlurm):
    """Scheduler that takes a submission only while at most LIMIT tasks wait or run."""

    def __init__(self, *arguments: object, **options: object) -> None:
        super().__init__(*arguments, **options)  # type: ignore[arg-type]
        self.portions: list[int] = []
        self.dependencies: dict[str, list[str]] = {}
        """Arrays that each submission waits for, by its members."""

    def __call__(self, words: Sequence[str], *, timeout: float, stdin: str = "") -> str:
        output = super().__call__(words, timeout=timeout, stdin=stdin)
        if words[0] == "sbatch":  # taken: a refusal is an exception
            members = re.search(r"^members=\((.*)\)$", stdin, flags=re.MULTILINE)
            assert members
            self.dependencies[members[1]] = [
                word.rpartition(":")[2] for word in words if word.startswith("--dependency=")
            ]
        return output

    def _sbatch(self, script: str) -> str:
        match = re.search(r"^members=\((.*)\)$", script, flags=re.MULTILINE)
        assert match
        size = len(match[1].split())
        if len(self._waiting) + len(self._running) + size > LIMIT:
            raise QueueFullError("sbatch: error: AssocMaxSubmitJobLimit")
        self.portions.append(size)
        return super()._sbatch(script)


class Preempting(Limited):
    """The first task is preempted."""

    def _pass_time(self) -> None:
        super()._pass_time()
        if not any(members == "0" for members in self.dependencies):
            self._trial.member(0).record.unlink(missing_ok=True)

    def _squeue(self) -> str:
        return super()._squeue().replace("1_0|COMPLETED|0|0|", "1_0|PREEMPTED|0|15|")


class WithoutArrays(Limited):
    """MaxArraySize is 0."""

    def _sbatch(self, script: str) -> str:
        text = "sbatch: error: Batch job submission failed: Invalid job array specification"
        raise QueueFullError(text)


def follow(
    folder: Path, monkeypatch: pytest.MonkeyPatch, *, scale: int, kind: type[Limited] = Limited
) -> Limited:
    config, plan = plan_ensemble(16, nodes=2)
    slurm = kind(RunFolder(folder).trial(TRIAL), at_once=1)
    monkeypatch.setattr(slurm_commands, "run_slurm", slurm)
    slurm_commands._accounting.cache_clear()
    controller = controller_for(folder, config, replace(plan, system_scale=scale))
    controller.start()
    assert controller.run(lambda views: None) == []
    slurm_commands._accounting.cache_clear()
    assert sum(slurm.portions) == 16 + (kind is Preempting)
    return slurm


def test_a_request_that_slurm_refused_leaves_no_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slurm = follow(tmp_path, monkeypatch, scale=16)
    folder = RunFolder(tmp_path).trial(TRIAL).path / "slurm"
    assert slurm.calls["sbatch"] > len(slurm.portions)
    assert len(list(folder.glob("*.json"))) == len(slurm.portions)
    assert len(list(folder.glob("*.sh"))) == len(slurm.portions)


def test_portions_that_wait_for_each_other_fill_the_system(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Arrays of one member each, one after the other, would leave the rest of Sys_scale idle."""
    slurm = follow(tmp_path, monkeypatch, scale=4)
    assert min(slurm.portions) >= 4


def test_a_retry_between_portions_waits_for_none_and_the_next_portion_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slurm = follow(tmp_path, monkeypatch, scale=4, kind=Preempting)
    first, retry, *portions = slurm.dependencies.values()
    assert first == retry == []
    assert portions[0] == ["1"]


def test_a_cluster_without_arrays_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(QueueFullError, match="array specification"):
        follow(tmp_path, monkeypatch, scale=16, kind=WithoutArrays)
