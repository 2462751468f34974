"""Signals: `kill` means what Ctrl-C means, and clearing up is not disturbed by a second one."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator


def as_interrupt(number: int, frame: object) -> None:
    """A handler that treats a signal as Ctrl-C."""
    raise KeyboardInterrupt


@contextlib.contextmanager
def uninterrupted() -> Iterator[None]:
    """A second Ctrl-C does not disturb the clearing up after the first."""
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = [signal.signal(number, signal.SIG_IGN) for number in numbers]
    try:
        yield
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)
