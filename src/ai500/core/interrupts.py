"""Signal handling: SIGTERM acts as Ctrl-C, and clean-up ignores further signals."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator

from ai500.core.errors import Disconnected


def as_interrupt(number: int, frame: object) -> None:
    """Handle a signal as Ctrl-C."""
    raise KeyboardInterrupt


def as_disconnection(number: int, frame: object) -> None:
    """Handle a signal as the end of the terminal."""
    raise Disconnected


@contextlib.contextmanager
def uninterrupted() -> Iterator[None]:
    """Ignore SIGINT, SIGTERM and SIGHUP during clean-up."""
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    handlers = [signal.signal(number, signal.SIG_IGN) for number in numbers]
    try:
        yield
    finally:
        for number, handler in zip(numbers, handlers, strict=True):
            signal.signal(number, handler)
