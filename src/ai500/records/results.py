"""Results: the ensemble, the score, the identity of the run folder."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

from ai500.core.errors import JobError
from ai500.core.schema import option
from ai500.records.search import SearchScore, TrialSearchScore


def require(figure: float | None, key: str) -> float:
    """Return a figure that a computation needs; raise JobError where it was not measured."""
    if figure is None:
        raise JobError(
            f"{key} was not measured: a script counts no operations and may leave no predictions.",
            key=key,
            remedy="Set framework.operations, and let the script write predictions.",
        )
    return figure


@dataclass(frozen=True, slots=True)
class EnsembleResult:
    """Quality of the ensemble and of its members."""

    complete: bool
    members: tuple[int, ...]
    missing: tuple[int, ...]
    member_qualities: tuple[float, ...]
    members_mean_quality: float
    ensemble_quality: float | None
    """Quality of the combined predictions; None: a member left no predictions (scripts)."""
    out_of_bag_quality: float | None
    out_of_bag_samples: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreFigures:
    """Figures that a trial's score and a run's have in common; a run's are means over trials."""

    workload: str
    problem_class: str
    convention: str | None
    """Counting convention of the operations [D5]; None: not counted (scripts)."""
    complete: bool
    """True if every planned member finished; of a run, in every trial."""
    flops: float | None
    """Official: all members' operations / (last end − first start) [D6]; None: not counted."""
    vflops: float | None
    penalty_coefficient: float
    """Eq. 8 of the ensemble's quality; of the members' mean where the ensemble's is None."""
    target_quality: float
    quality_name: str
    ensemble_quality: float | None
    """None: not measured, because a script left no predictions."""
    members_mean_quality: float
    out_of_bag_quality: float | None
    seconds: float
    """Length of the timed window, from the first start to the last end."""
    time_to_quality_seconds: float
    time_to_target_seconds: float | None
    """Seconds until the members' mean first reached the target; None: not reached."""
    operations: float | None
    validation_operations: float | None
    apc: float | None
    """Amount of parallel computation of one iteration, V3 Eq. 4."""
    members_flops_sum: float | None
    """Sum of the members' own rates, beside the official figure [D6]."""
    start_skew_seconds: float
    """Seconds between the first and the last start of the first wave's members."""
    idle_seconds: float
    """Part of the window in which no member trained: start-up of later waves, interruptions."""
    ensemble_size: int
    parallel_degree: int
    system_scale: int
    members_per_accelerator: int
    waves: int
    clock: Literal["monotonic", "wall"]
    """One host: its monotonic clock. Several: wall clocks, less their measured offsets."""
    clock_offset_seconds: float | None
    """Largest corrected offset of a node's wall clock; None: not measured."""
    clock_uncertainty_seconds: float | None
    """Uncertainty of the window's length due to the clocks; None: not measured on every node."""
    energy_joules: float | None = None
    """Energy of the metered parts of all nodes in the window; None: not measured."""
    watts: float | None = None
    flops_per_watt: float | None = None
    vflops_per_watt: float | None = None
    power_coverage: str | None = None
    """Parts that the power meters cover, such as `accelerators` or `whole nodes`."""
    uncounted: dict[str, int] = field(default_factory=dict)
    """Operator that no rule counts → number in one step of a member; empty: all are counted."""
    custom_class: bool = False
    """True for a class of the user's own: comparable with no other score."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialScore(ScoreFigures):
    """Score of one trial."""

    trial: int
    seed: int | None
    """Seed of the trial; None: its log has no `trial_start` event."""
    epochs_to_target: int | None = None
    """Epoch of the evaluation at which the members' mean first reached the target."""
    search: TrialSearchScore | None = None
    """Figures of an architecture search; None: the trial trained an ensemble."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Score(ScoreFigures):
    """Score of a run: the mean of its kept trials, with the scores of all trials."""

    kept_trials: tuple[int, ...]
    """Numbers of the trials that enter the mean."""
    score_variation: float | None
    """Sample standard deviation / mean of VFLOPS over all complete trials; None: fewer than two."""
    epochs_to_target_variation: float | None
    """Variation of the epochs to the target (V2 Table 2); None where a trial did not reach it."""
    search: SearchScore | None = None
    """Figures of an architecture search; None: the run trained an ensemble."""
    trials: tuple[TrialScore, ...]

    @property
    def shown_trial(self) -> TrialScore:
        """Trial whose curves and members reports show: the median by VFLOPS of the kept ones.

        Of an even number the lower of the middle two; without a kept trial the first complete one,
        else the first.
        """
        kept = [trial for trial in self.trials if trial.trial in self.kept_trials]
        if kept:
            kept.sort(key=lambda trial: (trial.vflops or 0.0, trial.trial))
            return kept[(len(kept) - 1) // 2]
        return next((trial for trial in self.trials if trial.complete), self.trials[0])


@dataclass(frozen=True, slots=True)
class RunState:
    """Identity of a run folder."""

    FORMAT: ClassVar[int] = 1
    format: int = option(FORMAT, "version of the run folder's layout", minimum=1)
    version: str = option("", "version of ai500 that created it")
    name: str = option("", "name of the run")
    source_sha256: str | None = option(None, "digest of ai500's files when the run began")
    commit: str | None = option(None, "git's commit of those files; absent: no checkout")
    dirty: bool | None = option(None, "true if the checkout had uncommitted changes")
