"""Words of a study's page for the two programs: members of an ensemble, workers of a search."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ai500.automl.program import SEARCH
from ai500.pipeline.programs import program_of
from ai500.study.records import PointResult


@dataclass(frozen=True)
class Words:
    """Nouns and sentences of a program."""

    member: str
    """Noun of what M counts."""
    points: str
    """Beginning of the sentence on all points."""
    result: str
    """Subject whose quality is the result's."""
    combined: str
    """Label of the result's quality."""
    mean: str
    """Label of the members' mean quality."""
    quality_note: str
    vflops_note: str
    skew_note: str


ENSEMBLE_WORDS = Words(
    member="member",
    points="Ensembles of {} to {} members with P_degree = {} were trained.",
    result="The ensemble's",
    combined="ensemble",
    mean="members' mean",
    quality_note="Each member learns from its own bootstrap; none knows M.",
    vflops_note="VFLOPS = FLOPS × quality factor (V3 Eq. 7).",
    skew_note="Official FLOPS are all operations / (last end − first start) (decision D6): a "
    "member that starts late, or trains longer than the others, makes all accelerators wait. Idle "
    "is the fraction of (members at once × window) in which no member trained.",
)
SEARCH_WORDS = Words(
    member="worker",
    points="{} to {} workers with P_degree = {} searched for the same time.",
    result="The best model's",
    combined="best model",
    mean="workers' mean",
    quality_note="The best model of all workers, in the same time; workers see each other's "
    "histories.",
    vflops_note="VFLOPS equal FLOPS: AIPerf has no quality factor.",
    skew_note="A search's time is given, so no worker makes others wait. Idle is the fraction of "
    "(workers × window) before a worker's first batch or after its end.",
)


def is_search(points: Sequence[PointResult]) -> bool:
    """Return whether the points searched architectures (AIPerf) instead of training an ensemble."""
    return program_of(points[0].score) is SEARCH


def words_of(points: Sequence[PointResult]) -> Words:
    """Return the words of the points' program."""
    return SEARCH_WORDS if is_search(points) else ENSEMBLE_WORDS
