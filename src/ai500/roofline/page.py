"""Pages and report sections of a roofline: a machine's ceilings, and a run under them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

from ai500.core.atomic import write_text
from ai500.core.units import human_bytes, human_seconds, human_si
from ai500.records import require, run_folder
from ai500.records.run_folder import RunFolder
from ai500.report.charts.roofline import Mark, Roof, RooflineChart, Slope
from ai500.report.formats import NOT_MEASURED, date_text, flops, known
from ai500.report.page import Page, render
from ai500.report.section import Block, Figure, Grid, Notice, Paragraph, Section, Table
from ai500.report.section_files import write_section
from ai500.roofline import links
from ai500.roofline.records import (
    KERNELS,
    Placed,
    RooflineRecord,
    RunPlacement,
    above_peak,
    ceilings,
    memory_bandwidth,
    peak_of,
    roof_flops,
    units_of_node,
)

FAST_ALGORITHM = "fewer multiplications than counted: a fast algorithm (Winograd)"
# A run below this fraction of its roof is limited by something else.
FAR_BELOW = 0.5
UNDERIVABLE = "not derivable"
LINK_KINDS = {"all_reduce": "all-reduce", "point_to_point": "point to point"}
SCOPES = {"inside_node": "inside the node", "between_nodes": "between nodes"}
CONVENTION = (
    "Ceilings count 2 operations per multiply-add. FLOPS of the run are counted here by the "
    "convention {used}, which does the same for products and counts nothing else; the score uses "
    "{score}."
)


def write_page(path: Path, record: RooflineRecord, placement: RunPlacement | None) -> None:
    """Write the figures and tables as one self-contained HTML file."""
    sections = [
        Section("", [Grid([machine_figure(record)])]),
        Section("Ceilings", [ceilings_table(record)]),
        Section("Memory and links", [links_table(record)]),
        Section("Every measurement", [kernels_table(record)]),
    ]
    warnings = [] if record.complete else ["Partial: the measurement was interrupted."]
    heading = record.device_name
    if placement is not None:
        heading = f"{placement.run} under the roofline of {record.device_name}"
        warnings = list(placement.warnings)
        figures = [*placement_figures(placement), machine_figure(record)]
        run: list[Block] = [Paragraph(convention(placement)), placement_table(placement)]
        advice = Section("What would help", advice_blocks(placement))
        sections = [Section("", [Grid(figures)]), Section("The run", run), advice, *sections[1:]]
    page = Page(
        title=heading,
        kicker="HPC AI500 V3.0 · roofline (V2 §6)",
        heading=heading,
        facts=f"{record.system.hostname} · {measured_at(record)} · ai500 {record.version}",
        lead=[Notice(warning) for warning in warnings],
        sections=sections,
    )
    write_text(path, render(page))


def measured_at(record: RooflineRecord) -> str:
    """Format the time of a measurement as reports write it."""
    return date_text(datetime.fromisoformat(record.measured_at).timestamp())


def write_report_section(run: RunFolder) -> None:
    """Write the run's placement, if there is one, as a section of its report."""
    if run.roofline.exists():
        write_section(run, "roofline", report_section(run_folder.read(RunPlacement, run.roofline)))


def report_section(placement: RunPlacement) -> Section:
    """Show a run under its roofline, and what would help."""
    return Section(
        "Roofline",
        [
            *(Notice(f"Warning: {warning}") for warning in placement.warnings),
            Grid(placement_figures(placement)),
            Paragraph(convention(placement)),
            placement_table(placement),
            *advice_blocks(placement, title="What would help"),
        ],
    )


def machine_figure(record: RooflineRecord) -> Figure:
    """Return the chart of all measured ceilings."""
    title = f"Roofline of {record.device_name}"
    count = units_of_node(record)
    scope = f"{_unit_count(record)}."
    if count > 1:
        scope = (
            f"A whole node of {count} {record.unit}s: kernels and memory of {_unit_count(record)} "
            f"× {count}, links of all."
        )
    return Figure(
        title,
        record_chart(record),
        f"{scope} Flat: ceilings of kernels; dashed: theoretical peaks. Slanted: bytes per "
        f"second × COI. {above_peak_note(record)}".rstrip(),
    )


def record_chart(record: RooflineRecord) -> RooflineChart:
    """Return all ceilings of one whole node, its links and its memory."""
    return RooflineChart(
        record_roofs(record, share=units_of_node(record)), record_slopes(record), ()
    )


def record_roofs(
    record: RooflineRecord, *, share: float = 1.0, precision: str | None = None
) -> list[Roof]:
    """Return the measured ceilings and theoretical peaks of one precision; None: of all."""
    measured = [each for each in ceilings(record) if precision in (None, each.precision)]
    roofs = [Roof(ceiling.name, ceiling.flops * share) for ceiling in measured]
    names = {ceiling.precision for ceiling in measured}
    peaks: dict[float, list[str]] = {}
    for peak in record.peaks:
        if peak.value is not None and peak.quantity in names:
            peaks.setdefault(peak.value, []).append(peak.quantity.upper())
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
    share = placed.ceiling_flops / roof_flops(record, own)
    roofs = record_roofs(record, share=share, precision=placement.kernel_precision)
    slopes, marks = [], []
    for link in placed.links:
        name = "network" if link.scope == "between_nodes" else "links inside"
        if link.bytes_per_second is not None:
            slopes.append(Slope(name, link.bytes_per_second))
        over = "" if len(placed.links) == 1 else f", {name}"
        marks.append(Mark(f"{placed.subject}{over}", link.coi or link.analytical_coi, placed.flops))
    if not marks:
        marks = [Mark(f"{placed.subject}, COI ∞", None, placed.flops)]
    return RooflineChart(roofs, slopes, marks)


def _unit_count(record: RooflineRecord) -> str:
    """Format the number of units the kernels ran on."""
    return f"{record.units} {record.unit}{'s' if record.units > 1 else ''}"


def above_peak_note(record: RooflineRecord, *, precision: str | None = None) -> str:
    """Explain ceilings of a precision above its theoretical peak; empty where there are none."""
    above = [each for each in above_peak(record) if precision in (None, each.precision)]
    names = [ceiling.name for ceiling in above]
    if not names:
        return ""
    return f"{', '.join(names)}: {FAST_ALGORITHM}. A run's roof is the theoretical peak there."


def placement_figures(placement: RunPlacement) -> list[Figure]:
    """Return a figure for each point of the run, and the classic roofline by memory traffic."""
    note = above_peak_note(placement.ceilings, precision=placement.kernel_precision)
    figures = [
        Figure(
            f"The {point.subject} under the {point.model} roofline",
            placement_chart(placement, point),
            f"{sentence(point)} {note}".rstrip(),
            f"{placement.run}: {point.subject} under the {point.model} roofline",
        )
        for point in placement.placed
    ]
    if memory_bandwidth(placement.ceilings) is not None:
        figures.append(memory_figure(placement))
    return figures


def memory_figure(placement: RunPlacement) -> Figure:
    """Return the classic roofline: FLOP per byte of memory traffic, of one accelerator."""
    record, member = placement.ceilings, placement.placed[0]
    own = next(ceiling for ceiling in ceilings(record) if ceiling.name == member.ceiling)
    share = member.ceiling_flops / roof_flops(record, own) / member.ranks
    rate_of_one = require(memory_bandwidth(record), "memory") * share
    attained, traffic = member.flops / member.ranks, placement.memory_bytes_per_second
    marks = []
    caption = (
        "The run's memory traffic was not measured: `ai500 profile RUN --counters` reads it "
        "where the hardware's counters can be read."
    )
    if traffic is not None:
        marks = [Mark("member", attained / traffic, attained)]
        caption = (
            f"The member moves {rate(traffic)} ({traffic / rate_of_one:.0%} of the measured "
            f"bandwidth) at {attained / traffic:.3g} FLOP per byte, by hardware counters."
        )
    roofs = record_roofs(record, share=share, precision=placement.kernel_precision)
    return Figure(
        f"Memory's roofline, one {record.unit if record.unit == 'accelerator' else 'rank'}",
        RooflineChart(roofs, [Slope("memory", rate_of_one)], marks, MEMORY_AXIS),
        caption,
        f"{placement.run}: roofline by memory traffic",
    )


def sentence(point: Placed) -> str:
    """Describe attained and attainable FLOPS of a point, and its bound."""
    share = point.flops / point.attainable_flops
    if point.above_roof:
        return (
            f"The {point.subject} attains {flops(point.flops)}, above its roof of "
            f"{flops(point.attainable_flops)}: the ceilings were measured too low, and nothing is "
            "concluded from them."
        )
    ranks = f"{point.ranks} rank{'s' if point.ranks > 1 else ''}"
    nodes = f" on {point.nodes} nodes" if point.nodes > 1 else ""
    bound = f"{point.bound} bounds it"
    if point.bound == "communication":
        bound = f"communication ({point.limit}) bounds it"
    elif point.bound == "not known":
        bound = "its bound is not known, since not all links were measured or counted"
    far = (
        " It is far below that roof: something else limits it; see `ai500 profile`."
        if share < FAR_BELOW
        else ""
    )
    return (
        f"The {point.subject}, {ranks}{nodes}, attains {flops(point.flops)}, {share:.1%} of the "
        f"{flops(point.attainable_flops)} it could: {bound}.{far}"
    )


def convention(placement: RunPlacement) -> str:
    """Name the counting conventions of run, ceilings and score."""
    return CONVENTION.format(used=placement.convention, score=placement.score_convention)


def ceilings_table(record: RooflineRecord) -> Table:
    """List best, sustained, typical and theoretical FLOPS, and what was not measured and why."""
    measured = measured_table(record)
    missing = [
        (kernel_name(job), NOT_MEASURED, "", "", reason, "", "")
        for job, reason in record.unavailable
    ]
    return Table(
        measured.columns,
        [*measured.rows, *missing],
        measured.numbers,
        note=f"{_unit_count(record)}. Best and median over shapes; a shape's number is the median "
        f"of its samples. {above_peak_note(record)}".rstrip(),
    )


def measured_table(record: RooflineRecord) -> Table:
    """List best, sustained, typical and theoretical FLOPS."""
    rows, fast = [], ", fast algorithm"
    for ceiling in ceilings(record):
        peak = peak_of(record, ceiling.precision)
        rows.append((
            ceiling.name, flops(ceiling.flops), flops(ceiling.sustained_flops),
            flops(ceiling.typical_flops), ceiling.shape,
            known(peak, flops, UNDERIVABLE),
            "" if peak is None else f"{ceiling.flops / peak:.1%}{fast * (ceiling.flops > peak)}",
        ))  # fmt: skip
    columns = ("kernel", "best", "sustained", "typical", "best shape", "theoretical",
               "best / theoretical")  # fmt: skip
    return Table(columns, rows, numbers=(1, 2, 3, 5, 6))


def kernel_name(job: str) -> str:
    """Format a job such as `gemm:fp8` for people."""
    kernel, _, precision = job.partition(":")
    return f"{kernel.upper()} {precision.upper()}" if kernel in KERNELS else job


def links_table(record: RooflineRecord) -> Table:
    """List memory, and each class of links with its fit."""
    memory = memory_bandwidth(record)
    rows = [("memory", known(memory, rate), "", "", "")]
    theoretical = peak_of(record, "memory")
    if theoretical is not None:
        rows.append(("memory, theoretical", rate(theoretical), "", "", ""))
    for scope, where in SCOPES.items():
        for kind, name in LINK_KINDS.items():
            times = [time for time in record.links if time.scope == scope and time.kind == kind]
            if not times:
                rows.append((f"{name}, {where}", NOT_MEASURED, "", "", ""))
                continue
            fitted = links.fit([(links.sent_bytes(time), time.seconds) for time in times])
            best = max(links.bus_bandwidth(time) for time in times)
            rows.append((
                f"{name}, {where}",
                rate(best),
                "no fit" if fitted is None else human_seconds(fitted.latency_seconds),
                "no fit" if fitted is None else rate(fitted.bytes_per_second),
                f"{times[0].ranks}",
            ))  # fmt: skip
    columns = ("measured", "best, of one rank", "latency α", "bandwidth 1/β", "ranks")
    note = (
        f"Memory of {_unit_count(record)}, links as one rank sees them; latency and bandwidth by "
        "a fit of α + bytes / bandwidth."
    )
    return Table(columns, rows, (1, 2, 3, 4), note=note)


def kernels_table(record: RooflineRecord) -> Table:
    """List every shape, size and message."""
    rows = [
        (f"{time.kernel.upper()} {time.precision.upper()}", time.shape, flops(time.flops),
         human_seconds(time.seconds), f"{time.samples}")
        for time in record.kernels
    ]  # fmt: skip
    rows += [
        (f"memory {time.kernel}", human_bytes(time.bytes), rate(time.bytes_per_second),
         human_seconds(time.seconds), f"{time.samples}")
        for time in record.memory
    ]  # fmt: skip
    rows += [
        (f"{LINK_KINDS[time.kind]}, {SCOPES[time.scope]}", human_bytes(time.bytes),
         rate(links.bus_bandwidth(time)), human_seconds(time.seconds), f"{time.samples}")
        for time in record.links
    ]  # fmt: skip
    columns = ("measured", "shape or bytes", "speed", "median time", "samples")
    return Table(columns, rows, numbers=(2, 3, 4))


def placement_table(placement: RunPlacement) -> Table:
    """List each point with its roofs, and COI as measured and as computed."""
    points = placement.placed
    columns = ("", *(f"{point.subject}, {point.model}" for point in points))
    figures = [point_figures(placement, point) for point in points]
    rows = [(name, *(column[name] for column in figures)) for name in figures[0]]
    return Table(columns, rows, numbers=tuple(range(1, len(columns))))


def point_figures(placement: RunPlacement, point: Placed) -> dict[str, str]:
    """Return the figures of a point by name; the points of a run have the same names."""
    figures = {
        "ranks, nodes": f"{point.ranks}, {point.nodes}",
        "attained": flops(point.flops),
        f"ceiling ({_ceiling_name(placement.placed[0])})": flops(point.ceiling_flops),
        "theoretical peak": known(point.peak_flops, flops, UNDERIVABLE),
    }
    for link in point.links:
        name, computed = SCOPES[link.scope], link.analytical_bytes_per_step
        figures |= {
            f"{_bytes_name(placement)}, {name}": known(
                link.bytes_per_step, human_bytes, "not counted"
            ),
            f"bytes computed, {name}": known(computed, human_bytes, "not computed"),
            f"COI, {name}": known(link.coi, _coi),
            f"COI computed, {name}": known(link.analytical_coi, _coi),
            f"bandwidth, {name}": known(link.bytes_per_second, rate),
        }
    if not point.links:
        alone = placement.traffic_source == "none"
        figures["COI"] = "infinite: nothing is sent" if alone else NOT_MEASURED
    return figures | {
        "attainable": flops(point.attainable_flops),
        "bound": point.limit,
        "attained / attainable": "above its roof: ceilings in doubt"
        if point.above_roof
        else f"{point.flops / point.attainable_flops:.1%}",
    }


def _ceiling_name(point: Placed) -> str:
    capped = point.peak_flops is not None and point.ceiling_flops >= point.peak_flops
    return f"{point.ceiling}, at most its peak" if capped else point.ceiling


def _bytes_name(placement: RunPlacement) -> str:
    """Name the bytes of a step: where the library sends them, only theory counts them."""
    theory = placement.traffic_source == "analytical"
    return "bytes per step by theory (a ring's)" if theory else "bytes per step"


MEMORY_AXIS = "FLOP per byte of memory traffic"
ADVICE_NOTE = (
    "At most: roof after the change over roof before: the gain of a run at its roof. A run below "
    "its roof may gain more where the change removes what limits it (communication that does not "
    "overlap with computation: see ai500 profile), but never more than the last column."
)


def advice_blocks(placement: RunPlacement, *, title: str = "") -> list[Block]:
    """List the changes that may gain something; the others are one sentence for each point."""
    points = [point for point in placement.placed if not point.above_roof]
    helpful = [(point, advice) for point in points for advice in point.advice if advice.may_gain]
    rows = [
        (advice.change, point.subject, advice.text.partition(": ")[2], advice.setting,
         known(advice.gain_at_roof, "{:.2f}×".format, "unknown"),
         known(advice.gain_limit, "{:.1f}×".format, "unknown"))
        for point, advice in helpful
    ]  # fmt: skip
    columns = ("change", "point", "effect", "setting", "at most", "never more")
    table = [Table(columns, rows, (4, 5), title=title, note=ADVICE_NOTE)] if rows else []
    useless = nothing_to_gain(points)
    return [*table, *([Paragraph(useless)] if useless else [])]


def nothing_to_gain(points: Sequence[Placed]) -> str:
    """Name the changes that gain nothing, in a sentence; empty if there are none."""
    subjects: dict[tuple[str, ...], list[str]] = {}
    for point in points:
        changes = tuple(advice.change for advice in point.advice if not advice.may_gain)
        if changes:
            subjects.setdefault(changes, []).append(f"the {point.subject}")
    clauses = [
        f"for {' and '.join(names)} from {', '.join(changes)}"
        for changes, names in subjects.items()
    ]
    return f"Nothing to gain {'; '.join(clauses)}." if clauses else ""


def rate(value: float) -> str:
    """Format bytes per second."""
    return f"{human_bytes(value)}/s"


def _coi(value: float) -> str:
    return f"{human_si(value)}FLOP/B"
