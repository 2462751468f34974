"""Power and energy in words, and the meters over time (V3 Fig. 6, AIPerf Fig. 5, V2 Fig. 13)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from ai500.core.units import human_si
from ai500.meters.log import read_meters
from ai500.metrics.energy import Energy, NotMeasured, Window, sample_times, trial_energy
from ai500.metrics.meter_series import Curve, meter_curves, power_names
from ai500.records import Score
from ai500.report.charts import svg
from ai500.report.charts.line_chart import LineChart, Series, Style, Value
from ai500.report.formats import NOT_MEASURED
from ai500.report.run_data import RunData
from ai500.report.section import Block, Figure, Grid, Paragraph, Section, Table

STYLES: tuple[Style, ...] = ("ensemble", "mean", "target")
DOTS: dict[Style, Literal["some", "none"]] = {"ensemble": "none", "mean": "some", "target": "none"}
STYLE_NAMES = ("solid", "with dots", "dashed")
COVERAGE = {"node": "whole nodes"}
LINKS = ("NVLink", "PCIe", "xGMI")
"""Links inside a node that have counters (V3 §3.7, V2 Fig. 13)."""


@dataclass(frozen=True)
class MeterView:
    """Curves over the timed window of a trial, and its energy or the reason why there is none."""

    curves: Mapping[str, Curve]
    energy: Energy | NotMeasured
    seconds: float


def power_section(run: RunData) -> Section:
    """Show energy, power and speed per watt, and all meters over time."""
    view = read_meter_view(run)
    blocks: list[Block] = [power_table(run.score), Paragraph(_coverage(view, run.score))]
    figures = _figures(view, _link_peaks(run))
    if figures:
        blocks.append(Grid(figures))
    else:
        text = "Load and traffic over time: not measured (no samples of meters lie in the window)."
        blocks.append(Paragraph(text))
    return Section("Power, load and traffic", blocks)


def read_meter_view(run: RunData) -> MeterView:
    """Read the meters of the shown trial; a trial without meters has no curves."""
    finished = {m: history for m, history in run.histories.items() if history.seconds is not None}
    start = min((history.attempts[0].start for history in finished.values()), default=0.0)
    seconds = run.shown.seconds
    window = Window(start, start + seconds, sample_times(run.events, run.shown.clock))
    nodes = {m.member: len(m.shares) for m in run.plan.mapping if m.member in finished}
    folder = run.trial_folder.meters
    return MeterView(
        curves=meter_curves(read_meters(folder), window),
        energy=trial_energy(
            read_meters(folder), window, nodes_of_members=nodes, device=run.plan.device
        ),
        seconds=seconds,
    )


def power_table(score: Score) -> Table:
    """List energy, power, and speed per watt, with what the meters cover."""
    covered = score.power_coverage
    of, by = ("", "") if covered is None else (f" of {covered}", f" by {covered}")
    rows = [
        ("Energy", _value(score.energy_joules, "J"),
         f"drawn{by} on all nodes, from first start to last end", "V2 §4.4.1"),
        ("Mean power", _value(score.watts, "W"), "energy / (last end − first start)", "V2 §4.4.1"),
        ("FLOPS per watt", _value(score.flops_per_watt, "FLOPS/W"),
         f"FLOPS / mean power{of}", "V2 §4.4.1"),
        ("VFLOPS per watt", _value(score.vflops_per_watt, "FLOPS/W"),
         f"VFLOPS / mean power{of}", "V2 §4.4.1"),
    ]  # fmt: skip
    return Table(("quantity", "value", "how it is computed", "source"), rows, numbers=(1,))


def _value(value: float | None, unit: str) -> str:
    return NOT_MEASURED if value is None else f"{human_si(value)}{unit}"


def _coverage(view: MeterView, score: Score) -> str:
    """Say what the figures hold for, or why there are none."""
    if isinstance(view.energy, NotMeasured):
        return f"Energy was not measured: {view.energy.reason}."
    if score.energy_joules is None:
        return "Energy was not measured in every trial."
    return (
        f"Metered: {view.energy.coverage}, on every node. What the meters do not cover (such as "
        "cooling, and other parts of the node) is not in these figures."
    )


def _figures(view: MeterView, peaks: Mapping[str, float]) -> list[Figure]:
    """Return a figure for each kind of thing that was metered; `peaks` are those of links."""
    bytes_per_second = "bytes per second, of a node"
    inside = " Inside: between processes of one node (lo); the others leave or enter it."
    load = ("utilization", "memory")
    figures = [
        _device(view, "Accelerators over time", "accelerator", load, "%", high=100.0),
        *(_power(view, name) for name in power_names(view.curves)),
        _device(view, "Hosts over time", "host", ("processors", "memory"), "%", high=100.0),
        _device(view, "Disks over time", "disk", ("read", "written"), bytes_per_second),
        _device(
            view, "Network over time", "network", ("inside", "sent", "received"), bytes_per_second,
            note=inside,
        ),
        *(
            _device(view, f"{link} over time", link, ("sent", "received"),
                    "bytes per second, of an accelerator", note=_link_peak(link, peaks))
            for link in LINKS
        ),
    ]  # fmt: skip
    return [figure for figure in figures if figure is not None]


def _device(
    view: MeterView, title: str, device: str, names: Sequence[str], y_title: str, *,
    high: float | None = None, note: str = "",
) -> Figure | None:  # fmt: skip
    """Show the metered quantities of a device, or None if there are none."""
    curves = {name: view.curves.get(f"{device} {name}") for name in names}
    lines = {name: curve for name, curve in curves.items() if curve is not None}
    if not lines:
        return None
    if high is None and not any(point.high for curve in lines.values() for point in curve.points):
        return Figure(title, None, f"Metered as 0 all the time: {', '.join(lines)}.")
    owner = "accelerator" if device in ("accelerator", *LINKS) else "node"
    chart = _chart(lines, view.seconds, y_title=y_title, high=high)
    return Figure(title, chart, _caption(lines, owner) + note)


def _link_peaks(run: RunData) -> dict[str, float]:
    """Return the lowest theoretical peak of each kind of link over the run's accelerators."""
    peaks: dict[str, float] = {}
    for node in run.nodes:
        for accelerator in node.accelerators:
            for link, peak in accelerator.link_peaks.items():
                peaks[link] = min(peak, peaks.get(link, peak))
    return peaks


def _link_peak(link: str, peaks: Mapping[str, float]) -> str:
    if link not in peaks:
        return " Theoretical peak: not known."
    return f" Theoretical peak in each direction: {human_si(peaks[link])}B/s (inventory)."


def _power(view: MeterView, name: str) -> Figure:
    """Show watts of an accelerator, or of another metered part of a node."""
    parts = name.removeprefix("power of ")
    part = {"accelerators": "accelerator", "node": "node"}.get(parts, f"node's {parts}")
    lines = {"power": view.curves[name]}
    chart = _chart(lines, view.seconds, y_title=f"watts, of one {part}")
    title = f"Power over time, {COVERAGE.get(parts, parts)}"
    return Figure(title, chart, _caption(lines, "accelerator" if "accel" in parts else "node"))


def _caption(lines: Mapping[str, Curve], device: str) -> str:
    sources = max(curve.sources for curve in lines.values())
    styles = [f"{style}: {name}" for style, name in zip(STYLE_NAMES, lines, strict=False)]
    key = "; ".join(styles) if len(lines) > 1 else "solid: the mean"
    key = f"{key[0].upper()}{key[1:]}. Labels: means over the time."
    if sources == 1:
        return f"{key} One {device}."
    return f"{key} Mean of {sources:,} {device}s; band: from the lowest to the highest of them."


def _chart(
    lines: Mapping[str, Curve], seconds: float, *, y_title: str, high: float | None = None
) -> LineChart:
    """Draw curves over the window, each with a band where it is a mean of several.

    With `high`, the curves are shares of a capacity, and the axis ends there.
    """
    scale = high or 1.0
    series = []
    for (name, curve), style in zip(lines.items(), STYLES, strict=False):
        mean = curve.mean * scale
        text = f"{mean:.0f}%" if high else human_si(float(f"{mean:.3g}")).strip()
        values = [
            Value(point.at, point.mean * scale, low=point.low * scale, high=point.high * scale)
            for point in curve.points
        ]
        several = curve.sources > 1
        series.append(Series(f"{name} {text}", values, style, DOTS[style], band=several))
    highest = max(point.high for curve in lines.values() for point in curve.points) * scale
    return LineChart(
        series,
        x_title="time since the first batch",
        y_title=y_title,
        x_ticks=svg.time_ticks(seconds).up_to(seconds),
        y_ticks=svg.nice_ticks(0, high or highest or 1.0),
        x_end=seconds,
    )
