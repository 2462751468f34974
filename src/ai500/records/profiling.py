"""Profiling of a member: the request in its task, and the record of each rank."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

WARM_UP_STEPS = 3
DISCARDED_STEPS = 2  # first steps under the profiler, which starts slowly


@dataclass(frozen=True, slots=True)
class Profiling:
    """Request to profile some steps of a member instead of training it."""

    steps: int
    mode: Literal["trace", "counters"] = "trace"


@dataclass(frozen=True, slots=True)
class RankCapture:
    """Record of one rank beside its trace."""

    rank: int
    host: str
    device: str
    device_name: str
    seconds_per_step: float
    """Seconds per step without the profiler."""
    samples_per_step: int
    """Images per step of all ranks."""
    clock_offset_seconds: float
    """Wall clock of the rank's host minus that of rank 0."""
    clock_uncertainty_seconds: float
    operations_per_step: dict[str, int]
    """Kind → operations of all ranks, forward and backward; recorded by rank 0 only."""
    torch: str


def rank_file(member: Path, rank: int) -> Path:
    """Return the path of the rank's RankCapture."""
    return member / "profile" / f"rank{rank:04d}.json"


def captured_trace(member: Path, rank: int) -> Path:
    """Return the path of the rank's trace."""
    return member / "profile" / f"rank{rank:04d}.trace.json"


def total_steps(steps: int) -> int:
    """Return the steps that a rank trains: warm-up, `steps` unprofiled, `steps` profiled."""
    return WARM_UP_STEPS + steps + DISCARDED_STEPS + steps + 1
