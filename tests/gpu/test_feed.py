"""Reading ahead to a GPU that is busy: the samples that were asked for, and nothing left behind."""

from __future__ import annotations

import dataclasses
import threading
from pathlib import Path

import numpy as np
import pytest
import torch

from ai500.core.errors import DataError
from ai500.data.generated import generate
from ai500.train.feed import Feed
from ai500.train.read_ahead import THREAD_NAME
from ai500.workloads.learnable_images import SMOKE

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU: not tested here"),
]
COUNT, BATCH, STEPS = 512, 64, 60


def test_a_busy_gpu_gets_each_batch_as_it_is_stored(tmp_path: Path) -> None:
    """Buffers are filled again while copies, and kernels on what was copied, still wait."""
    classes = [str(number) for number in range(SMOKE.classes)]
    store = generate(tmp_path / "s", SMOKE, name="t", classes=classes, splits={"train": COUNT})
    split = store.splits["train"]
    here = Feed(samples=split, seed=3, member=1, rank=0, world_size=1, batch_size=BATCH,
                draws_per_sample=5, device=torch.device("cpu"))  # fmt: skip
    there = dataclasses.replace(here, device=torch.device("cuda", torch.cuda.current_device()))
    order = np.random.default_rng(2).integers(0, COUNT, STEPS * BATCH)
    load = torch.randn(4096, 4096, device="cuda")
    sums = []
    for batch in there.epoch(0, order, first_step=0):
        load = load @ load / 4096  # the host runs ahead of this
        images, labels = batch.fields["images"], batch.fields["labels"]
        sums.append((images.double().sum((1, 2, 3)), labels.clone(), batch.draws + 0))
    assert len(sums) == STEPS
    for (images, labels, draws), batch in zip(
        sums, here.epoch(0, order, first_step=0), strict=True
    ):
        assert torch.equal(images.cpu(), batch.fields["images"].double().sum((1, 2, 3)))
        assert torch.equal(labels.cpu(), batch.fields["labels"])
        assert torch.equal(draws.cpu(), batch.draws)
    broken = np.append(order, [COUNT] * BATCH)
    with pytest.raises(DataError) as raised:
        list(there.epoch(0, broken, first_step=STEPS - 2))
    assert raised.value.value == COUNT
    next(iter(there.epoch(0, order, first_step=0)))
    assert not [thread for thread in threading.enumerate() if thread.name == THREAD_NAME]
