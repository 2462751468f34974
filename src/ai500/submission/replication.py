"""Replicability (V2 §3.3): compare a rerun by another team with the claimed result.

The procedure, fixed in advance, for VFLOPS and for the ensemble's quality:

- values: those of all complete trials, none dropped, at least two on each side;
- replicated: TOST shows at α = 5 % that the means differ by less than the margin;
- differs: not replicated, and Welch's test finds a difference at α / 2, since two figures are
  tested;
- too few runs to tell: neither, or fewer than two runs on a side.

A rerun that breaks rules of the claim's level is not a replication, whatever its figures.

The margin is 5 % of the claimed mean for VFLOPS. Quality enters VFLOPS by its n-th power (V3
Eq. 8), so its margin is 5 % / n. A result is replicated only if both figures are. Where quality
does not enter VFLOPS (a search: n = 0), a rule bounds it, and FLOPS alone is compared.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Literal

from ai500.core.errors import InputError
from ai500.metrics.equations import Direction
from ai500.metrics.quality import is_better
from ai500.metrics.statistics import Welch, equivalence_p_value, student_quantile, welch
from ai500.metrics.trials import variation
from ai500.records import Score

ALPHA = 0.05
MARGIN = 0.05
Verdict = Literal["replicated", "differs", "too few runs to tell", "the rerun breaks rules"]


@dataclass(frozen=True, slots=True)
class Comparison:
    """Comparison of one figure of two sets of runs."""

    figure: str
    claimed: tuple[float, ...]
    repeated: tuple[float, ...]
    claimed_mean: float | None
    """Mean of the claimed values; None: no complete trial."""
    repeated_mean: float | None
    claimed_variation: float | None
    """Standard deviation / mean; None: fewer than two runs."""
    repeated_variation: float | None
    margin: float
    """Margin as a share of the claimed mean."""
    difference: float | None
    """(Repeated − claimed) / claimed mean; None: one side has no run."""
    interval: tuple[float, float] | None
    """90 % confidence interval of the difference; TOST at 5 % requires it inside ± margin."""
    equivalence_p: float | None
    difference_p: float | None
    verdict: Verdict
    reason: str


@dataclass(frozen=True, slots=True)
class Replication:
    """Verdict on a claimed result after a rerun."""

    verdict: Verdict
    comparisons: tuple[Comparison, ...]
    other_system: tuple[str, ...] = ()
    """Differences between the two systems, which may explain a difference of figures."""
    broken: tuple[str, ...] = ()
    """Rules of the level that the rerun breaks."""


def judge(
    claimed: Score, repeated: Score, *, penalty_exponent: float, margin: float = MARGIN,
    direction: Direction = "higher", other_system: Sequence[str] = (),
    broken: Sequence[str] = (),
) -> Replication:  # fmt: skip
    """Compare both figures and decide if the claimed result is replicated."""
    check_margin(margin)
    if penalty_exponent < 0:
        message = f"penalty exponent {penalty_exponent:g}: quality has no margin."
        raise InputError(message, value=penalty_exponent)
    comparisons = [compare("VFLOPS", *_both(claimed, repeated, "vflops"), margin=margin)]
    if penalty_exponent:
        comparisons.append(
            compare(
                claimed.quality_name, *_both(claimed, repeated, "ensemble_quality"),
                margin=margin / penalty_exponent, direction=direction,
            )
        )  # fmt: skip
    verdicts = [comparison.verdict for comparison in comparisons]
    verdict = "the rerun breaks rules" if broken else overall(verdicts)
    return Replication(verdict, tuple(comparisons), tuple(other_system), tuple(broken))


def check_margin(margin: float) -> None:
    """Raise an error unless the margin is a share between 0 and 1."""
    if not 0 < margin < 1:
        message = f"--margin {margin:g}: not a share between 0 and 1, such as {MARGIN:g}."
        raise InputError(message, key="--margin", value=margin)


def overall(verdicts: Sequence[Verdict]) -> Verdict:
    """Combine verdicts: any difference differs, and all figures have to be replicated."""
    if "differs" in verdicts:
        return "differs"
    return "replicated" if set(verdicts) == {"replicated"} else "too few runs to tell"


def compare(
    figure: str, claimed: Sequence[float], repeated: Sequence[float], *, margin: float,
    direction: Direction = "higher",
) -> Comparison:  # fmt: skip
    """Compare one figure by both tests."""
    test, verdict, reason = None, _UNDECIDED, "a test needs two complete trials on each side"
    equivalence = None
    if min(len(claimed), len(repeated)) >= 2 and fmean(claimed):
        test = welch(claimed, repeated)
        equivalence = equivalence_p_value(test, margin=margin * abs(fmean(claimed)))
        verdict, reason = _decide(test, equivalence, margin=margin, direction=direction)
    comparable = bool(claimed and repeated and fmean(claimed))
    return Comparison(
        figure=figure,
        claimed=tuple(claimed),
        repeated=tuple(repeated),
        claimed_mean=fmean(claimed) if claimed else None,
        repeated_mean=fmean(repeated) if repeated else None,
        claimed_variation=variation(claimed),
        repeated_variation=variation(repeated),
        margin=margin,
        difference=fmean(repeated) / fmean(claimed) - 1 if comparable else None,
        interval=None if test is None else _interval(test, mean=fmean(claimed)),
        equivalence_p=equivalence,
        difference_p=None if test is None else test.p_value,
        verdict=verdict,
        reason=reason,
    )


_UNDECIDED: Verdict = "too few runs to tell"


def _decide(
    test: Welch, equivalence: float, *, margin: float, direction: Direction
) -> tuple[Verdict, str]:
    if equivalence < ALPHA:
        return "replicated", (
            f"the means differ by less than {margin:.2%} (TOST p = {equivalence:.2g} < {ALPHA:g})"
        )
    better = is_better(test.difference, 0.0, direction=direction)
    if test.p_value < ALPHA / 2:
        return "differs", (
            f"the repeated runs are {'better' if better else 'worse'} "
            f"(Welch p = {test.p_value:.2g} < {ALPHA / 2:g}), "
            f"and not shown to be within {margin:.2%} (TOST p = {equivalence:.2g})"
        )
    return _UNDECIDED, (
        f"neither shown to be equal within {margin:.2%} (TOST p = {equivalence:.2g}) nor different "
        f"(Welch p = {test.p_value:.2g}): repeat with more --runs"
    )


def _interval(test: Welch, *, mean: float) -> tuple[float, float]:
    half = student_quantile(1 - ALPHA, degrees=test.degrees) * test.standard_error
    low, high = sorted(((test.difference - half) / mean, (test.difference + half) / mean))
    return low, high


def _both(claimed: Score, repeated: Score, key: str) -> tuple[list[float], list[float]]:
    first, second = (
        [float(getattr(trial, key)) for trial in score.trials if trial.complete]
        for score in (claimed, repeated)
    )
    return first, second
