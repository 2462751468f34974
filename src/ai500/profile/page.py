"""`profile.html`, and the profile as a section of a run's report."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ai500.core.atomic import write_text
from ai500.profile.categories import CATEGORIES, MEANINGS
from ai500.profile.labels import MEANINGS as STAGE_MEANINGS
from ai500.profile.labels import (
    STAGES,
    category_cells,
    counters,
    flops,
    milliseconds,
    number,
    operations_text,
)
from ai500.profile.record import KernelTime, PrecisionProfile, Profile
from ai500.records import run_folder
from ai500.records.run_folder import RunFolder
from ai500.report.charts.bars import BarRow, MeanBars, StackedBar, StackedBars
from ai500.report.formats import counted, percent
from ai500.report.page import Page, render
from ai500.report.section import Block, Figure, Grid, Paragraph, Section, Table
from ai500.report.section_files import write_section
from ai500.workloads.protocol import sample_noun

LONGEST_NAME = 120
"""Characters of a kernel's name: C++ templates go on for lines, profile.json has them whole."""
STAGES_DRAWN = ("negotiation", "waiting_for_data", "waiting_for_others", "queueing", "copy_in",
                "all_reduce", "copy_out")  # fmt: skip
"""Stages that add up to the time of communication."""


def write_page(profile: Profile, path: Path) -> None:
    """Write `profile.html` from the record."""
    run = f"configuration of {profile.run} · " if profile.run else ""
    page = Page(
        title=f"Profile of {profile.run or profile.workload}",
        kicker=f"HPC AI500 · {profile.workload.replace('_', ' ')} · class {profile.problem_class} "
        f"· {profile.parallel_degree} × {profile.device_name}",
        heading="Where the time of a training step goes",
        facts=f"{run}{counted(profile.steps, 'step')} · torch {profile.torch} "
        f"· ai500 {profile.version}",
        lead=[],
        sections=[Section("", _overview(profile)), *map(_precision_section, profile.precisions)],
        footer=[
            "`timeline.json.gz` beside this file shows every operator and kernel of all ranks: "
            "open it in the Perfetto UI. `profile.json` has the exact numbers and the kernels' "
            "whole names."
        ],
    )
    write_text(path, render(page))


def write_report_section(run: RunFolder) -> None:
    """Write the run's profile, if there is one, as a section of its report."""
    if run.profile.exists():
        write_section(run, "profile", report_section(run_folder.read(Profile, run.profile)))


def report_section(profile: Profile) -> Section:
    """Show the overview of a profile."""
    text = (
        "`profile/profile.html` has the kernels themselves, `profile/timeline.json.gz` every one "
        "of them over time: open it in the Perfetto UI."
    )
    return Section("Profile", [*_overview(profile), Paragraph(text)])


def _overview(profile: Profile) -> list[Block]:
    """Summarize all precisions side by side."""
    measured = [part for part in profile.precisions if part.communication is not None]
    blocks: list[Block] = [
        Paragraph(_summary(profile, part), "lead") for part in profile.precisions
    ]
    blocks.append(Grid([_shares_figure(profile), *map(_stages_figure, measured)]))
    blocks.append(_categories_table(profile))
    if measured:
        blocks.append(_stages_table(profile, measured))
    return blocks


def _summary(profile: Profile, part: PrecisionProfile) -> str:
    largest = max(part.categories, key=lambda category: category.share)
    attained = part.products_flops
    products = (
        "" if attained is None else f" Products ran at {flops(attained)}FLOPS on each accelerator."
    )
    samples = f"{sample_noun(profile.workload)}s"
    return (
        f"In {part.precision} a step of {profile.global_batch_size:,} {samples} takes "
        f"{milliseconds(part.seconds_per_step)} ms "
        f"({number(part.samples_per_second)} {samples}/s). "
        f"{largest.category[0].upper()}{largest.category[1:]} has the largest share of the "
        f"kernels' time, {percent(largest.share)}; the device is idle for "
        f"{percent(part.idle_share)} of the step.{products}"
    )


def _shares_figure(profile: Profile) -> Figure:
    """Show a bar for each precision, cut into the categories (V2 Fig. 10)."""
    bars = [
        StackedBar(
            f"{part.precision}: {milliseconds(part.kernel_seconds_per_step)} ms of kernels a step, "
            f"idle {percent(part.idle_share)}",
            [*(category.share for category in part.categories), part.unknown_share],
        )
        for part in profile.precisions
    ]
    return Figure(
        "Kernels by category",
        StackedBars((*CATEGORIES, "unknown"), bars, "share of the time of all kernels"),
        "V2 Fig. 10: each kernel's time is in one of eight categories. All-reduce includes the "
        "wait for other ranks; kernels may run side by side.",
    )


def _stages_figure(part: PrecisionProfile) -> Figure:
    """Show V2 Table 12 as bars: each stage's mean over the ranks, a dot for each rank."""
    assert part.communication is not None
    rows = []
    for stage in STAGES_DRAWN:
        values = [getattr(rank, stage) * 1000 for rank in part.communication.ranks]
        mean = milliseconds(sum(values) / len(values) / 1000)
        rows.append(BarRow(STAGES[stage], values, f"{STAGES[stage]}: {mean} ms"))
    return Figure(
        f"Communication in {part.precision}",
        MeanBars(rows, "ms of a step; bar: mean, dots: ranks"),
        f"V2 Table 12, per step; buffers reduced in each: {part.communication.buffers_per_step:g}. "
        f"Computation hides {_hidden(part)} of it.",
    )


def _hidden(part: PrecisionProfile) -> str:
    assert part.communication is not None
    mean = part.communication.mean
    total = mean.hidden + mean.exposed
    return percent(mean.hidden / total) if total else "nothing"


def _categories_table(profile: Profile) -> Table:
    """List the categories, the precisions side by side."""
    columns = ["category"]
    for part in profile.precisions:
        columns += [part.precision, "ms a step", "FLOPS"]
    meanings = [*MEANINGS.items(), ("unknown", "kernels that match no pattern")]
    cells = zip(*map(category_cells, profile.precisions), strict=True)
    rows = [
        (category, *(cell for part in parts for cell in part[:3]), meaning)
        for (category, meaning), parts in zip(meanings, cells, strict=True)
    ]
    return Table(
        (*columns, "meaning"),
        rows,
        tuple(range(1, len(columns))),
        title="Kernels by category (V2 Fig. 10)",
        note=f"Mean of {counted(profile.parallel_degree, 'rank')} over "
        f"{counted(profile.steps, 'step')}. FLOPS: "
        "products counted by the convention matmul, over the time of such kernels; – where "
        "operations are not counted.",
    )


def _stages_table(profile: Profile, measured: Sequence[PrecisionProfile]) -> Table:
    """List milliseconds of a step, the mean of the ranks."""
    means = [part.communication.mean for part in measured if part.communication is not None]
    rows = [
        (name, *(milliseconds(getattr(mean, stage)) for mean in means), STAGE_MEANINGS[stage])
        for stage, name in STAGES.items()
    ]
    return Table(
        ("ms of a step", *(part.precision for part in measured), "meaning"),
        rows,
        tuple(range(1, len(measured) + 1)),
        title="Where communication time goes (V2 Table 12)",
        note=f"{profile.communication.mode} of gradients in {profile.communication.precision}; "
        "mean of the ranks. Each row is defined by an equation in docs/profile.md.",
    )


def _precision_section(part: PrecisionProfile) -> Section:
    """Show the details of one precision."""
    blocks: list[Block | None] = [
        *map(Paragraph, _notes(part)),
        _ranks_table(part),
        _counters_table(part),
        _kernels_table(part.top, "Kernels with the most time"),
        _kernels_table(part.unknown, "Unknown kernels") if part.unknown else None,
    ]
    return Section(part.precision, [block for block in blocks if block is not None])


def _notes(part: PrecisionProfile) -> list[str]:
    notes = [f"Under the profiler a step took {milliseconds(part.profiled_seconds_per_step)} ms."]
    if part.communication is None:
        notes.append(f"Communication: not measured, {part.communication_missing}.")
        notes.append(f"Waiting for data: {milliseconds(part.waiting_for_data)} ms a step.")
    elif part.communication.clock_uncertainty_seconds:
        uncertainty = milliseconds(part.communication.clock_uncertainty_seconds)
        notes.append(f"Clocks of the ranks' hosts are known to ± {uncertainty} ms.")
    if part.counters_missing is not None:
        notes.append(f"IPC and DRAM: not measured, {part.counters_missing}.")
    notes.append(f"Operations of a sample: {operations_text(part)}.")
    return notes


def _ranks_table(part: PrecisionProfile) -> Table | None:
    if part.communication is None:
        return None
    rows = [
        (str(rank), *(milliseconds(getattr(stages, stage)) for stage in STAGES))
        for rank, stages in enumerate(part.communication.ranks)
    ]
    return Table(
        ("rank", *STAGES.values()),
        rows,
        tuple(range(len(STAGES) + 1)),
        title="Communication of each rank, ms of a step",
        noun="ranks",
    )


def _counters_table(part: PrecisionProfile) -> Table | None:
    """List the hardware counters by category; None: not measured."""
    if part.counters_missing is not None:
        return None
    rows = [
        (time.category, f"{time.calls_per_step:,.4g}", *counters(time)) for time in part.categories
    ]
    columns = ("category", "calls a step", "instructions per cycle", "DRAM utilization")
    return Table(columns, rows, (1, 2, 3), title="Hardware counters by category")


def _kernels_table(kernels: Sequence[KernelTime], title: str) -> Table:
    rows = [
        (
            percent(kernel.share),
            milliseconds(kernel.seconds_per_step),
            f"{kernel.calls_per_step:,.4g}",
            kernel.category or "unknown",
            kernel.operator or "–",
            _short(kernel.name),
        )
        for kernel in kernels
    ]
    columns = ("share", "ms a step", "calls", "category", "launched by", "kernel")
    return Table(columns, rows, (0, 1, 2), title=title, noun="kernels", style="kernels")


def _short(name: str) -> str:
    return name if len(name) <= LONGEST_NAME else name[: LONGEST_NAME - 1] + "…"
