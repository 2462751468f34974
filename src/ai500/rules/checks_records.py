"""Rules about what is there twice: events, records, plan and class have to tell one story."""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from statistics import fmean
from typing import Any

from ai500.core import schema
from ai500.core.clocks import host_of
from ai500.core.events import Event
from ai500.metrics.trials import TRAINING_EVENTS
from ai500.parallel.parallelism_controller import Degrees
from ai500.records import TrainRecord
from ai500.rules.evidence import Evidence, told
from ai500.rules.facts import plain, ranges, short
from ai500.rules.layers import Found, rule

QUALITY_TOLERANCE = 1e-9
OWN_OF_THE_DATA = ("stored_shape", "normalization", "store_sha256")
"""What a class has from the data that it runs on: the data's identity is judged by itself."""
JUDGED_AS_FACTS = ("train_samples", "validation_samples", "classes", "input_shape",
                   "target_quality", "penalty_exponent")  # fmt: skip
ONLY_AN_ESTIMATE = ("seconds_per_image", "measured_on")


def by_member(evidence: Evidence) -> dict[tuple[Any, Any], list[Event]]:
    """Training events of each member of each trial, in the order they were told."""
    found: dict[tuple[Any, Any], list[Event]] = {}
    for event in evidence.events:
        if event["event"] in TRAINING_EVENTS:
            found.setdefault((event.get("trial"), event.get("member")), []).append(event)
    return found


def finished(evidence: Evidence) -> Iterator[tuple[int, TrainRecord, list[Event]]]:
    """Trial, record and events of every member that has a record."""
    events = by_member(evidence)
    for trial in evidence.trials:
        for member in trial.members:
            yield trial.trial, member, events.get((trial.trial, member.member), [])


@rule(layer=9, source="V2 §5.1.1, decision D4")
def class_as_registered(evidence: Evidence) -> Iterator[Found]:
    """The plan's class is the registered one in all that does not come from the data."""
    left_out = (*OWN_OF_THE_DATA, *JUDGED_AS_FACTS, *ONLY_AN_ESTIMATE)
    for field in dataclasses.fields(evidence.reference):
        ours, theirs = (
            getattr(one, field.name) for one in (evidence.plan.definition, evidence.reference)
        )
        if field.name not in left_out and ours != theirs:
            what = field.name.replace("_", " ")
            shown = (plain(ours), plain(theirs))
            if dataclasses.is_dataclass(ours) and dataclasses.is_dataclass(theirs):
                shown = _first_difference(ours, theirs)
            yield Found(
                f"the plan's class has {what} {shown[0]}, the registered one {shown[1]}",
                do="Run the class as it is.",
                reference=shown[1],
                run=shown[0],
            )


def _first_difference(ours: Any, theirs: Any) -> tuple[str, str]:
    for field in dataclasses.fields(ours):
        pair = getattr(ours, field.name), getattr(theirs, field.name)
        if pair[0] != pair[1]:
            return f"{field.name} = {plain(pair[0])}", f"{field.name} = {plain(pair[1])}"
    return "other", "its own"


@rule(layer=9, source="V2 §5.1.1", severity="note")
def data_not_known(evidence: Evidence) -> Iterator[Found]:
    """Where this version does not know the identity of the class's data, it is disclosed."""
    if evidence.reference.store_sha256 is None:
        stores = {told(member, "data", "store_sha256") for member in evidence.members}
        names = " and ".join(sorted(short(str(one)) for one in stores - {None}))
        yield Found(
            "the identity of the class's data is not known to this version: its SHA-256 is "
            f"disclosed, {names or 'not recorded'}",
            run=names or None,
        )


@rule(layer=7, source="V2 §5.1.3", severity="note", of="ensemble")
def model_not_known(evidence: Evidence) -> Iterator[Found]:
    """A model that this version does not know, an outside workload's, is disclosed."""
    if evidence.model is None:
        graphs = {told(member, "model", "graph_sha256") for member in evidence.members}
        names = " and ".join(sorted(short(str(one)) for one in graphs - {None}))
        yield Found(
            "the class's model is not known to this version: the SHA-256 of its graph is "
            f"disclosed, {names or 'not recorded'}",
            run=names or None,
        )


@rule(source="decision D13")
def least_ensemble(evidence: Evidence) -> Iterator[Found]:
    """The ensemble has at least the least M of its class."""
    ours, least = evidence.plan.ensemble_size, evidence.reference.ensemble_size
    if ours < least:
        yield Found(
            f"M = {ours}, the least of the class is {least}",
            do="Leave ensemble.size out.",
            reference=f"at least {least}",
            run=str(ours),
        )


@rule(source="V3 Eq. 5, decisions D11 and D13")
def scale_as_mapped(evidence: Evidence) -> Iterator[Found]:
    """Sys_scale = M × P_degree / k over the waves, all of it as the members are mapped."""
    plan = evidence.plan
    at = [
        (one.wave, share.node, slot)
        for one in plan.mapping
        for share in one.shares
        for slot in share.slots
    ]
    used = {(node, slot) for _, node, slot in at}
    there = {(node.name, slot.index) for node in plan.nodes for slot in node.slots}
    mapped = {
        "members": [one.member for one in plan.mapping],
        "waves": 1 + max((one.wave for one in plan.mapping), default=0),
        "system_scale": len(used & there),
        "members_per_accelerator": max(Counter(at).values(), default=0),
        "parallel_degree": sorted({sum(len(s.slots) for s in one.shares) for one in plan.mapping}),
    }
    planned = {
        "members": list(range(plan.ensemble_size)),
        "waves": plan.waves,
        "system_scale": plan.system_scale,
        "members_per_accelerator": plan.members_per_accelerator,
        "parallel_degree": [plan.parallel_degree],
    }
    wrong = [name for name, value in planned.items() if mapped[name] != value]
    for name in wrong:
        yield Found(
            f"{name.replace('_', ' ')} {plain(planned[name])} is planned, the members are mapped "
            f"to {plain(mapped[name])}",
            do="Run it again.",
            reference=plain(mapped[name]),
            run=plain(planned[name]),
        )
    degrees = Degrees(
        plan.ensemble_size, plan.parallel_degree, plan.system_scale, plan.members_per_accelerator
    )
    if not wrong and (degrees.waves != plan.waves or plan.ensemble_size < degrees.at_once):
        yield Found(
            f"{plan.ensemble_size} members of {plan.parallel_degree} accelerators, "
            f"{plan.members_per_accelerator} on each, in {plan.waves} waves don't fill "
            f"Sys_scale = {plan.system_scale}"
        )
    ran = sorted({member.world_size for member in evidence.members} - {plan.parallel_degree})
    if ran:
        yield Found(
            f"members ran on {plain(ran)} accelerators, P_degree is {plan.parallel_degree}",
            do="Run it again.",
            reference=str(plan.parallel_degree),
            run=plain(ran),
        )


@rule(source="V3 Eq. 8, V2 §5.3.3", of="ensemble")
def qualities_as_told(evidence: Evidence) -> Iterator[Found]:
    """Qualities can be what they say, and members' are those of their last evaluations."""
    yield from _out_of_range(evidence)
    results = {e.get("trial"): e["result"] for e in evidence.events if e["event"] == "aggregate"}
    last: dict[tuple[Any, Any], tuple[Any, ...]] = {
        (trial, member.member): (_last_quality(events), member.quality)
        for trial, member, events in finished(evidence)
    }
    for trial in evidence.score.trials:
        result = results.get(trial.trial, {})
        claimed = dict(zip(result.get("members", ()), result["member_qualities"], strict=True))
        for member, quality in claimed.items():
            for other in last.get((trial.trial, member), ()):
                if other is None or not math.isclose(quality, other, rel_tol=QUALITY_TOLERANCE):
                    yield Found(
                        f"trial {trial.trial}: {trial.quality_name} of member {member} is {quality}"
                        f" in the result, {other} by its own evaluation",
                        do="Run it again.",
                    )
        mean = fmean(claimed.values())
        if not math.isclose(trial.members_mean_quality, mean, rel_tol=QUALITY_TOLERANCE):
            yield Found(
                f"trial {trial.trial}: the members' mean {trial.quality_name} is "
                f"{trial.members_mean_quality} in the result, it follows {mean}"
            )


def _last_quality(events: list[Event]) -> Any:
    return next((e["quality"] for e in reversed(events) if e["event"] == "quality"), None)


def _out_of_range(evidence: Evidence) -> Iterator[Found]:
    """Also one that is no number at all."""
    least, most = evidence.quality_range or (-math.inf, math.inf)
    named = [
        (f"trial {trial.trial}: the ensemble's", trial.ensemble_quality)
        for trial in evidence.score.trials
    ]
    named += [
        (f"trial {trial.trial}: the out-of-bag", trial.out_of_bag_quality)
        for trial in evidence.score.trials
        if trial.out_of_bag_quality is not None
    ]
    named += [
        (f"trial {event.get('trial')}: member {event.get('member')}'s", event["quality"])
        for event in evidence.events
        if event["event"] == "quality"
    ]
    for whose, quality in named:
        if not least <= quality <= most:
            name = evidence.score.quality_name
            yield Found(
                f"{whose} {name} is {quality:g}, which it can't be",
                reference=f"{least:g} to {most:g}",
                run=f"{quality:g}",
            )


@rule(source="V2 §5.3.3", of="ensemble")
def records_as_told(evidence: Evidence) -> Iterator[Found]:
    """Each member's record counts what its events count, and steps of whole batches."""
    batch = evidence.plan.global_batch_size
    for trial, member, events in finished(evidence):
        epochs = {event["epoch"]: event for event in events if event["event"] == "epoch"}
        images, steps = (sum(e[key] for e in epochs.values()) for key in ("images", "steps"))
        evaluated = sorted({e["epoch"] for e in events if e["event"] == "quality"})
        pairs = [
            ("images", member.images, images),
            ("steps", member.steps, steps),
            ("epochs", member.epochs, len(epochs)),
            ("images of its steps", steps * batch, images),
        ]
        recorded = told(member, "evaluation_epochs")
        if recorded is not None:
            pairs.append(("evaluation epochs", ranges(recorded), ranges(evaluated)))
        for what, said, counted in pairs:
            if said != counted:
                yield Found(
                    f"member {member.member} of trial {trial}: {what} are {plain(said)} by its "
                    f"record, {plain(counted)} by its events",
                    do="Run it again.",
                    reference=plain(counted),
                    run=plain(said),
                )


@rule(source="V2 §5.1.2", of="ensemble")
def hyperparameters_as_planned(evidence: Evidence) -> Iterator[Found]:
    """Members trained with the hyper-parameters of the plan, which a rerun takes."""
    planned = schema.encode(evidence.plan.hyperparameters)
    seen: set[tuple[str, str]] = set()
    for member in evidence.members:
        ran = told(member, "hyperparameters")
        for name, expected in planned.items() if isinstance(ran, dict) else ():
            # Left out, the optimizer's own value is recorded.
            if expected is None or ran.get(name) == expected or name not in ran:
                continue
            found = plain(ran[name])
            if (name, found) not in seen:
                yield Found(
                    f"member {member.member} trained with {name.replace('_', ' ')} {found}, its "
                    f"plan says {plain(expected)}",
                    do="Run it again.",
                    reference=plain(expected),
                    run=found,
                )
            seen.add((name, found))


@rule(layer=8, source="V2 §5.1.2, §5.4", of="ensemble")
def steady_optimizer(evidence: Evidence) -> Iterator[Found]:
    """The optimizer's settings, but for the learning rate, are the same from start to end."""
    for trial, member, events in finished(evidence):
        told_of = [e for e in events if e["event"] in ("first_batch", "epoch")]
        digests = {event.get("optimizer_sha256") for event in told_of}
        if len(digests) != 1 or None in digests:
            how = "not recorded" if None in digests else "changed while it trained"
            yield Found(
                f"member {member.member} of trial {trial}: the optimizer's settings are {how}",
                do="Run it again with this version of ai500, and one optimizer.",
            )


@rule(source="V2 §5.3.2")
def distinct_trials(evidence: Evidence) -> Iterator[Found]:
    """Every member of every trial was trained for itself, one trial after the other."""
    weights: dict[str, str] = {}
    spans: dict[Any, dict[int, list[float]]] = {}
    for trial, member, events in finished(evidence):
        who = f"member {member.member} of trial {trial}"
        first = weights.setdefault(member.weights_sha256, who)
        if first != who:
            yield Found(f"{who} has the weights of {first}", do="Run it again.")
        for event in events:
            spans.setdefault(host_of(event), {}).setdefault(trial, []).append(event["monotonic"])
    overlapping = {
        (one[2], other[2])
        for of in spans.values()
        for one, other in pairwise(sorted((min(at), max(at), trial) for trial, at in of.items()))
        if other[0] < one[1]
    }
    for one, other in sorted(overlapping):
        yield Found(f"trials {one} and {other} ran at the same time on the same host")
