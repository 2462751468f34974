"""Charts of a roofline record (V2 Fig. 9): the node's ceilings, and a run under them."""

from __future__ import annotations

from ai500.report.charts.roofline import Mark, Roof, RooflineChart, Slope
from ai500.roofline import links
from ai500.roofline.records import (
    Placed,
    RooflineRecord,
    RunPlacement,
    ceilings,
    memory_bandwidth,
    roof_flops,
    units_of_node,
)


def record_chart(record: RooflineRecord) -> RooflineChart:
    """Return all ceilings of one whole node, its links and its memory."""
    return RooflineChart(
        record_roofs(record, share=units_of_node(record)), record_slopes(record), ()
    )


def record_roofs(record: RooflineRecord, *, share: float = 1.0) -> list[Roof]:
    """Return the measured ceilings and the theoretical peaks of the measured precisions."""
    measured = ceilings(record)
    roofs = [Roof(ceiling.name, ceiling.flops * share) for ceiling in measured]
    names = {ceiling.precision for ceiling in measured}
    peaks: dict[float, list[str]] = {}
    for peak in record.peaks:
        if peak.value is not None and peak.what in names:
            peaks.setdefault(peak.value, []).append(peak.what.upper())
    for value, precisions in peaks.items():
        name = f"peak {', '.join(precisions)}"
        roofs.append(Roof(name, value * share, theoretical=True))
    return sorted(roofs, key=lambda roof: -roof.flops)


def record_slopes(record: RooflineRecord) -> list[Slope]:
    """Return the links of one node, and its memory (V2 §6.4.1 has it as the best case)."""
    memory = memory_bandwidth(record)
    rates = [
        ("network", links.node_bandwidth(record, "between_nodes")),
        ("links inside", links.node_bandwidth(record, "inside_node")),
        ("memory", None if memory is None else memory * units_of_node(record)),
    ]
    return [Slope(name, rate) for name, rate in rates if rate is not None]


def placement_chart(placement: RunPlacement, placed: Placed) -> RooflineChart:
    """Return a point of a run under the ceilings of its accelerators and the links it uses."""
    record = placement.ceilings
    own = next(ceiling for ceiling in ceilings(record) if ceiling.name == placed.ceiling)
    roofs = record_roofs(record, share=placed.ceiling_flops / roof_flops(record, own))
    slopes, marks = [], []
    for link in placed.links:
        name = "network" if link.scope == "between_nodes" else "links inside"
        if link.bytes_per_second is not None:
            slopes.append(Slope(name, link.bytes_per_second))
        over = "" if len(placed.links) == 1 else f", {name}"
        marks.append(Mark(f"{placed.what}{over}", link.coi or link.analytical_coi, placed.flops))
    if not marks:
        marks = [Mark(f"{placed.what}, COI ∞", None, placed.flops)]
    return RooflineChart(roofs, slopes, marks)
