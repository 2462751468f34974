"""Records of a study: its plan (study.json) and its result (result.json)."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import fmean
from typing import Any, ClassVar

from ai500.core.schema import option
from ai500.records import Score, require


@dataclass(frozen=True, slots=True)
class PlannedPoint:
    """One point: settings over the study's configuration, and its run."""

    name: str
    label: str
    overrides: dict[str, Any]
    """Dotted keys of the configuration."""
    digest: str | None = None
    """Digest of everything the result depends on; None: the point is impossible here."""
    run: str | None = None
    """Run folder, relative to the study's where it is inside or beside it."""
    reused: bool = False
    """True: the run was made outside this study."""
    impossible: str | None = None
    """Reason why the point cannot run here."""


@dataclass(frozen=True, slots=True)
class StudyPlan:
    """study.json."""

    FORMAT: ClassVar[int] = 1
    format: int = option(FORMAT, "version of the study folder's layout", minimum=1)
    study: str = option("", "which study")
    version: str = option("", "version of ai500 that planned it")
    workload: str = option("", "the AI task")
    problem_class: str = option("", "problem class")
    points: tuple[PlannedPoint, ...] = ()


@dataclass(frozen=True, slots=True)
class Conditions:
    """Load of the machine just before a run."""

    busy_share: float | None
    """Busy fraction of the cores over a second in which the study slept; None: not measured."""
    accelerator_busy_share: float | None = None
    """Utilization of the busiest accelerator at the end of that second; None: not measured."""


@dataclass(frozen=True, slots=True)
class MemberTime:
    """Training interval of one member, in seconds since the window's start."""

    member: int
    wave: int
    start: float
    end: float

    @property
    def seconds(self) -> float:
        """Return the time from its first batch to its end."""
        return self.end - self.start


@dataclass(frozen=True, slots=True)
class PointResult:
    """Measurements of one point's run."""

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
    samples_per_second: float | None
    """Images of all members together; None for a search, whose models differ."""
    wall_seconds: float | None
    """From start to end of the command, without interruptions."""
    seed: int
    members: tuple[MemberTime, ...]
    """Members of the shown trial."""
    timing_issues: tuple[str, ...]
    """Reasons why the speed is not comparable; empty: it is."""
    busy_share: float | None
    """Busy fraction of the machine's cores just before the run; None: not measured."""

    @property
    def model_samples_per_second(self) -> float | None:
        """Images per second of one model, the mean over the members' own times; None: a search."""
        if self.samples_per_second is None or not self.members:
            return None
        samples = self.steps_per_epoch * self.global_batch_size * self.epochs
        return samples / fmean(member.seconds for member in self.members)

    @property
    def flops(self) -> float:
        """FLOPS of its score."""
        return require(self.score.flops, "flops")

    @property
    def vflops(self) -> float:
        """VFLOPS of its score."""
        return require(self.score.vflops, "vflops")

    @property
    def ensemble_quality(self) -> float:
        """Quality of its ensemble."""
        return require(self.score.ensemble_quality, "ensemble_quality")

    @property
    def timing_valid(self) -> bool:
        """Return whether the speed may be compared with that of other points."""
        return not self.timing_issues


@dataclass(frozen=True, slots=True)
class MissingPoint:
    """A point without a result, and the reason."""

    name: str
    label: str
    reason: str
    failed: bool
    """True: it ran and failed; False: it is impossible here, or has not run yet."""
    run: str | None = None
    """Folder of a failed run; its reason is kept as long as the folder exists."""


@dataclass(frozen=True, slots=True)
class StudyResult:
    """Results of a study's points, as in result.json."""

    FORMAT: ClassVar[int] = 1
    format: int
    study: str
    version: str
    workload: str
    problem_class: str
    hardware: str
    measured_at: str
    points: tuple[PointResult, ...]
    missing: tuple[MissingPoint, ...]

    def by_name(self) -> dict[str, PointResult]:
        """Return the points by name."""
        return {point.name: point for point in self.points}
