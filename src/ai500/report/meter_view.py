"""What the meters recorded of the shown trial, read for the report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ai500.core.events import Event
from ai500.meters.log import read_meters
from ai500.metrics.energy import Energy, NotMeasured, Window, sample_times, trial_energy
from ai500.metrics.meter_series import Curve, meter_curves
from ai500.records import Plan, TrialScore
from ai500.report.history import MemberHistory


@dataclass(frozen=True)
class MeterView:
    """Curves over the window, and its energy or why there is none."""

    curves: Mapping[str, Curve]
    energy: Energy | NotMeasured
    seconds: float


def read_meter_view(
    folder: Path,
    told: Sequence[Event],
    *,
    plan: Plan,
    shown: TrialScore,
    histories: Mapping[int, MemberHistory],
) -> MeterView:
    """From the trial's folder of meters; a trial without meters has no curves."""
    mine = [event for event in told if event.get("trial") == shown.trial]
    finished = {m: one for m, one in histories.items() if one.seconds is not None}
    first = min((one.attempts[0].start for one in finished.values()), default=0.0)
    window = Window(first, first + shown.seconds, sample_times(mine, shown.clock))
    nodes = {one.member: len(one.shares) for one in plan.mapping if one.member in finished}
    return MeterView(
        curves=meter_curves(read_meters(folder), window),
        energy=trial_energy(read_meters(folder), window, nodes_of_members=nodes),
        seconds=shown.seconds,
    )
