"""Profiling of a member: the request in its task, and what each rank captured."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal


@dataclass(frozen=True, slots=True)
class Profiling:
    """Some steps of a member are looked at closely, instead of training it."""

    steps: int
    how: Literal["trace", "counters"] = "trace"


WARM_UP_STEPS = 3


UNKEPT_STEPS = 2
"""Under the profiler, which is slow when it starts."""


@dataclass(frozen=True, slots=True)
class RankCapture:
    """What one rank tells beside its trace."""

    rank: int
    host: str
    device: str
    device_name: str
    seconds_per_step: float
    """Without the profiler."""
    images_per_step: int
    """Of all ranks together."""
    clock_offset_seconds: float
    """Its host's wall clock less rank 0's."""
    clock_uncertainty_seconds: float
    operations_per_step: dict[str, int]
    """By kind, of all ranks together, forward and backward; told by rank 0 alone."""
    torch: str


def rank_file(member: Path, rank: int) -> Path:
    """Where a worker leaves its RankCapture."""
    return member / "profile" / f"rank{rank:04d}.json"


def captured_trace(member: Path, rank: int) -> Path:
    """Where a worker leaves its trace."""
    return member / "profile" / f"rank{rank:04d}.trace.json"


def steps_in_all(steps: int) -> int:
    """What a rank trains so that `steps` are kept: warm-up, without, and with the profiler."""
    return WARM_UP_STEPS + steps + UNKEPT_STEPS + steps + 1
