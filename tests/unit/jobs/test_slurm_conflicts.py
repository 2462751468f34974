"""Plans that cannot run on Slurm: a conflict for each, and none without it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from ai500.config import load
from ai500.jobs.schedulers.slurm import memory_mib_per_slot
from ai500.jobs.schedulers.slurm_conflicts import conflicts
from ai500.jobs.schedulers.slurm_qos import limits_from
from ai500.pipeline import planning
from ai500.records import Cluster, JobLimits, QosLimits
from tests.support.simulated_slurm import MACHINE

LIMITS = JobLimits(memory_mib_per_node=512_000, default_mib_per_cpu=4_000, gpu_types=("a100",))


def problems(settings: dict[str, Any] | None = None, **limits: Any) -> list[str]:
    """Plan eight one-GPU members on two nodes of four; return the conflicts."""
    cluster = Cluster(
        name="c", partition="gpu", nodes=("n1", "n2"), unusable={}, cpus_per_node=64,
        threads_per_core=1, accelerators_per_node=4, max_array_size=1001, max_seconds=86_400,
        accounting=False, version="22.05", limits=replace(LIMITS, **limits),
    )  # fmt: skip
    overrides = {
        "ensemble.size": 8, "parallel.degree": 1, "system.device": "cuda",
        "scheduler.kind": "slurm", **(settings or {}),
    }  # fmt: skip
    config = load(overrides=overrides)
    return list(conflicts(config, planning.make_plan(config, MACHINE, cluster)))


def test_an_ordinary_plan_has_none() -> None:
    assert problems() == []
    assert problems({"slurm.start": "gang"}) == []


@pytest.mark.parametrize(
    ("settings", "limits", "words"),
    [
        ({"slurm.exclusive": True}, {}, ("slurm.exclusive", "4 members on one", "gang")),
        ({}, {"exclusive": True}, ("OverSubscribe=EXCLUSIVE", "gang")),
        ({}, {"default_mib_per_cpu": 9_000}, ("DefMemPerCPU", "3 of 4 jobs", "'128000M'")),
        ({}, {"default_mib_per_cpu": None, "default_mib_per_node": 512_000},
         ("DefMemPerNode", "1 of 4 jobs")),
        ({}, {"default_mib_per_gpu": 200_000}, ("DefMemPerGPU", "2 of 4 jobs")),
        ({"slurm.memory": "200G"}, {}, ("slurm.memory = 200G", "2 of 4 jobs")),
        ({"slurm.start": "gang", "slurm.memory": "200G"}, {}, ("0 of 1 jobs",)),
        ({"slurm.start": "gang"}, {"max_nodes": 1}, ("2 nodes", "MaxNodes", "array")),
        ({"ensemble.size": 1, "parallel.degree": 8}, {"max_nodes": 1}, ("a member takes 2 nodes",)),
        ({"slurm.time_limit": "2"}, {}, ("slurm.time_limit", "would never train", "'3'")),
        ({}, {"default_seconds": 60}, ("default time limit", "would never train")),
        ({"slurm.cpus_per_accelerator": 20}, {}, ("4 slots of 20 CPUs", "at most 16")),
        ({}, {"gpu_types": ("a100", "h100")}, ("a100, h100", "slurm.gpu_type")),
        ({"slurm.sbatch": ["--exclude=n1"]}, {}, ("--exclude=n1", "slurm.exclude")),
        ({"slurm.sbatch": ["-w n1"]}, {}, ("-w n1", "slurm.exclude")),
        ({}, {"qos": (QosLimits("q", per_user={"gres/gpu": 7}),)},
         ("QOS q", "a user 7 GPUs", "takes 8", "MaxTRESPerUser")),
        ({}, {"qos": (QosLimits("q", group={"cpu": 100}),)}, ("100 CPUs", "takes 128", "GrpTRES")),
        ({"slurm.start": "gang"}, {"qos": (QosLimits("q", per_job={"node": 1}),)},
         ("a job 1 nodes", "takes 2", "never start")),
        ({}, {"qos": (QosLimits("q", jobs_per_user=7),)}, ("7 running jobs", "8 at once", "gang")),
        ({"slurm.time_limit": "2:00:00"}, {"qos": (QosLimits("q", max_seconds=3600),)},
         ("MaxWall", "2:00:00")),
    ],
)  # fmt: skip
def test_each_conflict_is_named_with_its_fix(
    settings: dict[str, Any], limits: dict[str, Any], words: tuple[str, ...]
) -> None:
    texts = problems(settings, **limits)
    assert any(all(word in text for word in words) for text in texts), texts


@pytest.mark.parametrize(
    ("settings", "qos"),
    [
        ({}, QosLimits("q", per_user={"gres/gpu": 8, "cpu": 128, "node": 2})),
        ({}, QosLimits("q", group={"gres/gpu": 8}, per_job={"gres/gpu": 1, "node": 1})),
        ({"slurm.start": "gang"}, QosLimits("q", jobs_per_user=1, per_job={"gres/gpu": 8})),
        ({}, QosLimits("q", jobs_per_user=8)),
        ({"slurm.time_limit": "1:00:00"}, QosLimits("q", max_seconds=3600)),
    ],
)
def test_a_plan_at_the_limits_of_its_qos_fits(settings: dict[str, Any], qos: QosLimits) -> None:
    assert problems(settings, qos=(qos,)) == []


def test_the_rows_of_sacctmgr() -> None:
    rows = "normal|||||\nshort|cpu=4,gres/gpu:a100=1,mem=10G,node=2|gres/gpu=2|cpu=64|3|01:00:00\n"
    normal, short = limits_from(rows + "a banner\n")
    assert normal == QosLimits("normal")
    assert short == QosLimits(
        "short", {"cpu": 4, "gres/gpu": 1, "node": 2}, {"gres/gpu": 2}, {"cpu": 64}, 3, 3600
    )


def test_without_a_default_each_slot_gets_its_share_of_the_memory() -> None:
    cluster = Cluster("c", "p", ("a",), {}, 8, 4, 1001, None, False, "22.05")
    config = load(
        overrides={"ensemble.size": 4, "parallel.degree": 1, "system.device": "cuda",
                   "scheduler.kind": "slurm"},
    )  # fmt: skip

    def share(**limits: Any) -> int | None:
        made = planning.make_plan(config, MACHINE, replace(cluster, limits=JobLimits(**limits)))
        return memory_mib_per_slot(made, config.slurm)

    assert share(memory_mib_per_node=1_000) == 250
    assert share(memory_mib_per_node=1_000, default_mib_per_cpu=10) is None
    assert share() is None
