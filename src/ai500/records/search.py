"""Settings of an architecture search (AIPerf) and the figures of its score."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class InitialNetwork:
    """Network at which every search of a class starts."""

    kind: Literal["bottleneck", "basic"]
    blocks: tuple[int, ...]
    width: int
    version: Literal["v1.5", "v1"] = "v1.5"
    """Place of a bottleneck's stride: v1.5 on the 3×3, v1 on the first 1×1 [D16]."""


@dataclass(frozen=True, slots=True)
class Search:
    """Settings of a worker's search (AIPerf §IV-E, Table IV)."""

    minutes: float
    """Search time of each worker."""
    initial: InitialNetwork
    patience: int
    """Epochs without improvement on the validation set after which a model's training stops."""
    batch_sizes: tuple[int, ...]
    """TPE's choices for the images per accelerator and step."""
    kernel_sizes: tuple[int, ...] = (3, 5)
    """TPE's choices for the kernel size of the whole model; added blocks have the first."""
    warmup_rounds: int = 4
    """Rounds before the search uses TPE and the actual accuracy (AIPerf: from the fifth)."""
    hyperparameter_trials: int = 2
    """Trainings of each architecture from the fifth round on, each with TPE's choice of batch and
    kernel size (AIPerf §IV-B: after the morphism, on each worker)."""
    buffer_size: int = 4
    """Architectures that a worker keeps ready in its buffer (AIPerf §IV-C)."""
    search_threads: int = 2
    """CPU threads of a worker that search architectures during training."""
    max_growth: float = 3.0
    """Upper bound of a model's operations per image / those of the initial network [D21]."""
    kept_models: int = 10
    """Number of best models that are parents; only their weights are kept on disk."""
    degree: int | None = None
    """Accelerators of a worker; None: all of a node, as in AIPerf."""
    needs_accelerator: bool = False

    def tunes(self, number: int) -> bool:
        """Return True if TPE chooses the hyper-parameters of the worker's round `number`."""
        return number > self.warmup_rounds

    def epochs_of(self, number: int, *, epochs: int) -> int:
        """Return the epochs of the worker's round `number`: a growing part of `epochs` in warm-up.

        AIPerf §IV-C: warm-up rounds are "trained insufficiently".
        """
        if self.tunes(number):
            return epochs
        return max(1, math.ceil(epochs * number / (self.warmup_rounds + 1)))


@dataclass(frozen=True, slots=True)
class Improvement:
    """A new best model: time since the first batch, and operations of all workers until then."""

    seconds: float
    operations: float
    error: float
    model: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchFigures:
    """AIPerf's figures beside the final score, which is `flops` of the score they belong to."""

    at_seconds: float
    """Seconds since the first batch at which FLOPS is highest: the final score."""
    min_seconds: float
    """Smallest `at_seconds` that counts (AIPerf §IV-E: 1 hour)."""
    mean_flops: float
    """FLOPS over the whole search."""
    regulated_score: float
    """Highest −ln(error) × FLOPS since `min_seconds` (AIPerf Eq. 3)."""
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
    """Figures of a run: means over the kept trials, sums of lost models and unreadable lines."""

    operations_to_target_variation: float | None = None
    """Sample standard deviation / mean of `operations_to_target` over the trials (V3 Fig. 2)."""
