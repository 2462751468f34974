"""What `ai500`'s loop and its input cost on a GPU, in one process, blocks of steps in turn.

    PYTHONPATH=src python3 -m benchmarks.gpu.framework STORE [--workload extreme_weather]
        [--class workstation] [--batch 512] [--blocks 12] [--precision mixed-bf16]

Three ways to train a class of a workload with the same engine, the same kernels:
`bare`: a plain loop of augmentation, gradients and SGD on a batch that lies on the GPU;
`loop`: the real loop (schedule, events, progress, checkpoints) on that batch again and again;
`disk`: the real loop as it is, from the STORE: bootstrap, reading, copying.
And `synthetic`: gradients and SGD alone, on inputs that are ready. Printed: milliseconds of a step
of each, loop / bare (goal ≤ 1.01) and images/s of disk over synthetic (goal ≥ 0.95).
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median

import torch
from benchmarks.gpu.energy import Spent, measure_energy

from ai500.bagging.data_sampler import BOOTSTRAP
from ai500.data.bootstrap import save_bootstrap
from ai500.data.open_store import open_store
from ai500.data.store import Store
from ai500.records import Communication, Parallelism, Slot, Task
from ai500.train import loop
from ai500.train.feed import Batch
from ai500.train.member import Member, member_from_task
from ai500.train.step import eager_step, sample_batch
from ai500.train.worker import Rank, StopRequest
from ai500.workloads.protocol import load_workload

NEVER = 1_000_000
DEVICE = torch.device("cuda", 0) if torch.cuda.is_available() else torch.device("cpu")


class Ready:
    """A feed whose batch never changes."""

    def __init__(self, member: Member, batch: Batch) -> None:
        self._feed, self._batch = member.feed, batch

    def __getattr__(self, name: str) -> object:
        return getattr(self._feed, name)

    def epoch(self, *_: object, **named: int) -> Iterator[Batch]:
        """Of an endless epoch."""
        while True:
            yield self._batch


def task_of(options: argparse.Namespace, store: Store, folder: Path) -> Task:
    """A member of that class, but for the name of its folder."""
    defined = load_workload(options.workload).problem_classes[options.problem_class]
    defined = dataclasses.replace(defined, normalization=store.normalization())
    train = store.splits["train"].count
    counts = BOOTSTRAP.draw(train, seed=1, member=0)
    save_bootstrap(folder / "bootstrap", counts, algorithm="bootstrap", seed=1, member=0)
    return Task(
        run=str(folder), trial=1, member=0, seed=1, workload=options.workload,
        definition=defined,
        hyperparameters=dataclasses.replace(
            defined.reference, epochs=NEVER, batch_size=options.batch, precision=options.precision,
            evaluate_every_epochs=NEVER,
        ),
        parallel=Parallelism(mode="data"), communication=Communication(),
        parallel_degree=1, steps_per_epoch=train // options.batch,
        slots=(Slot(0, DEVICE.type, ()),), bootstrap=str(folder / "bootstrap"),
        store=str(store.path), staged=None, stage=False, scratch=None, node_members=(0,),
        folder=str(folder), checkpoint_seconds=300, convention="aiperf",
    )  # fmt: skip


def member_of(task: Task, name: str) -> Member:
    """Assembled as a worker does it."""
    home = Path(task.folder) / name
    home.mkdir()
    task = dataclasses.replace(task, folder=str(home))
    rank = Rank(rank=0, local_rank=0, local_world_size=1, world_size=1)
    return member_from_task(task, rank=rank, device=DEVICE, stop=StopRequest(rank))


def bare_step(member: Member, batch: Batch) -> Callable[[], object]:
    """Augmentation, gradients, SGD: nothing else."""

    def step() -> None:
        inputs, labels = member.workload.train_inputs(
            member.problem_class, batch.images, batch.labels, batch.draws
        )
        member.optimizer.zero_grad(set_to_none=True)
        member.engine.forward_backward(inputs, labels)
        member.numerics.step(member.optimizer)

    return step


def synthetic_step(member: Member, batch: Batch) -> Callable[[], object]:
    """Gradients and SGD on inputs that are ready."""
    inputs, labels = member.workload.train_inputs(
        member.problem_class, batch.images, batch.labels, batch.draws
    )

    def step() -> None:
        member.optimizer.zero_grad(set_to_none=True)
        member.engine.forward_backward(inputs, labels)
        member.numerics.step(member.optimizer)

    return step


def loop_step(member: Member) -> Callable[[], object]:
    """Drive the real loop a step at a time, as `loop.train` does."""
    steps = loop.training_steps(member, loop.prepare(member))
    request = next(steps)

    def step() -> None:
        nonlocal request
        request = steps.send(eager_step(member, request))

    return step


def main() -> int:
    """Blocks in turn; the medians."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("store", type=Path)
    parser.add_argument("--workload", default="image_classification")
    parser.add_argument("--class", dest="problem_class", default="workstation")
    parser.add_argument("--precision", default="mixed-bf16")
    parser.add_argument("--batch", type=int, default=512)
    parser.add_argument("--blocks", type=int, default=12)
    parser.add_argument("--steps", type=int, default=12)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        task = task_of(options, open_store(options.store), Path(folder))
        member, other = member_of(task, "a"), member_of(task, "b")
        loop.prepare(member)
        batch = sample_batch(member)
        ready = dataclasses.replace(other, feed=Ready(other, batch))  # type: ignore[arg-type]
        ways = {
            "synthetic": synthetic_step(member, batch),
            "bare": bare_step(member, batch),
            "loop": loop_step(ready),
            "disk": loop_step(member_of(task, "c")),
        }
        found = measured(ways, blocks=options.blocks, steps=options.steps)
    return told(found, batch=options.batch, steps=options.steps)


def measured(
    ways: dict[str, Callable[[], object]], *, blocks: int, steps: int
) -> dict[str, list[Spent]]:
    """What so many steps of each way take, block by block."""
    found: dict[str, list[Spent]] = {name: [] for name in ways}
    for block in range(blocks + 1):
        for name, step in ways.items():
            step()
            with measure_energy() as spent:
                for _ in range(steps):
                    step()
            if block:
                found[name].append(spent)
    return found


def told(spent: dict[str, list[Spent]], *, batch: int, steps: int) -> int:
    """The table, and whether both goals are met."""
    found = {name: [one.seconds / steps for one in blocks] for name, blocks in spent.items()}
    for name, blocks in spent.items():
        value = median(found[name])
        line = f"{name:10s} {1e3 * value:7.2f} ms  {batch / value:8,.0f} images/s"
        whole = sum(blocks[1:], start=blocks[0])
        if power := whole.power(len(blocks) * steps * batch):
            line += f"  {power['watts']:4.0f} W  {power['images_per_joule']:5.2f} images/J"
        print(line)
    cost = median(a / b for a, b in zip(found["loop"], found["bare"], strict=True))
    kept = median(a / b for a, b in zip(found["synthetic"], found["disk"], strict=True))
    print(f"step inside ai500 / bare: {cost:.4f}; from disk / synthetic, images/s: {kept:.4f}")
    out = Path(os.environ.get("OUT", ".")) / "framework.json"
    out.write_text(json.dumps(found))
    return 0 if cost <= 1.01 and kept >= 0.95 else 1


if __name__ == "__main__":
    sys.exit(main())
