"""Sections that every run's report has, whichever program ran: data in, text out."""

from __future__ import annotations

import dataclasses

from ai500.core.units import human_bytes, human_seconds, ranges
from ai500.inventory import summary
from ai500.parallel import sharing
from ai500.parallel.sharing import describe_sharing
from ai500.records import Hyperparameters, MemberMapping, TrainRecord
from ai500.records.findings import LayerVerdict
from ai500.report.charts.timeline import Bar, Row, Timeline
from ai500.report.formats import NOT_MEASURED, counted, first_of
from ai500.report.history import window_start
from ai500.report.run_data import RunData
from ai500.report.section import (
    Block,
    Figure,
    Folded,
    Item,
    Items,
    Listing,
    Paragraph,
    Section,
    Table,
)
from ai500.rules.layers import ASPECTS, LAYERS

EFFECTIVE_SHOWN = (
    "optimizer", "batch_size", "global_batch_size", "accumulation", "dtype", "threads", "groups",
    "parallel", "numerics", "framework", "communication",
)  # fmt: skip
"""Settings of a worker that the Software section shows; the findings compare all of them."""
HOSTS_NAMED = 8
NODES_TO_TEST = (
    "Nodes unlike the others of the trial, or with errors: a reason to test them, no proof."
)


def timeline_figure(run: RunData, *, noun: str) -> Figure:
    """Show when and where the members (or workers: `noun`) trained."""
    trial, title = run.shown, f"{noun.capitalize()}s over time"
    rows = _timeline_rows(run)
    if not any(row.bars for row in rows):
        return Figure(title, None, f"Not measured: no {noun} began to train.")
    interrupted = any(not bar.finished for row in rows for bar in row.bars)
    return Figure(
        title,
        Timeline(rows, trial.seconds),
        f"A bar is a {noun}'s training, a thin line to its foot the start-up of its job. "
        f"The dashed line ends the window of {human_seconds(trial.seconds)}; "
        f"in {human_seconds(trial.idle_seconds)} of it no {noun} trained, "
        f"and the first wave's starts were {human_seconds(trial.start_skew_seconds)} apart"
        f"{_launches(run)}."
        + (" Dashed boxes: attempts that did not finish." if interrupted else ""),
    )


def _launches(run: RunData) -> str:
    """Name the spread of the first wave's launches; empty for fewer than two."""
    first_wave = [mapping.member for mapping in run.plan.mapping if mapping.wave == 0]
    attempts = [run.histories[m].attempts for m in first_wave if m in run.histories]
    launched = [own[0].launched for own in attempts if own and own[0].launched is not None]
    if len(launched) < 2:
        return ""
    return f"; their processes were launched within {human_seconds(max(launched) - min(launched))}"


def _timeline_rows(run: RunData) -> list[Row]:
    zero = window_start(run.histories)
    rows: dict[str, list[Bar]] = {}
    for mapping in run.plan.mapping:
        bars = rows.setdefault(_row_name(run, mapping), [])
        history = run.histories.get(mapping.member)
        for attempt in history.attempts if history else ():
            job_started = attempt.job_started
            bars.append(
                Bar(
                    member=mapping.member,
                    start=attempt.start - zero,
                    end=attempt.end - zero,
                    job_started=None if job_started is None else job_started - zero,
                    finished=attempt.finished,
                )
            )
    return [Row(name, bars) for name, bars in rows.items()]


def _row_name(run: RunData, mapping: MemberMapping) -> str:
    """Return the place; on a single node the slots suffice."""
    name = place(mapping)
    if len(run.plan.nodes) > 1:
        return name
    slots = name.rpartition(": ")[2]
    return f"slot {slots}" if slots.isdigit() else f"slots {slots}"


def place(mapping: MemberMapping) -> str:
    """Format a member's nodes and slots."""
    return "; ".join(f"{share.node}: {ranges(share.slots)}" for share in mapping.shares)


def placement_section(run: RunData) -> Section:
    """Show where the members ran, and the data of each node."""
    staged = [
        (
            placement.node,
            placement.folder or f"{placement.store} (shared)",
            f"{placement.samples:,}" if placement.folder else "0",
            human_bytes(placement.bytes) if placement.folder else "nothing staged",
            human_seconds(placement.seconds),
            placement.store_sha256[:16],
        )
        for placement in run.placements
    ]
    columns = ("node", "members read from", "samples", "data", "staged in", "store's SHA-256")
    return Section(
        "Where the members ran",
        [
            Paragraph(" ".join(["V3 Eq. 5: Sys_scale = M × P_degree.", *equation_5(run)])),
            mapping_table(run),
            Table(columns, staged, (2, 3, 4), title="Data per node", noun="nodes"),
        ],
    )


def equation_5(run: RunData) -> list[str]:
    """Insert the run's numbers into V3 Eq. 5, and explain where it does not hold as it stands."""
    plan = run.plan
    members, degree, scale = plan.ensemble_size, plan.parallel_degree, plan.system_scale
    k, product = plan.members_per_accelerator, members * degree
    lines = [f"M × P_degree = {members:,} × {degree:,} = {product:,}; Sys_scale = {scale:,}."]
    if k > 1:
        lines.append(
            f"With k = {k} members on each accelerator, k × Sys_scale = {k * scale:,} "
            "(decision D11)."
        )
        if plan.sharing.mode != "alone":  # older versions did not record it
            lines += [f"Sharing: {describe_sharing(plan.sharing, k)}.", *run.step_strategies]
    if plan.waves > 1:
        at_once = k * scale // degree
        lines.append(
            f"The system holds {counted(at_once, 'member')} at once, so the ensemble runs in "
            f"{counted(plan.waves, 'wave')} (decision D13)."
        )
    elif product == k * scale:
        lines.append("The equation holds: the whole ensemble runs at once.")
    return lines


def mapping_table(run: RunData) -> Table:
    """List the members of each place, in the order of the waves.

    On a cluster these are the nodes that recorded themselves: the scheduler chose them.
    """
    members: dict[str, list[str]] = {}
    if run.plan.cluster is not None:
        for process in sharing.groups(run.plan.mapping, run.plan.sharing):
            nodes = ", ".join(run.hosts.get(process[0], ())) or "not recorded"
            members.setdefault(nodes, []).extend(map(str, process))
        rows = [(name, ", ".join(numbers)) for name, numbers in members.items()]
        note = "Recorded by the nodes. The plan's mapping is in plan.json; Slurm chooses the nodes."
        return Table(("nodes", "members"), rows, noun="places", note=note)
    for mapping in run.plan.mapping:
        members.setdefault(place(mapping), []).append(f"{mapping.member}")
    joint = ", " if run.plan.members_per_accelerator > 1 else ", then "
    rows = [(name, joint.join(numbers)) for name, numbers in members.items()]
    return Table(("node: slots", "members"), rows, noun="places")


def configuration_section(run: RunData) -> Section:
    """Show the hyper-parameters beside the reference, and the configuration file."""
    table = hyperparameters_table(run)
    return Section("Configuration", [table, Folded("config.toml", [Listing(run.config)])])


def hyperparameters_table(run: RunData) -> Table:
    """List each hyper-parameter beside the reference of the problem class."""
    plan = run.plan
    reference = plan.definition.reference_at(plan.parallel_degree)
    rows, marked = [], []
    for index, field in enumerate(dataclasses.fields(Hyperparameters)):
        used, expected = getattr(plan.hyperparameters, field.name), getattr(reference, field.name)
        value = _plain(used)
        if used != expected:
            marked.append(index)
            value = f"≠ {value}"
        rows.append((field.name.replace("_", " "), value, _plain(expected)))
    return Table(
        ("hyper-parameter", "this run", "reference"),
        rows,
        (1, 2),
        marked,
        note=f"A row marked ≠ differs from the reference of class {plan.problem_class}.",
    )


def _plain(value: object) -> str:
    if isinstance(value, tuple):
        return ", ".join(map(str, value)) or "none"
    if value is None:
        return "none"
    return f"{value:g}" if isinstance(value, float) else str(value)


def system_section(run: RunData) -> Section:
    """Show the machine that planned, the nodes that trained, and a person's notes on them."""
    blocks: list[Block] = [system_table(run)]
    if run.signs:
        rows = [(", ".join(sign.hosts), sign.kind, sign.text) for sign in run.signs]
        blocks.append(Table(("node", "sign", ""), rows, title="Nodes to test", note=NODES_TO_TEST))
    if len(run.nodes) > 1:
        blocks.append(Table(("", ""), summary.totals(run.nodes), title="All nodes"))
    for number, kind in enumerate(summary.kinds(run.nodes)):
        names = (
            f"{counted(len(kind.hostnames), 'node')} ({first_of(kind.hostnames, most=HOSTS_NAMED)})"
        )
        if number:
            columns = ("", "here", "elsewhere")
            blocks.append(Table(columns, kind.differences, title=f"{names} differ"))
            continue
        for title, pairs in summary.sections(kind.description):
            blocks.append(Folded(f"{names}: {title}", [Table(("", ""), pairs)]))
    if run.notes:
        blocks.append(Table(("", ""), list(run.notes.items()), title="Notes of the operator"))
    return Section("System", blocks)


def system_table(run: RunData) -> Table:
    """List the parts of the machine that planned the run."""
    system = run.system
    memory = NOT_MEASURED if system.memory_bytes is None else human_bytes(system.memory_bytes)
    accelerators = [
        f"{system.accelerators.count(name)} × {name} ({system.accelerator})"
        for name in dict.fromkeys(system.accelerators)
    ]
    rows = [
        ("host", system.hostname),
        ("CPU", f"{system.cpu}, {counted(system.cores, 'usable core')}"),
        ("memory", memory),
        ("accelerators", "; ".join(accelerators) or "none"),
        ("operating system", f"{system.operating_system}, kernel {system.kernel}"),
        ("Python", system.python),
        *((name, version or "not installed") for name, version in system.libraries.items()),
    ]
    return Table(("", ""), rows)


def software_section(run: RunData) -> Section:
    """Show versions and settings that the members recorded; a column for each difference."""
    members: dict[tuple[tuple[str, str], ...], list[int]] = {}
    for member, record in run.members.items():
        members.setdefault(_software(record), []).append(member)
    names = dict.fromkeys(name for software in members for name, _ in software)
    rows = [
        (name, *(dict(software).get(name, NOT_MEASURED) for software in members)) for name in names
    ]
    columns = ("", *(f"members {ranges(numbers)}" for numbers in members.values()))
    table = Table(columns, rows, note="As each member's own process recorded it.")
    return Section("Software", [table])


def _software(record: TrainRecord) -> tuple[tuple[str, str], ...]:
    return (
        *sorted(record.versions.items()),
        ("device", f"{record.device_name} ({record.device.partition(':')[0]})"),
        ("processes", f"{record.world_size}"),
        *(
            (name.replace("_", " "), _setting(record.effective[name]))
            for name in EFFECTIVE_SHOWN
            if name in record.effective
        ),
    )


def _setting(value: object) -> str:
    """Format a worker's setting; of optimizer groups only what the rules compare."""
    if isinstance(value, dict):
        parts = (f"{key.replace('_', ' ')} {_setting(part)}" for key, part in value.items())
        return ", ".join(parts) or "none"
    if not isinstance(value, list) or not all(isinstance(group, dict) for group in value):
        return _plain(value)
    shown = ("parameters", "weight_decay", "momentum")
    return "; ".join(
        ", ".join(f"{key.replace('_', ' ')} {_plain(group[key])}" for key in shown if key in group)
        for group in value
        if isinstance(group, dict)
    )


def findings_section(run: RunData) -> Section:
    """Show the verdict on each layer, and the findings of the rules."""
    blocks: list[Block] = []
    if run.judgement:
        judgement = run.judgement
        text = (
            f"The nine layers (V2 §3.1) at {judgement.level} level, by rule set "
            f"{judgement.rule_set}. `ai500 check` judges at another level."
        )
        blocks += [Paragraph(text), layers_table(run)]
    blocks += findings_by_layer(run)
    if not run.findings:
        blocks.append(Paragraph("None: no rule is broken, and there is nothing to disclose."))
    return Section("Findings", blocks)


def findings_by_layer(run: RunData) -> list[Items]:
    """Group the findings by layer; those about the procedure come first."""
    groups: dict[int | None, list[Item]] = {}
    for finding in run.findings:
        rule = f"Rule: {finding.rule_text or finding.rule} {finding.source}"
        item = Item(finding.message, finding.severity, finding.severity, rule)
        groups.setdefault(finding.layer, []).append(item)
    return [
        Items(
            groups[layer],
            "Procedure" if layer is None else f"Layer {layer}: {LAYERS.get(layer, 'unknown')}",
        )
        for layer in sorted(groups, key=lambda layer: layer or 0)
    ]


def layers_table(run: RunData) -> Table:
    """List the verdict on each of the nine layers, with what differs from the reference."""
    layers = run.judgement.layers if run.judgement else ()
    rows = [
        (
            f"{layer.layer} {LAYERS[layer.layer]}",
            layer.text,
            _differences(layer),
            next(aspect.source for aspect in ASPECTS.values() if aspect.layer == layer.layer),
        )
        for layer in layers
    ]
    marked = [index for index, layer in enumerate(layers) if layer.verdict == "forbidden"]
    return Table(("layer", "verdict", "this run", "source"), rows, marked=marked)


def _differences(layer: LayerVerdict) -> str:
    """List facts that differ with both values, and free ones with the run's."""
    texts = [
        f"{name} {'not recorded' if value is None else value}"
        + (f" (reference {reference})" if reference is not None else "")
        for name, reference, value in layer.facts
        if reference is None or value != reference
    ]
    return "; ".join(texts) or "as the reference"
