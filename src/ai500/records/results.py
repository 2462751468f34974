"""Results: the ensemble, the score, the identity of the run folder."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ai500.core.schema import option
from ai500.records.search import SearchScore


@dataclass(frozen=True, slots=True)
class EnsembleResult:
    """Aggregation: the members' predictions against the ensemble's."""

    complete: bool
    members: tuple[int, ...]
    missing: tuple[int, ...]
    member_qualities: tuple[float, ...]
    members_mean_quality: float
    ensemble_quality: float
    out_of_bag_quality: float | None
    out_of_bag_samples: int


@dataclass(frozen=True, slots=True)
class Score:
    """One trial's score, or the mean of the trials (then with them in `trials`)."""

    workload: str
    problem_class: str
    convention: str
    complete: bool
    trial: int | None
    seed: int | None
    flops: float
    """Official: all members' operations / (last end − first start) [D6]."""
    vflops: float
    penalty_coefficient: float
    target_quality: float
    quality_name: str
    ensemble_quality: float
    members_mean_quality: float
    out_of_bag_quality: float | None
    seconds: float
    time_to_quality_seconds: float
    time_to_target_seconds: float | None
    """When the members' mean first reached the target; None: not reached."""
    operations: float
    validation_operations: float
    apc: float
    members_flops_sum: float
    """Sum of the members' own rates, beside the official figure [D6]."""
    start_skew_seconds: float
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
    """The largest offset of a node's wall clock that was corrected; None: not measured."""
    clock_uncertainty_seconds: float | None
    """How far the window may be off for it; None: not measured on every node."""
    energy_joules: float | None = None
    """What the metered parts of all nodes drew in the window; None: not measured."""
    watts: float | None = None
    flops_per_watt: float | None = None
    vflops_per_watt: float | None = None
    power_coverage: str | None = None
    """What the power meters cover, such as `accelerators` or `whole nodes`."""
    epochs_to_target: int | None = None
    """Of one trial: the evaluation at which the members' mean first reached the target."""
    kept_trials: tuple[int, ...] = ()
    """Of a run: the trials whose mean it is; the others are shown beside it."""
    score_variation: float | None = None
    """Of a run: sample standard deviation / mean of VFLOPS over all complete trials."""
    epochs_to_target_variation: float | None = None
    """The same of the epochs to the target (V2 Table 2); None where a trial did not reach it."""
    search: SearchScore | None = None
    """None: no search, an ensemble."""
    trials: tuple[Score, ...] = ()


@dataclass(frozen=True, slots=True)
class RunState:
    """The identity of a run folder."""

    format: int = option(1, "version of the run folder's layout", minimum=1)
    version: str = option("", "version of ai500 that made it")
    name: str = option("", "name of the run")
