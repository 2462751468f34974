"""What work takes of the GPU: seconds, and joules by the GPU's own counter."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch


@dataclass
class Spent:
    """By the work inside `measure_energy`; joules are None where NVML does not tell."""

    seconds: float = 0.0
    joules: float | None = None

    def __add__(self, other: Spent) -> Spent:
        known = self.joules is not None and other.joules is not None
        joules = (self.joules or 0.0) + (other.joules or 0.0) if known else None
        return Spent(self.seconds + other.seconds, joules)

    @property
    def watts(self) -> float | None:
        """On average."""
        return None if self.joules is None else self.joules / self.seconds

    def power(self, images: float) -> dict[str, float]:
        """Watts and images per joule, where they are known."""
        if self.joules is None or self.watts is None:
            return {}
        return {"watts": self.watts, "images_per_joule": images / self.joules}


@contextmanager
def measure_energy() -> Iterator[Spent]:
    """From now until the GPU has done what is launched inside."""
    spent, counter = Spent(), _counter()
    _wait()
    before, began = counter(), time.perf_counter()
    yield spent
    _wait()
    spent.seconds, after = time.perf_counter() - began, counter()
    if before is not None and after is not None:
        spent.joules = after - before


def _wait() -> None:
    if torch.accelerator.is_available():
        torch.accelerator.synchronize()


@functools.cache
def _counter() -> Callable[[], float | None]:
    """Joules since the driver was loaded."""
    try:
        import pynvml

        pynvml.nvmlInit()
        handle = pynvml.nvmlDeviceGetHandleByIndex(0)
        pynvml.nvmlDeviceGetTotalEnergyConsumption(handle)
    except Exception as error:
        print(f"watts: not measured ({type(error).__name__}: {error})")
        return lambda: None
    return lambda: float(pynvml.nvmlDeviceGetTotalEnergyConsumption(handle)) / 1e3
