"""What a study leaves on disk: its plan (study.json) and its result (result.json)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ai500.core.schema import option
from ai500.records import Score

FORMAT = 1


@dataclass(frozen=True, slots=True)
class PlannedPoint:
    """One point: settings over the study's configuration, and the run that serves it."""

    name: str
    label: str
    overrides: dict[str, Any]
    """Dotted keys of the configuration."""
    digest: str | None = None
    """Of all that a run's result depends on; None: the point is impossible here."""
    run: str | None = None
    """Its folder; relative to the study's own where it lies in it or beside it."""
    reused: bool = False
    """The run was made outside of this study."""
    impossible: str | None = None
    """Why there can be no such run here."""


@dataclass(frozen=True, slots=True)
class StudyPlan:
    """study.json."""

    format: int = option(FORMAT, "version of the study folder's layout", minimum=1)
    study: str = option("", "which study")
    version: str = option("", "version of ai500 that planned it")
    workload: str = option("", "the AI task")
    problem_class: str = option("", "problem class")
    points: tuple[PlannedPoint, ...] = ()


@dataclass(frozen=True, slots=True)
class Conditions:
    """The machine just before a run began."""

    busy_share: float | None
    """Of its cores, over a second in which the study itself slept; None: not measured."""
    accelerator_busy_share: float | None = None
    """Utilization of the busiest accelerator at the end of that second; None: not measured."""


@dataclass(frozen=True, slots=True)
class MemberTime:
    """When one member trained, in seconds since the window began."""

    member: int
    wave: int
    start: float
    end: float

    @property
    def seconds(self) -> float:
        """From its first batch to its end."""
        return self.end - self.start


@dataclass(frozen=True, slots=True)
class PointResult:
    """What the run of one point measured."""

    name: str
    label: str
    run: str
    reused: bool
    score: Score
    device: str
    precision: str
    communication_precision: str
    global_batch_size: int
    learning_rate: float
    warmup_epochs: float
    epochs: int
    steps_per_epoch: int
    schedule: str
    decay_epochs: tuple[int, ...]
    decay_power: float
    images_per_second: float | None
    """None: of a search, whose models differ."""
    wall_seconds: float | None
    """From the start of the command to its end, interruptions left out."""
    seed: int
    members: tuple[MemberTime, ...]
    """Of the first complete trial."""
    doubts: tuple[str, ...]
    """Why its speed says nothing about a machine; none: it does."""
    busy_share: float | None
    """Of the machine's cores, just before it began; None: nobody looked."""

    @property
    def trusted(self) -> bool:
        """Whether its speed may be compared with others'."""
        return not self.doubts


@dataclass(frozen=True, slots=True)
class Missing:
    """A point without a result, and why."""

    name: str
    label: str
    reason: str
    failed: bool
    """It ran and failed; else it is not possible here, or its turn has not come."""
    run: str | None = None
    """Of one that failed: its folder, so that the reason stays as long as it does."""


@dataclass(frozen=True, slots=True)
class StudyResult:
    """result.json."""

    format: int
    study: str
    version: str
    workload: str
    problem_class: str
    hardware: str
    measured_at: str
    points: tuple[PointResult, ...]
    missing: tuple[Missing, ...]
