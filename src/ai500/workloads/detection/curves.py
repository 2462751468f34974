"""Precision–recall curves of members and ensemble: a chart per class, and their areas."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

import numpy as np
from numpy.typing import NDArray

from ai500.records.illustrations import Chart, Kind, Line
from ai500.workloads.detection.mean_average_precision import RECALLS, Curve, precision_recall

MOST_MEMBERS = 32
"""So many members' curves are drawn; the means are of all."""
COLUMNS = ("class", "members' mean", "ensemble")
Curves = list[Curve | None]


def curves_of(
    members: Sequence[NDArray[np.floating]],
    ensemble: NDArray[np.floating],
    labels: NDArray[np.floating],
    *,
    kinds: Sequence[Kind],
) -> tuple[tuple[Chart, ...], tuple[tuple[str, ...], ...]]:
    """A chart per class, and the rows of the table, the mean over the classes last."""
    each = [precision_recall(one, labels, classes=len(kinds)) for one in members]
    together = precision_recall(ensemble, labels, classes=len(kinds))
    charts, areas = [], []
    for number, kind in enumerate(kinds):
        theirs = [curve for curves in each if (curve := curves[number]) is not None]
        ours = together[number]
        if ours is None:
            charts.append(_no_chart(kind))
            continue
        mean = fmean(curve.average_precision for curve in theirs)
        areas.append((f"{kind.name} ({kind.short})", mean, ours.average_precision))
        charts.append(_chart(kind, theirs, ours, mean=mean))
    if areas:
        _, means, ensembles = zip(*areas, strict=True)
        areas.append(("all classes' mean (mAP)", fmean(means), fmean(ensembles)))
    rows = tuple((name, f"{mean:.3f}", f"{area:.3f}") for name, mean, area in areas)
    return tuple(charts), rows


def _chart(kind: Kind, theirs: Sequence[Curve], ours: Curve, *, mean: float) -> Chart:
    drawn = theirs[:MOST_MEMBERS]
    thin = f"{len(theirs):,} members" if len(theirs) > 1 else "member"
    if len(drawn) < len(theirs):
        thin = f"first {len(drawn)} of {thin}"
    events = f"{ours.events:,} true box{'es' if ours.events > 1 else ''}"
    return Chart(
        title=_title(kind),
        caption=f"Of {events}. Thick: the ensemble. Thin: the {thin}.",
        x_title="recall",
        y_title="precision",
        x=_rounded(RECALLS),
        lines=(
            *(Line("member", _rounded(curve.precision)) for curve in drawn),
            Line("ensemble", _rounded(ours.precision)),
        ),
        ensemble_text=("ensemble", f"AP {ours.average_precision:.3f}"),
        members_text=("members", f"mean AP {mean:.3f}"),
    )


def _no_chart(kind: Kind) -> Chart:
    return Chart(
        title=_title(kind),
        caption=f"Not measured: no validation frame has a true box of the class {kind.name}.",
        x_title="recall",
        y_title="precision",
        x=(),
        lines=(),
        ensemble_text=(),
        members_text=(),
    )


def _title(kind: Kind) -> str:
    return f"{kind.name} ({kind.short}): precision over recall"


def _rounded(values: NDArray[np.float64]) -> tuple[float, ...]:
    return tuple(round(value, 4) for value in values.tolist())
