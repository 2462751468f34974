"""The task files of the worker contract: what a script needs to know, and nothing of ai500's own.

docs/worker-contract.md lists the keys; another meaning of a key is another CONTRACT.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ai500.core import atomic
from ai500.core.randomness import Stream, derive
from ai500.core.source import PACKAGE
from ai500.frameworks.protocol import NodePlace, free_port, rendezvous
from ai500.records import Task
from ai500.records.run_folder import MemberFolder
from ai500.train.worker import Rank, cores_of

CONTRACT = 1
"""Version of the task file's keys and of the events."""


@dataclass(frozen=True, slots=True)
class ScriptTask:
    """Task file of one rank: complete, versioned, and the same for every framework."""

    contract: int
    run: str
    trial: int
    member: int
    attempt: int
    seed: int
    epochs: int
    batch_size: int
    global_batch_size: int
    evaluate_every_epochs: int
    samples: str
    out_of_bag: str
    train_samples: int
    validation_samples: int
    data: str
    output: str
    checkpoint: str
    events: str
    device: str
    threads: int | None
    rank: int
    local_rank: int
    world_size: int
    local_world_size: int
    master_addr: str
    master_port: int


def write_tasks(
    task: Task, place: NodePlace, *, samples: NDArray[np.int64], out_of_bag: NDArray[np.int64]
) -> list[ScriptTask]:
    """Write the files of the contract and return the tasks of this node's ranks."""
    folder, count = MemberFolder(Path(task.folder)), place.local_ranks(task)
    output, checkpoint = folder.script / "output", folder.script / "checkpoint"
    for path in (output, checkpoint):
        path.mkdir(parents=True, exist_ok=True)
    atomic.write_array(folder.script / "samples.npy", samples)
    atomic.write_array(folder.script / "out_of_bag.npy", out_of_bag)
    host, port = "127.0.0.1", free_port()
    if place.count > 1:
        address = rendezvous(folder, place)
        host, port = address.host, address.port
    hyper, definition = task.hyperparameters, task.definition
    tasks = []
    for local_rank in range(count):
        first = place.first_rank(task)
        rank = Rank(first + local_rank, local_rank, count, task.parallel_degree)
        cores = cores_of(task.slots[local_rank], rank)
        tasks.append(
            ScriptTask(
                contract=CONTRACT,
                run=task.run,
                trial=task.trial,
                member=task.member,
                attempt=int(os.environ.get("AI500_ATTEMPT", "1")),
                seed=derive(task.seed, Stream.INITIAL_WEIGHTS, task.member),
                epochs=hyper.epochs,
                batch_size=hyper.batch_size,
                global_batch_size=hyper.batch_size * task.parallel_degree,
                evaluate_every_epochs=hyper.evaluate_every_epochs,
                samples=str(folder.script / "samples.npy"),
                out_of_bag=str(folder.script / "out_of_bag.npy"),
                train_samples=definition.train_samples,
                validation_samples=definition.validation_samples,
                data=task.store,
                output=str(output),
                checkpoint=str(checkpoint),
                events=str(folder.script / "events.jsonl"),
                device=task.slots[local_rank].device,
                threads=len(cores) if isinstance(cores, tuple) else cores,
                rank=rank.rank,
                local_rank=rank.local_rank,
                world_size=rank.world_size,
                local_world_size=rank.local_world_size,
                master_addr=host,
                master_port=port,
            )
        )
    return tasks


def environment_of(task: ScriptTask, file: Path) -> dict[str, str]:
    """Return the script's environment: torchrun's names, and none of ai500's import path."""
    environment = dict(os.environ)
    paths = environment.pop("PYTHONPATH", "").split(os.pathsep)
    if own_paths := [path for path in paths if path and path != str(PACKAGE.parent)]:
        environment["PYTHONPATH"] = os.pathsep.join(own_paths)
    names = ("rank", "local_rank", "world_size", "local_world_size", "master_addr", "master_port")
    environment |= {name.upper(): str(getattr(task, name)) for name in names}
    if task.threads is not None:
        environment["OMP_NUM_THREADS"] = str(task.threads)
    return environment | {"AI500_TASK": str(file)}
