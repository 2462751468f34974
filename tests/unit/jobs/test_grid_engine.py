"""Grid Engine without Grid Engine: its words, its states, and what it is refused for."""

from __future__ import annotations

from pathlib import Path

import pytest

from ai500.config import load
from ai500.core.errors import ConfigError
from ai500.jobs.schedulers import grid_engine
from ai500.jobs.schedulers.grid_engine import GRID_ENGINE, QueuedJob, _ranges, _task_numbers
from ai500.jobs.trial_jobs import job_spec, scheduler_context
from ai500.pipeline.planning import make_plan
from ai500.records import Cluster
from ai500.records.run_folder import RunFolder
from tests.support.simulated_slurm import MACHINE

CLUSTER = Cluster(
    name="Grid Engine", partition="all.q", nodes=("a", "b"), unusable={}, cpus_per_node=8,
    accelerators_per_node=0, max_array_size=100, max_seconds=None, accounting=True,
    version="SGE 8.1.9",
)  # fmt: skip


def preview(folder: Path, **settings: object) -> str:
    config = load(
        overrides={
            "scheduler.kind": "grid_engine", "system.accelerators_per_node": 2,
            "ensemble.size": 4, "parallel.degree": 1,
            **{key.replace("__", "."): value for key, value in settings.items()},
        }
    )  # fmt: skip
    plan = make_plan(config, MACHINE, CLUSTER)
    run = RunFolder(folder / "it's a run")
    context = scheduler_context(run, config, plan, trial=1, store=None)
    trial = run.trial(1)
    jobs = [
        job_spec(trial, members=(entry.member,), attempt=2, shares=entry.shares, python="python3")
        for entry in plan.mapping
    ]
    ((_, text),) = GRID_ENGINE.preview(context, jobs)
    return text


@pytest.mark.parametrize(
    ("letters", "state", "reason"),
    [
        ("qw", "pending", "qw"), ("hqw", "pending", "hqw"), ("Rq", "pending", "Rq"),
        ("hRwq", "pending", "hRwq"), ("t", "running", None), ("r", "running", None),
        ("Rr", "running", None), ("dr", "running", None), ("s", "running", "SUSPENDED"),
        ("T", "running", "SUSPENDED"),
    ],
)  # fmt: skip
def test_states_of_tasks(letters: str, state: str, reason: str | None) -> None:
    job = QueuedJob("ai500-x-001", letters)
    assert (job.state, job.reason) == (state, reason)


def test_a_task_in_error_state_has_failed() -> None:
    job = QueuedJob("ai500-x-001", "Eqw")
    assert job.state == "failed"
    assert "state Eqw" in str(job.reason)


def test_consecutive_tasks_are_one_word_of_qdel() -> None:
    assert _ranges(["12.1", "12.3", "12.2", "12.7", "13.1"]) == ["12.1-3", "12.7", "13.1"]
    assert _ranges([f"5.{task}" for task in range(1, 10_001)]) == ["5.1-10000"]


def test_tasks_of_a_row() -> None:
    assert list(_task_numbers("3")) == [3]
    assert list(_task_numbers("2,5")) == [2, 5]
    assert list(_task_numbers("4-10:2")) == [4, 6, 8, 10]


def test_the_script_and_its_qsub(tmp_path: Path) -> None:
    text = preview(tmp_path, grid_engine__queue="gpu.q", grid_engine__qsub=["-l", "gpu=1"])
    command = text.splitlines()[0]
    for words in ("-t 1-4", "-r y", "-notify", "-pe smp 4", "-q gpu.q", "-l gpu=1"):
        assert words in command, words
    assert "-tc" not in command  # all members have a slot
    assert "members=(0 1 2 3)" in text
    assert "attempts=(2 2 2 2)" in text
    assert "it'\"'\"'s a run" in text


def test_a_part_of_the_system_limits_the_tasks_at_once(tmp_path: Path) -> None:
    command = preview(tmp_path, ensemble__size=9, system__nodes=1).splitlines()[0]
    assert "-tc 2" in command
    assert "-t 1-9" in command


@pytest.mark.parametrize(
    ("settings", "key"),
    [
        ({"parallel__degree": 4, "ensemble__size": 1}, "parallel.degree"),
        ({"data__scratch": "/scratch"}, "data.scratch"),
        ({"grid_engine__qsub": ["-tc", "5"]}, "grid_engine.qsub"),
    ],
)
def test_what_it_cannot_run_is_refused(
    tmp_path: Path, settings: dict[str, object], key: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        preview(tmp_path, **settings)
    assert refused.value.key == key


def test_members_train_on_cpus_unless_a_device_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = {
        "-f": "<job_info><queue_info><Queue-List><name>all.q@a</name><slots_total>8</slots_total>"
        "</Queue-List><Queue-List><name>all.q@b</name><slots_total>8</slots_total>"
        "<state>au</state></Queue-List></queue_info></job_info>",
        "-sconf": "max_aj_tasks   75000\nreporting_params accounting=true reporting=false\n",
        "-help": "SGE 8.1.9\nusage: qstat\n",
    }
    monkeypatch.setattr(grid_engine, "_call", lambda words: answers[words[1]])
    four = {"system.accelerators_per_node": 4}
    plain = GRID_ENGINE.survey(load(overrides=four))
    assert plain is not None
    assert (plain.nodes, plain.unusable) == (("a",), {"b": "state au"})
    assert (plain.accelerators_per_node, plain.max_array_size) == (0, 75_000)
    cuda = GRID_ENGINE.survey(load(overrides=four | {"system.device": "cuda"}))
    assert cuda is not None
    assert cuda.accelerators_per_node == 4


def test_a_scratch_folder_of_the_task_is_cleared(tmp_path: Path) -> None:
    text = preview(tmp_path, data__scratch="/scratch/$JOB_ID.$SGE_TASK_ID")
    assert "--clear" in text
    assert "--clear" not in preview(tmp_path)
