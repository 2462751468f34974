"""Named spans in a profiler's trace: what a rank is doing. Without a profiler they cost nothing.

The collectives and the feed mark their parts with `span`. A name in the trace is
`ai500 PHASE | KEY | RANKS`, which `parse` reads back.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

READY = "ready"
"""Moment at which all gradients of a buffer are ready on this rank."""
REDUCE = "reduce"
"""Reduction of one buffer; EXCHANGE and COPY_OUT lie inside."""
EXCHANGE = "exchange"
"""Call of the communication library among the named ranks."""
COPY_OUT = "copy out"
"""Decompression and mean of received bytes."""
DATA = "data"
"""Wait of the training loop for its next batch."""

_PREFIX, _BETWEEN = "ai500 ", " | "
_NOTHING = nullcontext()

Recorder = Callable[[str], AbstractContextManager[Any]]
# The active profiler's recorder, like the profiler itself one per process.
_recorder: Recorder | None = None


@dataclass(frozen=True, slots=True)
class Mark:
    """Fields of a span's name."""

    phase: str
    key: str = ""
    """Name of the buffer, the same in each step."""
    ranks: tuple[int, ...] = ()
    """Ranks of an exchange, this one included."""


def span(phase: str, *, key: str = "", ranks: Sequence[int] = ()) -> AbstractContextManager[Any]:
    """Return the context of a part of a step; empty unless a profiler records."""
    if _recorder is None:
        return _NOTHING
    return _recorder(_PREFIX + _BETWEEN.join((phase, key, ",".join(map(str, ranks)))))


def record_with(recorder: Recorder | None) -> None:
    """Set the recorder of spans; None stops recording."""
    global _recorder
    _recorder = recorder


def parse(name: str) -> Mark | None:
    """Parse a name in a trace; None for a name of another origin."""
    if not name.startswith(_PREFIX):
        return None
    phase, key, ranks = name.removeprefix(_PREFIX).split(_BETWEEN)
    return Mark(phase, key, tuple(int(rank) for rank in ranks.split(",") if rank))
