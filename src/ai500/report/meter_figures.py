"""Power and energy in words, and the meters over time (V3 Fig. 6, AIPerf Fig. 5, V2 Fig. 13)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from ai500.core.units import human_si
from ai500.metrics.energy import NotMeasured
from ai500.metrics.meter_series import Curve, power_names
from ai500.report import svg
from ai500.report.figures import right_labels
from ai500.report.meter_view import MeterView
from ai500.report.run_data import Contents
from ai500.report.section import Figure, Table
from ai500.report.sections import NOT_MEASURED
from ai500.report.svg import Frame, Scale

STYLES = ("ensemble", "mean", "target")
"""Solid; with dots; dashed."""
STYLE_NAMES = ("solid", "with dots", "dashed")
POWER_OF = {"node": "whole nodes"}
X_TITLE = "time since the first batch"


@dataclass(frozen=True)
class Line:
    """One curve of a panel, and what it is called in it."""

    name: str
    curve: Curve


def power_table(contents: Contents) -> Table:
    """Energy, power, and speed per watt, with what the meters cover."""
    score = contents.score
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


def power_words(contents: Contents) -> str:
    """What the figures hold for, or why there are none."""
    energy, score = contents.meters.energy, contents.score
    if isinstance(energy, NotMeasured):
        return f"Energy was not measured: {energy.reason}."
    if score.energy_joules is None:
        return "Energy was not measured in every trial."
    return (
        f"Metered: {energy.coverage}, on every node. What the meters do not cover (such as "
        "cooling, and other parts of the node) is not in these figures."
    )


def _value(value: float | None, unit: str) -> str:
    return NOT_MEASURED if value is None else f"{human_si(value)}{unit}"


def meter_figures(contents: Contents) -> list[Figure]:
    """A figure for each kind of thing that was metered."""
    view = contents.meters
    panels = [
        _shares(view, "Accelerators over time", "accelerator", ("utilization", "memory")),
        *(_power(view, name) for name in power_names(view.curves)),
        _shares(view, "Hosts over time", "host", ("processors", "memory")),
        _rates(view, "Disks over time", "disk", ("read", "written")),
        _rates(view, "Network over time", "network", ("inside", "sent", "received")),
    ]
    return [panel for panel in panels if panel is not None]


def _shares(view: MeterView, title: str, of: str, names: Sequence[str]) -> Figure | None:
    """Shares of something, from 0 to 100 %."""
    lines = _lines(view, of, names)
    if not lines:
        return None
    picture = _picture(lines, view.seconds, title=title, y_title="%", high=100.0, scale=100.0)
    return Figure(title, picture, _caption(lines, "accelerator" if of == "accelerator" else "node"))


def _rates(view: MeterView, title: str, of: str, names: Sequence[str]) -> Figure | None:
    """Bytes per second of a node."""
    lines = _lines(view, of, names)
    if not lines:
        return None
    caption = _caption(lines, "node")
    if of == "network":
        caption += " Inside: between processes of one node (lo); the others leave or enter it."
    picture = _picture(lines, view.seconds, title=title, y_title="bytes per second, of a node")
    return Figure(title, picture, caption)


def _power(view: MeterView, name: str) -> Figure:
    """Watts of an accelerator, or of what else of a node is metered."""
    parts = name.removeprefix("power of ")
    one = {"accelerators": "accelerator", "node": "node"}.get(parts, f"node's {parts}")
    title = f"Power over time, {POWER_OF.get(parts, parts)}"
    lines = [Line("power", view.curves[name])]
    picture = _picture(lines, view.seconds, title=title, y_title=f"watts, of one {one}")
    return Figure(title, picture, _caption(lines, "accelerator" if "accel" in parts else "node"))


def _lines(view: MeterView, of: str, names: Sequence[str]) -> list[Line]:
    known = [(name, view.curves.get(f"{of} {name}")) for name in names]
    return [Line(name, curve) for name, curve in known if curve is not None]


def _caption(lines: Sequence[Line], device: str) -> str:
    sources = max(line.curve.sources for line in lines)
    styles = [f"{style}: {line.name}" for style, line in zip(STYLE_NAMES, lines, strict=False)]
    told = "; ".join(styles) if len(lines) > 1 else "solid: the mean"
    told = f"{told[0].upper()}{told[1:]}. Labels: means over the time."
    if sources == 1:
        return f"{told} One {device}."
    return f"{told} Mean of {sources:,} {device}s; band: from the lowest to the highest of them."


def _picture(
    lines: Sequence[Line],
    seconds: float,
    *,
    title: str,
    y_title: str,
    high: float | None = None,
    scale: float = 1.0,
) -> Markup:
    """Curves over the window, each with a band where it is a mean of several."""
    highest = max(point.high for line in lines for point in line.curve.points) * scale
    ticks = svg.nice_ticks(0, high or highest or 1.0)
    frame = Frame(x=Scale(0, seconds, 66, svg.WIDTH - 152), y=Scale(0, ticks.high, 282, 40))
    parts = [
        svg.y_axis(frame, ticks, title=y_title),
        svg.x_axis(frame, svg.time_ticks(seconds).up_to(seconds), title=X_TITLE),
    ]
    labels = []
    for line, css in zip(lines, STYLES, strict=False):
        points, mean = line.curve.points, line.curve.mean * scale
        if line.curve.sources > 1:
            low = frame.points((point.at, point.low * scale) for point in points)
            top = frame.points((point.at, point.high * scale) for point in points)
            parts.append(svg.polygon([*low, *reversed(top)], "band"))
        middle = frame.points((point.at, point.mean * scale) for point in points)
        parts.append(svg.polyline(middle, css))
        if css == "mean":
            parts += [svg.dot(one, css) for one in middle[:: max(1, len(middle) // 15)]]
        text = f"{mean:.0f} %" if high else human_si(float(f"{mean:.3g}")).strip()
        labels.append((points[-1].mean * scale, f"{line.name} {text}", css))
    parts += right_labels(frame, labels)
    return Markup(svg.document(parts, height=336, title=title))
