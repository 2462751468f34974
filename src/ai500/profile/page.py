"""`profile.html`, and the same as a section of a run's report."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from markupsafe import Markup

from ai500.core.atomic import write_text
from ai500.profile import figures as profile_figures
from ai500.profile.categories import CATEGORIES, MEANINGS
from ai500.profile.labels import MEANINGS as STAGE_MEANINGS
from ai500.profile.labels import STAGES, flops, milliseconds, number, percent
from ai500.profile.record import CategoryTime, KernelTime, PrecisionProfile, Profile
from ai500.report.section import Figure, Table
from ai500.report.templating import environment

LONGEST_NAME = 120


@dataclass(frozen=True)
class PrecisionSection:
    """What is shown of one precision besides the tables of all."""

    name: str
    counters: Table | None
    top: Table
    unknown: Table | None
    ranks: Table | None
    notes: tuple[str, ...]


@dataclass(frozen=True)
class ProfileView:
    """A profile as the templates show it."""

    profile: Profile
    summary: tuple[str, ...]
    figures: tuple[Figure, ...]
    categories: Table
    stages: Table | None
    precisions: tuple[PrecisionSection, ...]


def write_page(found: Profile, path: Path) -> None:
    """`profile.html` from the record."""
    page = environment().get_template("profile.html")
    write_text(path, page.render(view=view_of(found)))


def view_of(found: Profile) -> ProfileView:
    """Figures and tables of a profile."""
    measured = [one for one in found.precisions if one.communication is not None]
    return ProfileView(
        profile=found,
        summary=tuple(_summary(found, one) for one in found.precisions),
        figures=(_shares_figure(found), *map(_stages_figure, measured)),
        categories=_categories_table(found.precisions),
        stages=_stages_table(measured) if measured else None,
        precisions=tuple(map(_section, found.precisions)),
    )


def _summary(found: Profile, one: PrecisionProfile) -> str:
    largest = max(one.categories, key=lambda part: part.share)
    attained = one.products_flops
    products = (
        "" if attained is None else f" Products ran at {flops(attained)}FLOPS on each accelerator."
    )
    return (
        f"In {one.precision} a step of {found.global_batch_size:,} images takes "
        f"{milliseconds(one.seconds_per_step)} ms ({number(one.images_per_second)} images/s). "
        f"{largest.category[0].upper()}{largest.category[1:]} has the largest share of the "
        f"kernels' time, {percent(largest.share)}; the device is idle for "
        f"{percent(one.idle_share)} of the step.{products}"
    )


def _shares_figure(found: Profile) -> Figure:
    title = "Kernels by category"
    return Figure(
        title,
        Markup(profile_figures.shares_figure(found.precisions, title=title)),
        "V2 Fig. 10: each kernel's time is in one of eight categories. All-reduce includes the "
        "wait for other ranks; kernels may run side by side.",
    )


def _stages_figure(one: PrecisionProfile) -> Figure:
    assert one.communication is not None
    title = f"Communication in {one.precision}"
    return Figure(
        title,
        Markup(profile_figures.stages_figure(one.communication.ranks, title=title)),
        f"V2 Table 12, per step, with {one.communication.buffers_per_step:g} buffers reduced. "
        f"Computation hides {_hidden(one)} of it.",
    )


def _hidden(one: PrecisionProfile) -> str:
    assert one.communication is not None
    mean = one.communication.mean
    whole = mean.hidden + mean.exposed
    return percent(mean.hidden / whole) if whole else "nothing"


def _categories_table(precisions: Sequence[PrecisionProfile]) -> Table:
    """The precisions side by side."""
    columns = ["category"]
    for one in precisions:
        columns += [one.precision, "ms a step", "FLOPS"]
    rows = []
    for index, category in enumerate(CATEGORIES):
        parts = [one.categories[index] for one in precisions]
        cells = [
            (percent(part.share), milliseconds(part.seconds_per_step), flops(part.flops))
            for part in parts
        ]
        rows.append((category, *itertools.chain(*cells), MEANINGS[category]))
    unknown = [
        (
            percent(one.unknown_share),
            milliseconds(one.unknown_share * one.kernel_seconds_per_step),
            "–",
        )
        for one in precisions
    ]
    meaning = "kernels that no row of the table knows"
    rows.append(("unknown", *itertools.chain(*unknown), meaning))
    return Table((*columns, "what it is"), rows, numbers=tuple(range(1, len(columns))))


def _counters_table(one: PrecisionProfile) -> Table | None:
    """What the hardware counted; None: nothing."""
    if one.counters_missing is not None:
        return None
    rows = [
        (part.category, f"{part.calls_per_step:,.4g}", *_counters(part)) for part in one.categories
    ]
    columns = ("category", "calls a step", "instructions per cycle", "DRAM utilization")
    return Table(columns, rows, numbers=(1, 2, 3))


def _counters(part: CategoryTime) -> tuple[str, str]:
    ipc, dram = part.instructions_per_cycle, part.dram_utilization
    return "–" if ipc is None else f"{ipc:.2f}", "–" if dram is None else percent(dram)


def _stages_table(measured: Sequence[PrecisionProfile]) -> Table:
    """Milliseconds of a step, the mean of the ranks."""
    rows = []
    for stage, name in STAGES.items():
        found = [one.communication for one in measured if one.communication is not None]
        cells = [milliseconds(getattr(one.mean, stage)) for one in found]
        rows.append((name, *cells, STAGE_MEANINGS[stage]))
    columns = ("ms of a step", *(one.precision for one in measured), "what it is")
    return Table(columns, rows, numbers=tuple(range(1, len(measured) + 1)))


def _section(one: PrecisionProfile) -> PrecisionSection:
    return PrecisionSection(
        name=one.precision,
        counters=_counters_table(one),
        top=_kernels_table(one.top),
        unknown=_kernels_table(one.unknown) if one.unknown else None,
        ranks=_ranks_table(one),
        notes=tuple(_notes(one)),
    )


def _notes(one: PrecisionProfile) -> list[str]:
    notes = [f"Under the profiler a step took {milliseconds(one.profiled_seconds_per_step)} ms."]
    if one.communication is None:
        notes.append(f"Communication: not measured, {one.communication_missing}.")
        notes.append(f"Waiting for data: {milliseconds(one.waiting_for_data)} ms a step.")
    elif one.communication.clock_uncertainty_seconds:
        known = milliseconds(one.communication.clock_uncertainty_seconds)
        notes.append(f"Clocks of the ranks' hosts are known to ± {known} ms.")
    if one.counters_missing is not None:
        notes.append(f"IPC and DRAM: not measured, {one.counters_missing}.")
    return notes


def _kernels_table(kernels: Sequence[KernelTime]) -> Table:
    rows = [
        (
            percent(one.share),
            milliseconds(one.seconds_per_step),
            f"{one.calls_per_step:,.4g}",
            one.category or "unknown",
            one.operator or "–",
            _short(one.name),
        )
        for one in kernels
    ]
    columns = ("share", "ms a step", "calls", "category", "launched by", "kernel")
    return Table(columns, rows, numbers=(0, 1, 2))


def _ranks_table(one: PrecisionProfile) -> Table | None:
    if one.communication is None:
        return None
    rows = [
        (str(rank), *(milliseconds(getattr(stages, stage)) for stage in STAGES))
        for rank, stages in enumerate(one.communication.ranks)
    ]
    return Table(("rank", *STAGES.values()), rows, numbers=tuple(range(len(STAGES) + 1)))


def _short(name: str) -> str:
    """Templates of C++ go on for lines: profile.json has them whole."""
    return name if len(name) <= LONGEST_NAME else name[: LONGEST_NAME - 1] + "…"
