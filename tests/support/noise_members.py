"""Real members on random images, for tests and benchmarks of members that share a device."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch

from ai500.bagging.data_sampler import BOOTSTRAP
from ai500.data.bootstrap import save_bootstrap
from ai500.data.generated import generate
from ai500.data.store import Arrays
from ai500.records import Communication, Parallelism, Slot, Task
from ai500.records.fields import Field, image_fields
from ai500.train.member import Member, member_from_task
from ai500.train.worker import Rank
from ai500.workloads.image_classification import CLASSES
from ai500.workloads.models.resnet import ResNet

SEED = 20


@dataclass(frozen=True)
class Shape:
    """Shape of a step: the class's model, ResNet-50 for `full`, on images of that size."""

    name: str
    batch_size: int
    stored: int
    """Pixels along a side in the store; `seen`: of the model's input."""
    seen: int
    samples: int
    problem_class: str = "full"


SHAPES = {
    "32": Shape("batch 64, 32×32", 64, 32, 32, 64 * 1500),
    "224": Shape("batch 32, 224×224 of 256×256", 32, 256, 224, 32 * 200),
}


@dataclass(frozen=True)
class Noise:
    """Random images, the same for the same split and rows."""

    side: int
    classes: int

    @property
    def fields(self) -> tuple[Field, ...]:
        return image_fields(self.side, self.side, classes=self.classes)

    def draw(self, split: str, first: int, last: int) -> Arrays:
        """Draw rows from a generator of their own."""
        generator = np.random.default_rng([len(split), first])
        shape = (last - first, self.side, self.side, 3)
        images = generator.integers(0, 256, shape, dtype=np.uint8)
        return {"images": images, "labels": generator.integers(0, self.classes, last - first)}


def make_tasks(
    shape: Shape, folder: Path, *, members: int, precision: str, optimizer: str = "sgd"
) -> list[Task]:
    """Return the tasks of members that share a process; the store is generated once."""
    definition = replace(
        CLASSES[shape.problem_class],
        input_shape=(3, shape.seen, shape.seen),
        fields=image_fields(
            shape.stored, shape.stored, classes=CLASSES[shape.problem_class].classes
        ),
        train_samples=shape.samples,
        validation_samples=64,
    )
    store = folder / f"store-{shape.problem_class}-{shape.seen}"
    if not store.exists():
        splits = {"train": shape.samples, "validation": definition.validation_samples}
        names = [f"class {number}" for number in range(definition.classes)]
        noise = Noise(shape.stored, definition.classes)
        generate(store, noise, name="noise", classes=names, splits=splits, workers=1)
    hyper = replace(
        definition.reference,
        batch_size=shape.batch_size, precision=precision, optimizer=optimizer, epochs=100,
    )  # fmt: skip
    tasks = []
    for member in range(members):
        own = folder / f"member-{member}"
        own.mkdir(exist_ok=True)
        counts = BOOTSTRAP.draw(shape.samples, seed=SEED, member=member)
        bootstrap = own / "bootstrap"
        save_bootstrap(bootstrap, counts, algorithm="bootstrap", seed=SEED, member=member)
        tasks.append(
            Task(
                run=str(folder), trial=1, member=member, seed=SEED,
                workload="image_classification", definition=definition, hyperparameters=hyper,
                parallel=Parallelism("data"), communication=Communication(), parallel_degree=1,
                steps_per_epoch=shape.samples // shape.batch_size,
                slots=(Slot(0, "cpu", ()),), bootstrap=str(bootstrap), store=str(store),
                staged=None, stage=False, scratch=None, node_members=tuple(range(members)),
                folder=str(own), checkpoint_seconds=1e9, convention="aiperf",
                process_members=tuple(range(members)),
            )
        )  # fmt: skip
    return tasks


def make_member(task: Task, device: torch.device) -> Member:
    """Build a member as a worker does, without events and stop requests."""
    alone = Rank(rank=0, local_rank=0, local_world_size=1, world_size=1)
    member = member_from_task(task, rank=alone, device=device, stop=lambda: False)  # type: ignore[arg-type]
    member.events = None
    return member


def plain(member: Member) -> Member:
    """Replace the model with fused kernels by the ordinary one."""
    if isinstance(member.engine.module, ResNet):
        member.engine.module.__class__ = ResNet
    return member
