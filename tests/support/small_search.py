"""A search small enough for unit tests, and the task of its worker."""

from __future__ import annotations

from pathlib import Path

from ai500.records import Communication, InitialNetwork, Parallelism, Search, Task
from ai500.workloads.automl import CLASSES

SMALL = Search(
    minutes=1,
    initial=InitialNetwork("basic", (1, 1), 4),
    patience=2,
    batch_sizes=(16, 32),
    max_growth=6.0,
)


def task(trial: Path, *, search: Search = SMALL, member: int = 0) -> Task:
    smoke = CLASSES["smoke"]
    return Task(
        run=str(trial), trial=1, member=member, seed=5, workload="automl", definition=smoke,
        hyperparameters=smoke.reference, parallel=Parallelism("data"),
        communication=Communication(), parallel_degree=1, steps_per_epoch=63, slots=(),
        bootstrap="", store="", staged=None, stage=False, scratch=None, node_members=(member,),
        folder=str(trial / "members" / f"{member:03d}"), checkpoint_seconds=300.0,
        convention="aiperf", search=search,
    )  # fmt: skip
