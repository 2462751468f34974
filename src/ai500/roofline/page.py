"""The roofline in tables and pages: of a machine, and of a run under it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from ai500.core.atomic import write_text
from ai500.core.units import human_bytes, human_seconds, human_si
from ai500.records import run_folder
from ai500.records.run_folder import RunFolder
from ai500.report.formats import NOT_MEASURED, flops
from ai500.report.page import Page, render
from ai500.report.section import Block, Figure, Grid, Notice, Paragraph, Section, Table
from ai500.report.section_files import write_section
from ai500.roofline import figures as charts
from ai500.roofline import links
from ai500.roofline.records import (
    KERNELS,
    Placed,
    PlacedLink,
    RooflineRecord,
    RunPlacement,
    above_peak,
    ceilings,
    memory_bandwidth,
    peak_of,
    units_of_node,
)

FAST = "fewer multiplications than counted: a fast algorithm (Winograd)"
FAR_BELOW = 0.5
"""Share of its roof under which no roof is what holds a run."""
LINK_KINDS = {"all_reduce": "all-reduce", "point_to_point": "point to point"}
SCOPES = {"inside_node": "inside the node", "between_nodes": "between nodes"}
CONVENTION = (
    "Ceilings count 2 operations for each multiply-add. FLOPS of the run are counted here by "
    "the convention {used}, which does the same for products and counts nothing else; the score "
    "uses {score}."
)


def write_page(path: Path, record: RooflineRecord, placement: RunPlacement | None) -> None:
    """Write the figures and tables as one self-contained HTML file."""
    sections = [
        Section("", [Grid([machine_figure(record)])]),
        Section("Ceilings", [ceilings_table(record)]),
        Section("Memory and links", [links_table(record)]),
        Section("Every measurement", [Paragraph("As it was taken."), kernels_table(record)]),
    ]
    warnings = [] if record.complete else ["Partial: the measurement was ended."]
    heading = record.device_name
    if placement is not None:
        heading = f"{placement.run} under the roofline of {record.device_name}"
        warnings = list(placement.warnings)
        figures = [*placement_figures(placement), machine_figure(record)]
        run: list[Block] = [Paragraph(convention(placement)), placement_table(placement)]
        advice = Section("What would help", [advice_table(placement)])
        sections = [Section("", [Grid(figures)]), Section("The run", run), advice, *sections[1:]]
    page = Page(
        title=heading,
        kicker="HPC AI500 V3.0 · roofline (V2 §6)",
        heading=heading,
        facts=f"{record.system.hostname} · {record.measured_at} · ai500 {record.version}",
        lead=[Notice(warning) for warning in warnings],
        sections=sections,
    )
    write_text(path, render(page))


def write_report_section(run: RunFolder) -> None:
    """Write the run's placement, if there is one, as a section of its report."""
    if run.roofline.exists():
        write_section(run, "roofline", report_section(run_folder.read(RunPlacement, run.roofline)))


def report_section(placement: RunPlacement) -> Section:
    """Show a run under its roofline, and what would help."""
    return Section(
        "Roofline",
        [
            *(Paragraph(warning, "warning") for warning in placement.warnings),
            Grid(placement_figures(placement)),
            Paragraph(convention(placement)),
            placement_table(placement),
            replace(advice_table(placement), title="What would help"),
        ],
    )


def machine_figure(record: RooflineRecord) -> Figure:
    """All ceilings of what was measured."""
    title = f"Roofline of {record.device_name}"
    count = units_of_node(record)
    whole = f"Of {_units(record)}."
    if count > 1:
        whole = (
            f"Of a whole node of {count} {record.unit}s: kernels and memory of {_units(record)} "
            f"× {count}, links of all."
        )
    return Figure(
        title,
        charts.record_chart(record),
        f"{whole} Flat: what kernels reach; dashed: theoretical peaks. Slanted: bytes per "
        f"second × COI. {above_peak_note(record)}".rstrip(),
    )


def _units(record: RooflineRecord) -> str:
    """What the kernels ran on."""
    return f"{record.units} {record.unit}{'s' if record.units > 1 else ''}"


def above_peak_note(record: RooflineRecord) -> str:
    """Why a ceiling can be above the theoretical peak; empty where none is."""
    names = [one.name for one in above_peak(record)]
    if not names:
        return ""
    return f"{', '.join(names)}: {FAST}. A run's roof is the theoretical peak there."


def placement_figures(placement: RunPlacement) -> list[Figure]:
    """A figure for each point of the run."""
    return [
        Figure(
            f"The {one.what} under the {one.model} roofline",
            charts.placement_chart(placement, one),
            f"{sentence(one)} {above_peak_note(placement.ceilings)}".rstrip(),
            f"{placement.run}: {one.what} under the {one.model} roofline",
        )
        for one in placement.placed
    ]


def sentence(one: Placed) -> str:
    """The verdict on one point in words."""
    share = one.flops / one.attainable_flops
    where = f"{one.ranks} rank{'s' if one.ranks > 1 else ''}"
    nodes = f" on {one.nodes} nodes" if one.nodes > 1 else ""
    what = f"{one.bound} bounds it"
    if one.bound == "communication":
        what = f"communication ({one.limit}) bounds it"
    elif one.bound == "not known":
        what = "what bounds it is not known, since not all links were measured or counted"
    far = (
        " But it is far below its roof: neither roof holds it; see `ai500 profile`."
        if share < FAR_BELOW
        else ""
    )
    return (
        f"The {one.what}, {where}{nodes}, attains {flops(one.flops)}, {share:.1%} of the "
        f"{flops(one.attainable_flops)} it could: {what}.{far}"
    )


def convention(placement: RunPlacement) -> str:
    """Which operations are compared."""
    return CONVENTION.format(used=placement.convention, score=placement.score_convention)


def ceilings_table(record: RooflineRecord) -> Table:
    """Best, typical, theoretical; and what was not measured, with the reason."""
    measured = measured_table(record)
    missing = [
        (kernel_name(what), NOT_MEASURED, "", "", why, "", "") for what, why in record.unavailable
    ]
    return Table(
        measured.columns,
        [*measured.rows, *missing],
        measured.numbers,
        note=f"Of {_units(record)}. Best and median over shapes; a shape's number is the median of "
        f"its samples. {above_peak_note(record)}".rstrip(),
    )


def measured_table(record: RooflineRecord) -> Table:
    """Best, sustained, typical, theoretical."""
    rows = []
    for one in ceilings(record):
        peak = peak_of(record, one.precision)
        rows.append((
            one.name, flops(one.flops), flops(one.sustained_flops), flops(one.typical_flops),
            one.shape,
            "not derivable" if peak is None else flops(peak),
            "" if peak is None else _of_peak(one.flops / peak),
        ))  # fmt: skip
    columns = ("kernel", "best", "sustained", "typical", "best shape", "theoretical",
               "best / theoretical")  # fmt: skip
    return Table(columns, rows, numbers=(1, 2, 3, 5, 6))


def _of_peak(share: float) -> str:
    return f"{share:.1%}, fast algorithm" if share > 1 else f"{share:.1%}"


def kernel_name(job: str) -> str:
    """`gemm:fp8` as a person reads it."""
    kernel, _, precision = job.partition(":")
    return f"{kernel.upper()} {precision.upper()}" if kernel in KERNELS else job


def links_table(record: RooflineRecord) -> Table:
    """Memory, and each class of links with its fit."""
    memory = memory_bandwidth(record)
    rows = [("memory", NOT_MEASURED if memory is None else rate(memory), "", "", "")]
    on_paper = peak_of(record, "memory")
    if on_paper is not None:
        rows.append(("memory, theoretical", rate(on_paper), "", "", ""))
    for scope, where in SCOPES.items():
        for kind, name in LINK_KINDS.items():
            times = [one for one in record.links if one.scope == scope and one.kind == kind]
            if not times:
                rows.append((f"{name}, {where}", NOT_MEASURED, "", "", ""))
                continue
            fitted = links.fit([(links.sent_bytes(one), one.seconds) for one in times])
            best = max(links.bus_bandwidth(one) for one in times)
            rows.append((
                f"{name}, {where}",
                rate(best),
                "no fit" if fitted is None else human_seconds(fitted.latency_seconds),
                "no fit" if fitted is None else rate(fitted.bytes_per_second),
                f"{times[0].ranks}",
            ))  # fmt: skip
    columns = ("what", "best, of one rank", "latency α", "bandwidth 1/β", "ranks")
    note = (
        f"Memory of {_units(record)}, links as one rank sees them; latency and bandwidth by a fit "
        "of α + bytes / bandwidth."
    )
    return Table(columns, rows, (1, 2, 3, 4), note=note)


def kernels_table(record: RooflineRecord) -> Table:
    """Every shape, size and message."""
    rows = [
        (f"{one.kernel.upper()} {one.precision.upper()}", one.shape, flops(one.flops),
         human_seconds(one.seconds), f"{one.samples}")
        for one in record.kernels
    ]  # fmt: skip
    rows += [
        (f"memory {one.kernel}", human_bytes(one.bytes), rate(one.bytes_per_second),
         human_seconds(one.seconds), f"{one.samples}")
        for one in record.memory
    ]  # fmt: skip
    rows += [
        (f"{LINK_KINDS[one.kind]}, {SCOPES[one.scope]}", human_bytes(one.bytes),
         rate(links.bus_bandwidth(one)), human_seconds(one.seconds), f"{one.samples}")
        for one in record.links
    ]  # fmt: skip
    columns = ("what", "shape or bytes", "speed", "median time", "samples")
    return Table(columns, rows, numbers=(2, 3, 4))


def placement_table(placement: RunPlacement) -> Table:
    """Each point with its roofs, and COI as measured beside as computed."""
    points = placement.placed
    rows = [
        ("ranks, nodes", *(f"{one.ranks}, {one.nodes}" for one in points)),
        ("attained", *(flops(one.flops) for one in points)),
        (f"ceiling ({_ceiling_name(points[0])})", *(flops(one.ceiling_flops) for one in points)),
        ("theoretical peak", *(
            "not derivable" if one.peak_flops is None else flops(one.peak_flops) for one in points
        )),
    ]  # fmt: skip
    for index, link in enumerate(points[0].links):
        name = SCOPES[link.scope]
        rows += [
            (f"{_bytes_name(placement)}, {name}", *(_sent(one.links[index]) for one in points)),
            (f"bytes computed, {name}", *(_computed(one.links[index]) for one in points)),
            (f"COI, {name}", *(_coi(one.links[index].coi) for one in points)),
            (f"COI computed, {name}", *(_coi(one.links[index].analytical_coi) for one in points)),
            (f"bandwidth, {name}", *(_rate(one.links[index].bytes_per_second) for one in points)),
        ]
    if not points[0].links:
        none = "infinite: nothing is sent"
        known = none if placement.bytes == "none" else NOT_MEASURED
        rows.append(("COI", *(known for _ in points)))
    rows += [
        ("attainable", *(flops(one.attainable_flops) for one in points)),
        ("bound", *(one.limit for one in points)),
        ("attained / attainable", *(f"{one.flops / one.attainable_flops:.1%}" for one in points)),
    ]
    columns = ("", *(f"{one.what}, {one.model}" for one in points))
    return Table(columns, rows, numbers=tuple(range(1, len(columns))))


def _ceiling_name(one: Placed) -> str:
    capped = one.peak_flops is not None and one.ceiling_flops >= one.peak_flops
    return f"{one.ceiling}, at most its peak" if capped else one.ceiling


def _bytes_name(placement: RunPlacement) -> str:
    """Of bytes that the library sends by itself only theory tells."""
    theory = placement.bytes == "analytical"
    return "bytes per step by theory (a ring's)" if theory else "bytes per step"


ADVICE_NOTE = (
    "At most: roof after the change over roof before, which is what a run at its roof gains. A run "
    "below it may gain more where the change removes what holds it back (communication that is not "
    "hidden behind computation: ai500 profile shows it), but never more than the last column."
)


def advice_table(placement: RunPlacement) -> Table:
    """Every change for every point."""
    rows = [
        (advice.change, one.what, advice.text.partition(": ")[2], advice.setting,
         _gain(advice.at_most, ".2f"), _gain(advice.never_more, ".1f"))
        for one in placement.placed
        for advice in one.advice
    ]  # fmt: skip
    columns = ("change", "point", "effect", "how", "at most", "never more")
    return Table(columns, rows, (4, 5), note=ADVICE_NOTE)


def _gain(value: float | None, digits: str) -> str:
    return "unknown" if value is None else f"{value:{digits}}×"


def rate(value: float) -> str:
    """Bytes per second."""
    return f"{human_bytes(value)}/s"


def _rate(value: float | None) -> str:
    return NOT_MEASURED if value is None else rate(value)


def _coi(value: float | None) -> str:
    return NOT_MEASURED if value is None else f"{human_si(value)}FLOP/B"


def _sent(link: PlacedLink) -> str:
    return "not counted" if link.bytes_per_step is None else human_bytes(link.bytes_per_step)


def _computed(link: PlacedLink) -> str:
    value = link.analytical_bytes_per_step
    return "not computed" if value is None else human_bytes(value)
