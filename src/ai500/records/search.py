"""Settings of an architecture search (AIPerf) and the figures of its score."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Initial:
    """The network that every search of a class starts at."""

    kind: Literal["bottleneck", "basic"]
    blocks: tuple[int, ...]
    width: int


@dataclass(frozen=True, slots=True)
class Search:
    """One search of a worker (AIPerf §IV-E, Table IV)."""

    minutes: float
    """How long each worker searches."""
    initial: Initial
    patience: int
    """Epochs without progress on the validation set after which a model is given up."""
    batch_sizes: tuple[int, ...]
    """Images per accelerator and step that TPE chooses from."""
    kernel_sizes: tuple[int, ...] = (3, 5)
    """Of the blocks that are added; the first before TPE begins."""
    warmup_rounds: int = 4
    """TPE and the actual accuracy from the round after these on: the fifth."""
    max_growth: float = 8.0
    """A model has at most so many times the initial one's operations per image."""
    kept_models: int = 10
    """Parents are drawn from the best so many; only their weights are kept on disk."""
    degree: int | None = None
    """Accelerators of a worker; None: all of a node, as AIPerf's."""
    needs_accelerator: bool = False

    def tunes(self, number: int) -> bool:
        """Whether TPE chooses the hyper-parameters of a worker's round."""
        return number > self.warmup_rounds

    def epochs_of(self, number: int, *, most: int) -> int:
        """Epochs of a worker's round: in warm-up rounds are "trained insufficiently", by fifths."""
        if self.tunes(number):
            return most
        return max(1, math.ceil(most * number / (self.warmup_rounds + 1)))


@dataclass(frozen=True, slots=True)
class Improvement:
    """A search found a better model: when, and after how many operations of all workers."""

    seconds: float
    operations: float
    error: float
    model: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchFigures:
    """AIPerf's figures beside the final score, which is `flops` of the score they belong to."""

    at_seconds: float
    """End of the time, from the first batch, whose FLOPS is the final score."""
    min_seconds: float
    """Least length of a time that competes (AIPerf §IV-E: 1 hour)."""
    mean_flops: float
    """FLOPS over the whole search."""
    regulated_score: float
    """Highest −ln(error) × FLOPS of the same times (AIPerf Eq. 3)."""
    regulated_at_seconds: float
    best_model: str
    initial_error: float | None
    """Error of the architecture that the search starts from; None: not validated."""
    models: int
    """Models that the workers trained; the initial one counts once for each worker."""
    architectures: int
    tuned: int
    """Models whose hyper-parameters TPE chose."""
    lost: int
    """Models whose training failed."""
    idle_between_trainings: float
    """Fraction of the workers' time between the end of one training and the next one's start."""
    without_work: float
    """Fraction of the workers' time without any training or validation, restarts included."""
    unreadable_lines: int
    """Lines of the histories that were skipped."""
    operations_to_target: float | None
    """Operations of all workers until the best error met the target; None: not reached."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialSearchScore(SearchFigures):
    """Figures of one trial's search."""

    improvements: tuple[Improvement, ...] = ()
    """Time and operations to every best error, in order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchScore(SearchFigures):
    """Figures of a run's searches: means over the kept trials, sums of lost models and lines."""

    operations_to_target_variation: float | None = None
    """Variation over the trials (V3 Fig. 2: a search's computation varies from run to run)."""
