"""Precision–recall curves of members and ensemble: one chart per class, and their areas."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import fmean

import numpy as np
from numpy.typing import NDArray

from ai500.records.illustrations import Chart, Kind, Line
from ai500.workloads.detection.mean_average_precision import RECALLS, Curve, precision_recall

# Curves drawn; means are over all members.
MAX_CURVES = 32
COLUMNS = ("class", "members' mean", "ensemble")
AXES = ("recall", "precision")


def precision_recall_charts(
    members: Iterable[NDArray[np.floating]],
    ensemble: NDArray[np.floating],
    labels: NDArray[np.floating],
    *,
    kinds: Sequence[Kind],
) -> tuple[tuple[Chart, ...], tuple[tuple[str, ...], ...]]:
    """Return a chart per class, and the rows of the table, the mean over the classes last."""
    by_class: list[list[float]] = [[] for _ in kinds]
    drawn: list[list[Curve]] = [[] for _ in kinds]
    for boxes in members:
        for number, curve in enumerate(precision_recall(boxes, labels, classes=len(kinds))):
            if curve is not None:
                by_class[number].append(curve.average_precision)
                drawn[number] += [curve] if len(drawn[number]) < MAX_CURVES else []
    of_ensemble = precision_recall(ensemble, labels, classes=len(kinds))
    charts, areas = [], []
    for number, kind in enumerate(kinds):
        ensemble_curve = of_ensemble[number]
        if ensemble_curve is None:
            reason = f"no validation frame has a true box of the class {kind.name}"
            charts.append(Chart(_title(kind), f"Not measured: {reason}.", *AXES))
            continue
        mean = fmean(by_class[number])
        areas.append((f"{kind.name} ({kind.short})", mean, ensemble_curve.average_precision))
        members_of_class = len(by_class[number])
        chart = _chart(kind, drawn[number], ensemble_curve, members=members_of_class, mean=mean)
        charts.append(chart)
    if areas:
        _, means, ensembles = zip(*areas, strict=True)
        areas.append(("all classes' mean (mAP)", fmean(means), fmean(ensembles)))
    rows = tuple((name, f"{mean:.3f}", f"{area:.3f}") for name, mean, area in areas)
    return tuple(charts), rows


def _chart(
    kind: Kind, drawn: Sequence[Curve], ensemble: Curve, *, members: int, mean: float
) -> Chart:
    thin_lines = f"{members:,} members" if members > 1 else "member"
    if len(drawn) < members:
        thin_lines = f"first {len(drawn)} of {thin_lines}"
    events = f"{ensemble.events:,} true box{'es' if ensemble.events > 1 else ''}"
    return Chart(
        title=_title(kind),
        caption=f"{events}. Thick: the ensemble. Thin: the {thin_lines}.",
        x_title=AXES[0],
        y_title=AXES[1],
        x=_rounded(RECALLS),
        lines=(
            *(Line("member", _rounded(curve.precision)) for curve in drawn),
            Line("ensemble", _rounded(ensemble.precision)),
        ),
        ensemble_text=("ensemble", f"AP {ensemble.average_precision:.3f}"),
        members_text=("members", f"mean AP {mean:.3f}"),
    )


def _title(kind: Kind) -> str:
    return f"{kind.name} ({kind.short}): precision over recall"


def _rounded(values: NDArray[np.float64]) -> tuple[float, ...]:
    return tuple(round(value, 4) for value in values.tolist())
