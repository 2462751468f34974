"""Changes that would speed up a run, and their largest gain by the model (V2 §7.5.2). Pure
functions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ai500.roofline.model import Standing, gain_at_roof, gain_limit, traffic_factor
from ai500.roofline.records import SMALLEST_GAIN, Advice


def advise(
    standing: Standing,
    *,
    attained_flops: float,
    wire_precision: str | None,
    other_ceilings: Mapping[str, float],
    hierarchical: Standing | None,
    sharded: bool = False,
    bound_known: bool = True,
) -> list[Advice]:
    """Return the possible changes, the one with the largest gain first.

    `wire_precision` None: gradients are not sent, or in a mode without compression.
    `other_ceilings`: training precision → ceiling. `hierarchical`: position in that mode.
    `sharded`: weights are sent too, for each part of an accumulated batch. Without `bound_known`
    (a roof is missing) no gain is stated.
    """
    changes: list[tuple[str, str, Standing, float]] = []
    for name in ("fp16", "int8"):
        if wire_precision is not None and traffic_factor(name) < traffic_factor(wire_precision):
            factor = traffic_factor(wire_precision) / traffic_factor(name)
            setting = f'communication.precision = "{name}"'
            after = standing.with_coi_times(factor)
            changes.append((f"{name.upper()} compression", setting, after, factor))
    if standing.channels:
        change, setting = "twice the batch (or accumulation)", "train.accumulation × 2"
        if sharded:
            change, setting = "twice the batch", "train.batch_size × 2"
        changes.append((change, setting, standing.with_coi_times(2), 2.0))
    if hierarchical is not None:
        factor = hierarchical.channels[0].coi / standing.channels[0].coi
        setting = 'communication.mode = "hierarchical"'
        changes.append(("hierarchical all-reduce", setting, hierarchical, factor))
    for precision, ceiling in other_ceilings.items():
        setting = f'train.precision = "{precision}"'
        changes.append((f"training in {precision}", setting, standing.under(ceiling), 1.0))
    advice = [
        Advice(
            change=change,
            setting=setting,
            coi_factor=factor,
            ceiling_factor=after.ceiling_flops / standing.ceiling_flops,
            bound_after=after.bound if bound_known else "not known",
            gain_at_roof=gain_at_roof(standing, after) if bound_known else None,
            gain_limit=gain_limit(attained_flops, after) if bound_known else None,
            text=f"{change}: {_effect(standing, after, factor, bound_known=bound_known)}",
        )
        for change, setting, after, factor in changes
    ]
    return sorted(advice, key=lambda change: -(change.gain_at_roof or 0.0))


def _effect(before: Standing, after: Standing, coi_factor: float, *, bound_known: bool) -> str:
    """Describe an effect, as in 'COI ×2, bound moves to computation, at most 1.42×'."""
    gain, ceiling_factor = gain_at_roof(before, after), after.ceiling_flops / before.ceiling_flops
    parts: list[str] = []
    if coi_factor != 1:
        parts.append(f"COI ×{coi_factor:.3g}")
    if ceiling_factor != 1:
        parts.append(f"ceiling ×{ceiling_factor:.3g}")
    if not bound_known:
        return ", ".join([*parts, "gain unknown: a roof is missing"])
    if gain < SMALLEST_GAIN:
        reason = "lower ceiling" if ceiling_factor < 1 else f"{before.bound} bounds"
        return ", ".join([*parts, f"nothing to gain: {reason}"])
    moved = after.bound != before.bound
    parts.append(f"bound moves to {after.bound}" if moved else f"{after.bound} still bounds")
    return ", ".join([*parts, f"at most {gain:.2f}×"])


def best(advice: Sequence[Advice]) -> Advice | None:
    """Return the change with the largest gain, if any gains something."""
    first = max(advice, key=lambda change: change.gain_at_roof or 0.0, default=None)
    return first if first is not None and (first.gain_at_roof or 0.0) >= SMALLEST_GAIN else None
