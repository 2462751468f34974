"""Overhead of `ai500`'s loop and its input on a GPU, in one process, alternating blocks of steps.

    PYTHONPATH=src python3 -m benchmarks.gpu.framework STORE [--workload extreme_weather]
        [--class workstation] [--batch 512] [--blocks 12] [--precision mixed-bf16]

Variants of training a class of a workload with the same engine and the same kernels:
`bare`: a plain loop of augmentation, gradients and SGD on a batch that stays on the GPU;
`loop`: the real loop (schedule, events, progress, checkpoints) on that batch repeatedly;
`disk`: the real loop reading from the STORE: bootstrap, reading, copying;
`synthetic`: gradients and SGD alone, on prepared inputs. Printed: milliseconds per step of each,
loop / bare (goal ≤ 1.01) and images/s of disk over synthetic (goal ≥ 0.95).
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
from benchmarks.gpu.energy import Usage, measure_energy

from ai500.bagging.data_sampler import BOOTSTRAP
from ai500.data.bootstrap import save_bootstrap
from ai500.data.open_store import open_store
from ai500.data.store import Store
from ai500.records import Communication, Parallelism, Slot, Task
from ai500.train import loop
from ai500.train.feed import Batch
from ai500.train.member import Member, member_from_task
from ai500.train.step import eager_step, warm_up_batch
from ai500.train.worker import Rank, StopRequest
from ai500.workloads.protocol import load_workload

NEVER = 1_000_000
DEVICE = torch.device("cuda", 0) if torch.cuda.is_available() else torch.device("cpu")


class ConstantFeed:
    """A feed that always yields the same batch."""

    def __init__(self, member: Member, batch: Batch) -> None:
        self._feed, self._batch = member.feed, batch

    def __getattr__(self, name: str) -> object:
        return getattr(self._feed, name)

    def epoch(self, *_: object, **named: int) -> Iterator[Batch]:
        """Yield the batch without end."""
        while True:
            yield self._batch


def make_task(options: argparse.Namespace, store: Store, folder: Path) -> Task:
    """Make the task of a member; its folder is set later."""
    definition = load_workload(options.workload).problem_classes[options.problem_class]
    definition = dataclasses.replace(definition, normalization=store.normalization())
    train = store.splits["train"].count
    counts = BOOTSTRAP.draw(train, seed=1, member=0)
    save_bootstrap(folder / "bootstrap", counts, algorithm="bootstrap", seed=1, member=0)
    return Task(
        run=str(folder), trial=1, member=0, seed=1, workload=options.workload,
        definition=definition,
        hyperparameters=dataclasses.replace(
            definition.reference, epochs=NEVER, batch_size=options.batch,
            precision=options.precision, evaluate_every_epochs=NEVER,
        ),
        parallel=Parallelism(mode="data"), communication=Communication(),
        parallel_degree=1, steps_per_epoch=train // options.batch,
        slots=(Slot(0, DEVICE.type, ()),), bootstrap=str(folder / "bootstrap"),
        store=str(store.path), staged=None, stage=False, scratch=None, node_members=(0,),
        folder=str(folder), checkpoint_seconds=300, convention="aiperf",
    )  # fmt: skip


def make_member(task: Task, name: str) -> Member:
    """Build a member as a worker does."""
    home = Path(task.folder) / name
    home.mkdir()
    task = dataclasses.replace(task, folder=str(home))
    rank = Rank(rank=0, local_rank=0, local_world_size=1, world_size=1)
    return member_from_task(task, rank=rank, device=DEVICE, stop=StopRequest(rank))


def bare_step(member: Member, batch: Batch) -> Callable[[], object]:
    """Return a step of augmentation, gradients and SGD only."""

    def step() -> None:
        inputs, labels = member.workload.train_inputs(
            member.problem_class, batch.fields, batch.draws
        )
        member.optimizer.zero_grad(set_to_none=True)
        member.engine.forward_backward(inputs, labels)
        member.numerics.step(member.optimizer)

    return step


def synthetic_step(member: Member, batch: Batch) -> Callable[[], object]:
    """Return a step of gradients and SGD on prepared inputs."""
    inputs, labels = member.workload.train_inputs(member.problem_class, batch.fields, batch.draws)

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
    """Measure alternating blocks and print the medians."""
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
        task = make_task(options, open_store(options.store), Path(folder))
        member, other = make_member(task, "a"), make_member(task, "b")
        loop.prepare(member)
        batch = warm_up_batch(member)
        ready = dataclasses.replace(other, feed=ConstantFeed(other, batch))  # type: ignore[arg-type]
        variants = {
            "synthetic": synthetic_step(member, batch),
            "bare": bare_step(member, batch),
            "loop": loop_step(ready),
            "disk": loop_step(make_member(task, "c")),
        }
        usages = measure(variants, blocks=options.blocks, steps=options.steps)
    return report(usages, batch=options.batch, steps=options.steps)


def measure(
    variants: dict[str, Callable[[], object]], *, blocks: int, steps: int
) -> dict[str, list[Usage]]:
    """Measure blocks of steps of each variant."""
    usages: dict[str, list[Usage]] = {name: [] for name in variants}
    for block in range(blocks + 1):
        for name, step in variants.items():
            step()
            with measure_energy() as usage:
                for _ in range(steps):
                    step()
            if block:
                usages[name].append(usage)
    return usages


def report(usages: dict[str, list[Usage]], *, batch: int, steps: int) -> int:
    """Print the table; return 1 if a goal is missed."""
    seconds = {name: [usage.seconds / steps for usage in blocks] for name, blocks in usages.items()}
    for name, blocks in usages.items():
        value = median(seconds[name])
        line = f"{name:10s} {1e3 * value:7.2f} ms  {batch / value:8,.0f} images/s"
        total = sum(blocks[1:], start=blocks[0])
        if power := total.power(len(blocks) * steps * batch):
            line += f"  {power['watts']:4.0f} W  {power['images_per_joule']:5.2f} images/J"
        print(line)
    cost = median(a / b for a, b in zip(seconds["loop"], seconds["bare"], strict=True))
    disk_ratio = median(a / b for a, b in zip(seconds["synthetic"], seconds["disk"], strict=True))
    print(
        f"step inside ai500 / bare: {cost:.4f}; from disk / synthetic, images/s: {disk_ratio:.4f}"
    )
    out = Path(os.environ.get("OUT", ".")) / "framework.json"
    out.write_text(json.dumps(seconds))
    return 0 if cost <= 1.01 and disk_ratio >= 0.95 else 1


if __name__ == "__main__":
    sys.exit(main())
