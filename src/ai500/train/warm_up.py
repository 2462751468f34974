"""PyTorch before the timed window: inputs on the device, and no trace of them [D18]."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from ai500.data.store import Arrays


def on_device(arrays: Arrays, device: torch.device) -> dict[str, Tensor]:
    """Copy the arrays to the device."""
    return {name: torch.from_numpy(values).to(device) for name, values in arrays.items()}


@contextmanager
def random_streams_preserved(device: torch.device) -> Iterator[None]:
    """Restore torch's generators on exit: warm-up may draw, such as for dropout."""
    devices = [] if device.type == "cpu" else [device.index or 0]
    kind = "cuda" if device.type == "cpu" else device.type
    with torch.random.fork_rng(devices=devices, device_type=kind):
        yield
