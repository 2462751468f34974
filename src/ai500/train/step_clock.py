"""Times of single steps: by the host's clock on a CPU, by the device's events elsewhere.

An accelerator's queue runs behind the host, so that the host's clock says nothing of a step. An
event is recorded after each step on the stream of its kernels and read once it has been reached;
events are used again, and the host waits for none of them but the epoch's last.
"""

from __future__ import annotations

import time
from collections import deque
from typing import Any

import torch

from ai500.train.loop import StepClock

PENDING_EVENTS = 64
"""Events from which those that were reached are read: seldom, and memory stays bounded."""


def step_clock(device: torch.device) -> StepClock:
    """Return a clock for steps on the device."""
    return HostClock() if device.type == "cpu" else DeviceClock(device)


class HostClock:
    """Step times by the host's clock: operators of a CPU end before their call returns."""

    def __init__(self) -> None:
        self._seconds: list[float] = []
        self._last: float | None = None

    def mark(self) -> None:
        """Mark the end of a step."""
        now = time.perf_counter()
        if self._last is not None:
            self._seconds.append(now - self._last)
        self._last = now

    def interrupt(self) -> None:
        """Leave the time to the next mark out."""
        self._last = None

    def take(self) -> list[float]:
        """Return the seconds of the steps since the last call, and begin anew."""
        seconds, self._seconds, self._last = self._seconds, [], None
        return seconds


class DeviceClock:
    """Step times by events on the device's current stream."""

    def __init__(self, device: torch.device) -> None:
        self._module = torch.get_device_module(device)
        self._seconds: list[float] = []
        self._pending: deque[Any] = deque()
        self._free: list[Any] = []

    def mark(self) -> None:
        """Mark the end of a step."""
        event = self._free.pop() if self._free else self._module.Event(enable_timing=True)
        event.record()
        self._pending.append(event)
        if len(self._pending) >= PENDING_EVENTS:
            self._read()

    def interrupt(self) -> None:
        """Leave the time to the next mark out."""
        if self._pending:
            self._pending[-1].synchronize()
            self._read()
            self._free.append(self._pending.pop())

    def take(self) -> list[float]:
        """Return the seconds of the steps since the last call, and begin anew."""
        self.interrupt()
        seconds, self._seconds = self._seconds, []
        return seconds

    def _read(self) -> None:
        """Read the times between events that the device has reached."""
        while len(self._pending) > 1 and self._pending[1].query():
            event = self._pending.popleft()
            self._seconds.append(event.elapsed_time(self._pending[0]) / 1e3)
            self._free.append(event)
