"""The report's tables: records to rows of text. Every number has its unit, equation and source."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ai500.core.units import human_bytes, human_seconds, human_si
from ai500.parallel.sharing import describe_sharing
from ai500.records import Hyperparameters, Mapping, Score, TrainRecord, TrialScore
from ai500.report.history import MemberHistory
from ai500.report.run_data import Contents
from ai500.report.section import Table
from ai500.report.summary import counted, flops, quality
from ai500.rules.layers import LAYERS

NOT_MEASURED = "not measured"
SUPERSCRIPT = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")
SHOWN_OF_EFFECTIVE = (
    "optimizer", "batch_size", "global_batch_size", "accumulation", "dtype", "threads", "groups",
    "parallel", "numerics", "framework", "communication",
)  # fmt: skip
"""What else a worker recorded stands beside the reference, with the findings."""
EXPECTED_DISTINCT = 1 - 1 / math.e
"""Share of the samples that occur in a bootstrap: 63.2 % (V3 §3.3)."""


def flop(value: float) -> str:
    """A count with its unit."""
    return f"{human_si(value)}FLOP"


def score_table(contents: Contents) -> Table:
    """Every number of the score with its equation and source."""
    score = contents.score
    target = score.time_to_target_seconds
    rows = [
        ("VFLOPS", flops(score.vflops), "FLOPS × penalty coefficient", "V3 Eq. 7"),
        ("FLOPS", flops(score.flops), "operations of all members / (last end − first start)",
         "V3 Eq. 6, decision D6"),
        ("Penalty coefficient", f"{score.penalty_coefficient:.4f}", _penalty(contents), "V3 Eq. 8"),
        (f"Ensemble's {score.quality_name}", quality(score.ensemble_quality),
         "of the members' predictions, combined", "V3 §3.3"),
        ("Target", f"{score.target_quality:g}", "fixed by the problem class",
         "V2 Table 6, decision D4"),
        ("Members' mean", quality(score.members_mean_quality),
         f"each member's own {score.quality_name}, averaged", "decision D6"),
        ("Out of bag", quality(score.out_of_bag_quality),
         "each training sample judged only by members that never saw it", "not in the papers"),
        ("Time to quality", human_seconds(score.time_to_quality_seconds),
         "last end − first start, with the quality above", "V2 §4.4"),
        ("Time to target", "not reached" if target is None else human_seconds(target),
         "until the members' mean first met the target at an evaluation", "decision D6"),
        ("Variation of the score", share(score.score_variation),
         "sample standard deviation / mean of VFLOPS, all complete trials", "V2 §2.3"),
        ("Variation of the epochs to target", share(score.epochs_to_target_variation),
         "the same of the epochs at which the members' mean met the target", "V2 Table 2"),
        ("Operations", flop(score.operations),
         f"training, all members, convention {score.convention}",
         "AIPerf Tables I, II; decision D12"),
        ("Operations of validation", flop(score.validation_operations),
         "inside the time, not counted in FLOPS", "decision D14"),
        ("APC", flop(score.apc), _apc(contents), "V3 Eq. 4"),
        ("Sum of the members' rates", flops(score.members_flops_sum),
         "each member's operations / its own time, summed", "decision D6"),
        ("Start skew", human_seconds(score.start_skew_seconds),
         "between first and last start of the first wave", "decision D6"),
        ("Idle", human_seconds(score.idle_seconds),
         "part of the time in which no member trained", "decision D6"),
        ("Clock", score.clock, _clock(score), "decision D6"),
    ]  # fmt: skip
    return Table(("quantity", "value", "how it is computed", "source"), rows, numbers=(1,))


def share(value: float | None) -> str:
    """A variation; None: there are too few trials, or one did not get there."""
    return NOT_MEASURED if value is None else f"{100 * value:.3g} %"


def _clock(score: Score) -> str:
    if score.clock == "monotonic":
        return "of one host, which nobody can set"
    uncertainty, offset = score.clock_uncertainty_seconds, score.clock_offset_seconds
    if uncertainty is None or offset is None:
        return "of several hosts; their offsets were not measured on every node"
    return (
        f"of several hosts, corrected by offsets of up to {human_seconds(offset)}; the window is "
        f"known to ± {human_seconds(uncertainty)}"
    )


def _penalty(contents: Contents) -> str:
    score, exponent = contents.score, contents.plan.definition.penalty_exponent
    power = str(exponent).translate(SUPERSCRIPT)
    if len(score.trials) > 1:
        return f"(achieved / target){power} of each trial, averaged"
    achieved, target = f"{score.ensemble_quality:.4f}", f"{score.target_quality:g}"
    # A quality on the good side of the target gives more than 1; lower may be better [D15].
    better = score.ensemble_quality > score.target_quality
    ratio = f"{achieved} / {target}"
    if better != (score.penalty_coefficient > 1):
        ratio = f"{target} / {achieved}"
    return f"({ratio}){power}"


def _apc(contents: Contents) -> str:
    score, batch = contents.score, contents.plan.global_batch_size
    per_image = score.apc / (score.ensemble_size * batch)
    return (
        f"M × |B| × operations per image = {score.ensemble_size:,} × {batch:,} × {flop(per_image)}"
    )


def trials_table(score: Score) -> Table:
    """Every trial, raw."""
    rows = [
        (
            _trial(one, score),
            flops(one.vflops),
            flops(one.flops),
            f"{one.penalty_coefficient:.4f}",
            quality(one.ensemble_quality),
            quality(one.members_mean_quality),
            quality(one.out_of_bag_quality),
            human_seconds(one.seconds),
            _to_target(one),
            NOT_MEASURED if one.seed is None else f"{one.seed}",
        )
        for one in score.trials
    ]
    columns = (
        "trial", "VFLOPS", "FLOPS", "penalty", "ensemble", "members' mean", "out of bag",
        "time to quality", "time to target", "seed",
    )  # fmt: skip
    return Table(columns, rows, numbers=tuple(range(10)))


def _to_target(one: TrialScore) -> str:
    if one.time_to_target_seconds is None:
        return "not reached"
    epoch = "" if one.epochs_to_target is None else f", epoch {one.epochs_to_target}"
    return f"{human_seconds(one.time_to_target_seconds)}{epoch}"


def _trial(one: TrialScore, run: Score) -> str:
    """Its number, and whether it counts."""
    if not one.complete:
        return f"{one.trial}, INCOMPLETE"
    kept = one.trial in run.kept_trials
    return f"{one.trial}" if kept else f"{one.trial}, dropped"


def members_table(contents: Contents) -> Table:
    """What each member did, and with what."""
    rows = []
    for one in contents.plan.mapping:
        record = contents.members.get(one.member)
        history = contents.histories.get(one.member)
        rows.append(
            (
                f"{one.member}",
                place(one),
                f"{one.wave + 1}",
                *_trained(record, history),
                _distinct(contents, one.member),
                _attempts(contents, one.member),
            )
        )
    columns = (
        "member", "node: slots", "wave", "epochs", "images", "quality", "images/s", "own FLOPS",
        "distinct samples", "attempts",
    )  # fmt: skip
    return Table(columns, rows, numbers=(0, 2, 3, 4, 5, 6, 7, 8, 9))


def _trained(record: TrainRecord | None, history: MemberHistory | None) -> tuple[str, ...]:
    if record is None:
        reached = history.losses[-1][0] if history and history.losses else 0
        return f"{reached}", *[NOT_MEASURED] * 4
    seconds = history.seconds if history else None
    operations = record.operations.training(images=record.images, steps=record.steps)
    return (
        f"{record.epochs}",
        f"{record.images:,}",
        quality(record.quality),
        f"{record.images / seconds:,.0f}" if seconds else NOT_MEASURED,
        flops(operations / seconds) if seconds else NOT_MEASURED,
    )


def _attempts(contents: Contents, member: int) -> str:
    history, job = contents.histories.get(member), contents.jobs.get(member)
    count = f"{history.starts if history else 0}"
    if member in contents.members:
        return count
    return f"{count}, {job.state if job and job.state != 'done' else 'not finished'}"


def _distinct(contents: Contents, member: int) -> str:
    drawn = contents.bootstraps.get(member)
    if drawn is None:
        return NOT_MEASURED
    return f"{drawn.distinct:,} ({drawn.distinct / drawn.samples:.1%})"


def place(one: Mapping) -> str:
    """A member's nodes and slots."""
    return "; ".join(f"{share.node}: {_ranges(share.slots)}" for share in one.shares)


def _ranges(numbers: Iterable[int]) -> str:
    """0, 1, 2, 5 as '0–2, 5'."""
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ", ".join(f"{r[0]}–{r[-1]}" if len(r) > 1 else f"{r[0]}" for r in runs)


def equation_5(contents: Contents) -> list[str]:
    """V3 Eq. 5 with the run's numbers, and what follows where it does not hold as it stands."""
    plan = contents.plan
    members, degree, scale = plan.ensemble_size, plan.parallel_degree, plan.system_scale
    k, product = plan.members_per_accelerator, members * degree
    lines = [f"M × P_degree = {members:,} × {degree:,} = {product:,}; Sys_scale = {scale:,}."]
    if k > 1:
        lines.append(
            f"With k = {k} members on each accelerator, k × Sys_scale = {k * scale:,} "
            "(decision D11)."
        )
        if plan.sharing.how != "alone":  # older versions did not say
            lines += [f"Sharing: {describe_sharing(plan.sharing, k)}.", *contents.ways]
    if plan.waves > 1:
        at_once = k * scale // degree
        lines.append(
            f"The system holds {counted(at_once, 'member')} at once, so the ensemble runs in "
            f"{counted(plan.waves, 'wave')} (decision D13)."
        )
    elif product == k * scale:
        lines.append("The equation holds: the whole ensemble runs at once.")
    return lines


def mapping_table(contents: Contents) -> Table:
    """Which members run where, in the order of the waves."""
    at: dict[str, list[str]] = {}
    for one in contents.plan.mapping:
        at.setdefault(place(one), []).append(f"{one.member}")
    rows = [(where, ", then ".join(members)) for where, members in at.items()]
    if contents.plan.members_per_accelerator > 1:
        rows = [(where, ", ".join(members)) for where, members in at.items()]
    return Table(("node: slots", "members"), rows)


def placement_table(contents: Contents) -> Table:
    """What the Data Duplicator brought to each node."""
    rows = [
        (
            one.node,
            one.folder or f"{one.store} (shared)",
            f"{one.samples:,}" if one.folder else "0",
            human_bytes(one.bytes) if one.folder else "nothing staged",
            human_seconds(one.seconds),
            one.store_sha256[:16],
        )
        for one in contents.placements
    ]
    columns = ("node", "members read from", "samples", "data", "staged in", "store's SHA-256")
    return Table(columns, rows, numbers=(2, 3, 4))


def hyperparameters_table(contents: Contents) -> Table:
    """Each hyper-parameter beside the class's reference."""
    plan = contents.plan
    used = plan.hyperparameters
    reference = plan.definition.reference_at(plan.parallel_degree)
    rows, marked = [], set()
    for index, field in enumerate(dataclasses.fields(Hyperparameters)):
        ours, theirs = getattr(used, field.name), getattr(reference, field.name)
        name, value = field.name.replace("_", " "), _plain(ours)
        if ours != theirs:
            marked.add(index)
            value = f"≠ {value}"
        rows.append((name, value, _plain(theirs)))
    return Table(("hyper-parameter", "this run", "reference"), rows, (1, 2), sorted(marked))


def _plain(value: object) -> str:
    if isinstance(value, tuple):
        return ", ".join(map(str, value)) or "none"
    return f"{value:g}" if isinstance(value, float) else str(value)


def operations_table(contents: Contents) -> Table:
    """Operations as the members counted them on the graph that ran, else as planned."""
    record = next(iter(contents.members.values()), None)
    count = record.operations if record else contents.plan.operations
    columns = ("operations", "value", "how it is computed")
    if count is None:
        return Table(columns, [("per image", NOT_MEASURED, "no member finished")], numbers=(1,))
    batch = contents.plan.global_batch_size
    rows = [
        ("forward, per image", flop(count.forward_per_image), f"convention {count.convention}"),
        ("backward, per image", flop(count.backward_per_image), "AIPerf Table II"),
        ("update, per step", flop(count.update_per_step), "once per optimizer step (decision D12)"),
        ("one step of one member", flop(count.per_step(batch)),
         f"{batch:,} images × {flop(count.per_image)} + update"),
        ("parameters", f"{count.parameters:,}", "of one member"),
    ]  # fmt: skip
    return Table(columns, rows, numbers=(1,))


def versions_table(contents: Contents) -> Table:
    """What the members themselves say they ran with; a column for each different answer."""
    said: dict[tuple[tuple[str, str], ...], list[int]] = {}
    for member, record in contents.members.items():
        said.setdefault(_said(record), []).append(member)
    names = dict.fromkeys(name for answer in said for name, _ in answer)
    rows = [(name, *(dict(answer).get(name, NOT_MEASURED) for answer in said)) for name in names]
    return Table(("", *(f"members {_ranges(who)}" for who in said.values())), rows)


def _said(record: TrainRecord) -> tuple[tuple[str, str], ...]:
    return (
        *sorted(record.versions.items()),
        ("device", f"{record.device_name} ({record.device.partition(':')[0]})"),
        ("processes", f"{record.world_size}"),
        *(
            (name.replace("_", " "), _effective(record.effective[name]))
            for name in SHOWN_OF_EFFECTIVE
            if name in record.effective
        ),
    )


def _effective(value: object) -> str:
    """What an optimizer had at the end; of its groups only what the rules look at."""
    if isinstance(value, dict):
        return ", ".join(f"{key.replace('_', ' ')} {_effective(one)}" for key, one in value.items())
    if not isinstance(value, list) or not all(isinstance(group, dict) for group in value):
        return _plain(value)
    shown = ("parameters", "weight_decay", "momentum")
    return "; ".join(
        ", ".join(f"{key.replace('_', ' ')} {_plain(group[key])}" for key in shown if key in group)
        for group in value
        if isinstance(group, dict)
    )


@dataclass(frozen=True)
class LayerFindings:
    """What the rules of one layer found."""

    title: str
    findings: Sequence[tuple[str, str, str, str]]
    """Severity, message, the rule in words, source."""


def findings_by_layer(contents: Contents) -> list[LayerFindings]:
    """Findings grouped by layer; those about the procedure first."""
    groups: dict[int | None, list[tuple[str, str, str, str]]] = {}
    for one in contents.findings:
        rule = one.rule_text or one.rule
        groups.setdefault(one.layer, []).append((one.severity, one.message, rule, one.source))
    return [
        LayerFindings(
            "Procedure" if layer is None else f"Layer {layer}: {LAYERS.get(layer, 'unknown')}",
            groups[layer],
        )
        for layer in sorted(groups, key=lambda layer: layer or 0)
    ]
