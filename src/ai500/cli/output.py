"""Standard output that a run survives: a full disk under its log, a closed pipe, an ASCII terminal.

What is printed is a copy of what the run folder records. Where it can't be written, the run goes on
without it, and standard error says so once.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from typing import IO, Any


def print_any_character() -> None:
    """Replace characters that the terminal's encoding lacks, instead of failing on them."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")


class SurvivingStream:
    """A text stream that drops what it can't write, and reports the first error on stderr."""

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream
        self._lost = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        """Write the text, or drop it."""
        if not self._lost:
            with self._surviving():
                self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        """Flush the stream, or drop what it buffers."""
        if not self._lost:
            with self._surviving():
                self._stream.flush()

    @contextlib.contextmanager
    def _surviving(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            self._lost = True
            discard_buffer(self._stream)
            with contextlib.suppress(OSError):
                reason = error.strerror or type(error).__name__
                print(f"no more output: {reason}; the run goes on", file=sys.stderr, flush=True)


def discard_buffer(stream: IO[str]) -> None:
    """Point the stream to nowhere: what it still buffers would fail again at exit."""
    with contextlib.suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)


@contextlib.contextmanager
def surviving_output() -> Iterator[None]:
    """Let the body go on when standard output can't be written any more."""
    original = sys.stdout
    sys.stdout = SurvivingStream(original)
    try:
        yield
    finally:
        sys.stdout.flush()
        sys.stdout = original
