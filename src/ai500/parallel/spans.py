"""What a rank is doing, written into the trace while a profiler listens; nothing otherwise.

The collectives and the feed mark their parts with `span`. A name in the trace is
`ai500 PHASE | KEY | RANKS`, which `parse` reads back.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

READY = "ready"
"""A moment: all gradients of a buffer are there on this rank, and are handed over."""
REDUCE = "reduce"
"""One buffer, from its turn to its end; what follows lies inside."""
EXCHANGE = "exchange"
"""A call of the communication library with the ranks named."""
COPY_OUT = "copy out"
"""What was received back to values: decompression and the mean."""
DATA = "data"
"""The training loop waits for its next batch."""

_PREFIX, _BETWEEN = "ai500 ", " | "
_NOTHING = nullcontext()

Recorder = Callable[[str], AbstractContextManager[Any]]
_recorder: Recorder | None = None


@dataclass(frozen=True, slots=True)
class Mark:
    """What a span's name says."""

    phase: str
    key: str = ""
    """The buffer's name, the same in each step."""
    ranks: tuple[int, ...] = ()
    """Those an exchange is among, the rank itself included."""


def span(phase: str, *, key: str = "", ranks: Sequence[int] = ()) -> AbstractContextManager[Any]:
    """Around a part of a step; costs a look at a variable unless somebody listens."""
    if _recorder is None:
        return _NOTHING
    return _recorder(_PREFIX + _BETWEEN.join((phase, key, ",".join(map(str, ranks)))))


def record_with(recorder: Recorder | None) -> None:
    """Who listens from now on; None: nobody."""
    global _recorder
    _recorder = recorder


def parse(name: str) -> Mark | None:
    """The mark of a name in a trace, None for anybody else's."""
    if not name.startswith(_PREFIX):
        return None
    phase, key, ranks = name.removeprefix(_PREFIX).split(_BETWEEN)
    return Mark(phase, key, tuple(int(rank) for rank in ranks.split(",") if rank))
