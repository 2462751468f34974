"""What a score says of a search, on disk in `score.json`. Needs no torch."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Improvement:
    """A search found a better model: when, and after how many operations of all workers."""

    seconds: float
    operations: float
    error: float
    model: str


@dataclass(frozen=True, slots=True)
class SearchScore:
    """AIPerf's figures beside the final score, which is `Score.flops`; of a run, their means."""

    at_seconds: float
    """The final score is that of the time from the first batch until here."""
    least_seconds: float
    """Only times of at least this length compete (AIPerf §IV-E: 1 hour)."""
    mean_flops: float
    """Over the whole search."""
    regulated_score: float
    """The highest −ln(error) × FLOPS of the same times (AIPerf Eq. 3)."""
    regulated_at_seconds: float
    best_model: str
    initial_error: float | None
    """Of the architecture that the search starts from; None: not validated."""
    models: int
    """Taken up by all workers; the initial one by each of them."""
    architectures: int
    tuned: int
    """Models whose hyper-parameters TPE chose."""
    lost: int
    idle_between_trainings: float
    """Share of the workers' time between the end of one training and the next one's start."""
    without_work: float
    """Share of the workers' time without any training or validation, restarts included."""
    unreadable_lines: int
    """Of the histories; they are passed over."""
    operations_to_target: float | None
    """Of all workers until the best error met the target; None: not reached."""
    operations_to_target_variation: float | None = None
    """Of a run: over its trials (V3 Fig. 2: a search's computation varies from run to run)."""
    improvements: tuple[Improvement, ...] = ()
    """Of one trial: operations and time to every error that was reached."""
