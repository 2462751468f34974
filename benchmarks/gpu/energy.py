"""Time and energy of GPU work; energy by the GPU's own counter."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch


@dataclass
class Usage:
    """Seconds and joules of the work inside `measure_energy`; joules None: NVML has no counter."""

    seconds: float = 0.0
    joules: float | None = None

    def __add__(self, other: Usage) -> Usage:
        known = self.joules is not None and other.joules is not None
        joules = (self.joules or 0.0) + (other.joules or 0.0) if known else None
        return Usage(self.seconds + other.seconds, joules)

    @property
    def watts(self) -> float | None:
        """Return the mean power."""
        return None if self.joules is None else self.joules / self.seconds

    def power(self, images: float) -> dict[str, float]:
        """Return watts and images per joule, where known."""
        if self.joules is None or self.watts is None:
            return {}
        return {"watts": self.watts, "images_per_joule": images / self.joules}


@contextmanager
def measure_energy() -> Iterator[Usage]:
    """Measure until the GPU has finished the work launched inside."""
    usage, counter = Usage(), _energy_counter()
    _synchronize()
    before, start = counter(), time.perf_counter()
    yield usage
    _synchronize()
    usage.seconds, after = time.perf_counter() - start, counter()
    if before is not None and after is not None:
        usage.joules = after - before


def _synchronize() -> None:
    if torch.accelerator.is_available():
        torch.accelerator.synchronize()


@functools.cache
def _energy_counter() -> Callable[[], float | None]:
    """Return a function for the joules since the driver was loaded."""
    try:
        import pynvml

        pynvml.nvmlInit()
        handle = pynvml.nvmlDeviceGetHandleByIndex(0)
        pynvml.nvmlDeviceGetTotalEnergyConsumption(handle)
    except Exception as error:
        print(f"watts: not measured ({type(error).__name__}: {error})")
        return lambda: None
    return lambda: float(pynvml.nvmlDeviceGetTotalEnergyConsumption(handle)) / 1e3
