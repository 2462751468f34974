"""A job that the site preempts is no failure of its member: it is submitted again at once."""

from __future__ import annotations

from pathlib import Path

import pytest

from ai500.core import events
from ai500.jobs.schedulers import slurm_commands
from ai500.records.run_folder import RunFolder
from tests.support.simulated_slurm import TRIAL, SimulatedSlurm, controller_for, plan_ensemble


class Ending(SimulatedSlurm):
    """The first job's first task ends in this state, without a record."""

    def __init__(self, *arguments: object, state: str, **options: object) -> None:
        super().__init__(*arguments, **options)  # type: ignore[arg-type]
        self._state = state

    def _pass_time(self) -> None:
        super()._pass_time()
        if self._jobs == 1:
            self._trial.member(0).record.unlink(missing_ok=True)

    def _squeue(self) -> str:
        return super()._squeue().replace("1_0|COMPLETED|0|0|", f"1_0|{self._state}|0|15|")


@pytest.mark.parametrize(("state", "submissions"), [("PREEMPTED", 2), ("FAILED", 1)])
def test_preemption_uses_no_retry(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, state: str, submissions: int
) -> None:
    config, plan = plan_ensemble(8, nodes=1)
    assert config.scheduler.max_retries == 0
    run = RunFolder(tmp_path)
    slurm = Ending(run.trial(TRIAL), at_once=8, state=state)
    monkeypatch.setattr(slurm_commands, "run_slurm", slurm)
    slurm_commands._accounting.cache_clear()
    controller = controller_for(tmp_path, config, plan)
    controller.start()
    assert controller.run(lambda views: None) == ([] if submissions == 2 else [0])
    slurm_commands._accounting.cache_clear()
    submitted = [
        event["attempt"]
        for event in events.read(run.events)
        if event["event"] == "job_submitted" and event["member"] == 0
    ]
    assert submitted == list(range(1, submissions + 1))
