"""Rules about values that are recorded twice: events, records, plan and class must agree."""

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
from ai500.parallel.parallelism_controller import Degrees
from ai500.records import TrainRecord
from ai500.rules.evidence import Evidence, effective
from ai500.rules.facts import as_text, ranges, shorten
from ai500.rules.rule import RUN_AGAIN, Observation, mismatch, rule

QUALITY_TOLERANCE = 1e-9
SCRIPT_QUALITY_TOLERANCE = 1e-4  # a script may average in single precision
UNCOMPARED_FIELDS = {
    # taken from the data that the class runs on: rule "same data" compares the data's identity
    "fields", "normalization", "store_sha256",
    # compared as facts
    "train_samples", "validation_samples", "classes", "input_shape", "target_quality",
    "penalty_exponent",
    # estimates
    "seconds_per_sample", "measured_on",
}  # fmt: skip
"""Fields of a problem class that rule "registered class" leaves to other rules."""


def members_with_events(evidence: Evidence) -> Iterator[tuple[int, TrainRecord, list[Event]]]:
    """Yield trial, record and training events of every member that has a record."""
    events = evidence.events_by_member
    for trial in evidence.trials:
        for member in trial.members:
            yield trial.trial, member, events.get((trial.trial, member.member), [])


def is_script(evidence: Evidence) -> bool:
    """Return True where a script of the user's own trained the members."""
    return evidence.plan.framework.kind == "script"


@rule(layer=9, source="V2 §5.1.1, decision D4")
def registered_class(evidence: Evidence) -> Iterator[Observation]:
    """Run the registered class; only the fields that describe its data may differ."""
    if evidence.plan.definition.custom is not None:
        yield Observation(
            f"class {evidence.plan.problem_class} is the submitter's own, comparable with no "
            "registered class",
            advice="Leave [custom_class] out.",
            reference="a registered class",
            run=evidence.plan.problem_class,
        )
    for field in dataclasses.fields(evidence.reference):
        planned, registered = (
            getattr(definition, field.name)
            for definition in (evidence.plan.definition, evidence.reference)
        )
        if field.name not in UNCOMPARED_FIELDS and planned != registered:
            if dataclasses.is_dataclass(planned) and dataclasses.is_dataclass(registered):
                planned, registered = _first_difference(planned, registered)
            statement = f"the plan's class has {field.name.replace('_', ' ')}"
            advice = "Run the class as it is."
            yield mismatch(statement, planned, "the registered one", registered, advice)


def _first_difference(planned: Any, registered: Any) -> tuple[str, str]:
    for field in dataclasses.fields(planned):
        pair = getattr(planned, field.name), getattr(registered, field.name)
        if pair[0] != pair[1]:
            return f"{field.name} = {as_text(pair[0])}", f"{field.name} = {as_text(pair[1])}"
    return "other", "its own"


@rule(layer=9, source="V2 §5.1.1", severity="note")
def unknown_data(evidence: Evidence) -> Iterator[Observation]:
    """Disclose the SHA-256 of data whose identity this version does not know."""
    if evidence.reference.store_sha256 is None:
        digests = _digests(evidence, "data", "store_sha256")
        names = {file["name"] for file in _published(evidence)}
        origin = "it was not compared with published files"
        if names:
            origin = f"it was packed from files of known MD5: {', '.join(sorted(names))}"
        yield Observation(
            "this version does not know the identity of the class's data; its SHA-256 is "
            f"{digests or 'not recorded'}; {origin}",
            run=digests,
        )


@rule(layer=9, source="V2 §5.1.1")
def published_files(evidence: Evidence) -> Iterator[Observation]:
    """Pack published data from the published files, where their hashes are known."""
    for name, md5, expected in sorted(
        {(file["name"], file["md5"], file["published_md5"]) for file in _published(evidence)}
    ):
        if md5 != expected:
            statement = f"the data was packed from a {name} with MD5"
            yield mismatch(statement, md5, "the published one has", expected, "Copy it again.")


def _published(evidence: Evidence) -> list[dict[str, Any]]:
    """Return the files of known MD5 that the members' data was packed from."""
    lists = [effective(member, "data", "published") for member in evidence.members]
    return [file for files in lists if isinstance(files, list) for file in files]


@rule(layer=7, source="V2 §5.1.3", severity="note", program="ensemble")
def unknown_model(evidence: Evidence) -> Iterator[Observation]:
    """Disclose the graph's SHA-256 of a model that this version does not know."""
    if evidence.model is None:
        digests = _digests(evidence, "model", "graph_sha256")
        yield Observation(
            "this version does not know the class's model; its graph's SHA-256 is "
            f"{digests or 'not recorded'}",
            run=digests,
        )


def _digests(evidence: Evidence, *path: str) -> str | None:
    digests = {effective(member, *path) for member in evidence.members} - {None}
    return " and ".join(sorted(shorten(str(digest)) for digest in digests)) or None


@rule(source="decision D13")
def minimum_ensemble_size(evidence: Evidence) -> Iterator[Observation]:
    """Train at least the M of the class."""
    size, least = evidence.plan.ensemble_size, evidence.reference.ensemble_size
    if size < least:
        yield Observation(
            f"M = {size}, the minimum of the class is {least}",
            advice="Leave ensemble.size out.",
            reference=f"at least {least}",
            run=str(size),
        )


@rule(source="V3 Eq. 5, decisions D11 and D13")
def scale_as_mapped(evidence: Evidence) -> Iterator[Observation]:
    """Satisfy Sys_scale = M × P_degree / k over the waves, as the members are mapped."""
    plan = evidence.plan
    uses = [
        (mapping.wave, share.node, slot)
        for mapping in plan.mapping
        for share in mapping.shares
        for slot in share.slots
    ]
    used = {(node, slot) for _, node, slot in uses}
    available = {(node.name, slot.index) for node in plan.nodes for slot in node.slots}
    sizes = {sum(len(share.slots) for share in mapping.shares) for mapping in plan.mapping}
    mapped = {
        "members": [mapping.member for mapping in plan.mapping],
        "waves": 1 + max((mapping.wave for mapping in plan.mapping), default=0),
        "system_scale": len(used & available),
        "members_per_accelerator": max(Counter(uses).values(), default=0),
        "parallel_degree": sorted(sizes),
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
        statement = f"the plan has {name.replace('_', ' ')}"
        yield mismatch(statement, planned[name], "its mapping has", mapped[name])
    degrees = Degrees(
        plan.ensemble_size, plan.parallel_degree, plan.system_scale, plan.members_per_accelerator
    )
    if not wrong and (degrees.waves != plan.waves or plan.ensemble_size < degrees.at_once):
        yield Observation(
            f"{plan.ensemble_size} members of {plan.parallel_degree} accelerators, "
            f"{plan.members_per_accelerator} on each, in {plan.waves} waves don't fill "
            f"Sys_scale = {plan.system_scale}"
        )
    ran = sorted({member.world_size for member in evidence.members} - {plan.parallel_degree})
    if ran:
        yield mismatch("accelerators of a member:", ran, "P_degree is", plan.parallel_degree)


@rule(source="V3 Eq. 8, V2 §5.3.3", program="ensemble")
def consistent_qualities(evidence: Evidence) -> Iterator[Observation]:
    """Report possible qualities; a member's quality is that of its last evaluation."""
    yield from _impossible_qualities(evidence)
    results = {event.get("trial"): event["result"] for event in evidence.events_of("aggregate")}
    evaluated: dict[tuple[Any, Any], tuple[Any, ...]] = {
        (trial, member.member): (_last_quality(events), member.quality)
        for trial, member, events in members_with_events(evidence)
    }
    tolerance = SCRIPT_QUALITY_TOLERANCE if is_script(evidence) else QUALITY_TOLERANCE
    for trial in evidence.score.trials:
        result = results.get(trial.trial, {})
        qualities = dict(zip(result.get("members", ()), result["member_qualities"], strict=True))
        for member, quality in qualities.items():
            for own in evaluated.get((trial.trial, member), ()):
                if own is None or not math.isclose(quality, own, rel_tol=tolerance):
                    yield Observation(
                        f"trial {trial.trial}: {trial.quality_name} of member {member} is {quality}"
                        f" in the result, {own} by its own evaluation",
                        RUN_AGAIN,
                        reference=None if own is None else as_text(own),
                        run=as_text(quality),
                    )
        mean = fmean(qualities.values())
        if not math.isclose(trial.members_mean_quality, mean, rel_tol=QUALITY_TOLERANCE):
            yield Observation(
                f"trial {trial.trial}: the members' mean {trial.quality_name} is "
                f"{trial.members_mean_quality} in the result, {mean} by the members' qualities",
                reference=as_text(mean),
                run=as_text(trial.members_mean_quality),
            )


def _last_quality(events: list[Event]) -> Any:
    qualities = [event["quality"] for event in events if event["event"] == "quality"]
    return qualities[-1] if qualities else None


def _impossible_qualities(evidence: Evidence) -> Iterator[Observation]:
    """Yield qualities outside of the workload's range, and NaN."""
    least, most = evidence.quality_range or (-math.inf, math.inf)
    qualities: list[tuple[str, float]] = []
    for trial in evidence.score.trials:
        if trial.ensemble_quality is not None:
            qualities.append((f"trial {trial.trial}: the ensemble's", trial.ensemble_quality))
        if trial.out_of_bag_quality is not None:
            qualities.append((f"trial {trial.trial}: the out-of-bag", trial.out_of_bag_quality))
    qualities += [
        (f"trial {event.get('trial')}: member {event.get('member')}'s", event["quality"])
        for event in evidence.events_of("quality")
    ]
    for owner, quality in qualities:
        if not least <= quality <= most:
            yield Observation(
                f"{owner} {evidence.score.quality_name} is {quality:g}, which is impossible",
                reference=f"{least:g} to {most:g}",
                run=f"{quality:g}",
            )


@rule(source="V2 §5.3.3", program="ensemble")
def consistent_records(evidence: Evidence) -> Iterator[Observation]:
    """Record the samples, steps and epochs that the events count, in steps of whole batches."""
    batch = evidence.plan.global_batch_size
    for trial, member, events in members_with_events(evidence):
        epochs = {event["epoch"]: event for event in events if event["event"] == "epoch"}
        samples, steps = (
            sum(event[key] for event in epochs.values()) for key in ("samples", "steps")
        )
        evaluated = sorted({event["epoch"] for event in events if event["event"] == "quality"})
        pairs: list[tuple[str, Any, Any]] = [
            ("samples", member.samples, samples),
            ("steps", member.steps, steps),
            ("epochs", member.epochs, len(epochs)),
        ]
        if not is_script(evidence):  # its last batch may be incomplete
            pairs.append(("samples of its steps", steps * batch, samples))
        evaluation_epochs = effective(member, "evaluation_epochs")
        if evaluation_epochs is not None:
            pairs.append(("evaluation epochs", ranges(evaluation_epochs), ranges(evaluated)))
        for name, recorded, counted in pairs:
            if recorded != counted:
                statement = f"member {member.member} of trial {trial}: its record has {name}"
                yield mismatch(statement, recorded, "its events", counted)


@rule(source="V2 §5.1.2", program="ensemble")
def hyperparameters_as_planned(evidence: Evidence) -> Iterator[Observation]:
    """Train with the hyper-parameters of the plan, which a rerun uses."""
    planned = schema.encode(evidence.plan.hyperparameters)
    reported: set[tuple[str, str]] = set()
    for member in evidence.members:
        recorded = effective(member, "hyperparameters")
        for name, expected in planned.items() if isinstance(recorded, dict) else ():
            # A planned None stands for the optimizer's default, which is then recorded.
            if expected is None or recorded.get(name) == expected:
                continue
            value = as_text(recorded.get(name, "not recorded"))
            if (name, value) not in reported:
                statement = f"member {member.member} trained with {name.replace('_', ' ')}"
                yield mismatch(statement, value, "its plan says", expected)
            reported.add((name, value))
        precision = effective(member, "numerics", "precision")
        key = ("numerics", as_text(precision))
        if precision not in (None, planned["precision"]) and key not in reported:
            reported.add(key)
            statement = f"member {member.member} computed in precision"
            yield mismatch(statement, precision, "its plan says", planned["precision"])


@rule(layer=8, source="V2 §5.1.2, §5.4", program="ensemble")
def constant_optimizer_settings(evidence: Evidence) -> Iterator[Observation]:
    """Keep the optimizer's settings, except the learning rate, from start to end."""
    if is_script(evidence):  # rule "worker of ai500"
        return
    for trial, member, events in members_with_events(evidence):
        digests = {
            event.get("optimizer_sha256")
            for event in events
            if event["event"] in ("first_batch", "epoch")
        }
        if len(digests) != 1 or None in digests:
            problem = "were not recorded" if None in digests else "changed during training"
            yield Observation(
                f"member {member.member} of trial {trial}: the optimizer's settings {problem}",
                advice="Run it again with this version of ai500, and one optimizer.",
            )


@rule(source="V2 §5.3.2")
def distinct_trials(evidence: Evidence) -> Iterator[Observation]:
    """Train every member of every trial separately, one trial after the other."""
    owners: dict[str, str] = {}
    times: dict[Any, dict[int, list[float]]] = {}
    for trial, member, events in members_with_events(evidence):
        owner = f"member {member.member} of trial {trial}"
        for kind, digest in (
            ("weights", member.weights_sha256),
            ("predictions", member.validation_sha256),
        ):
            first_owner = owners.setdefault(digest or f"{kind} of {owner}", owner)
            if first_owner != owner:
                yield Observation(f"{owner} has the {kind} of {first_owner}", RUN_AGAIN)
        for event in events:
            times.setdefault(host_of(event), {}).setdefault(trial, []).append(event["monotonic"])
    overlapping = set()
    for times_on_host in times.values():
        spans = sorted((min(at), max(at), trial) for trial, at in times_on_host.items())
        overlapping |= {
            (earlier, later)
            for (_, end, earlier), (start, _, later) in pairwise(spans)
            if start < end
        }
    for earlier, later in sorted(overlapping):
        yield Observation(f"trials {earlier} and {later} ran at the same time on the same host")


RECORD_RULES = (
    registered_class, unknown_data, published_files, unknown_model, minimum_ensemble_size,
    scale_as_mapped, consistent_qualities, consistent_records, hyperparameters_as_planned,
    constant_optimizer_settings, distinct_trials,
)  # fmt: skip
