"""Rules about what no machine does: rates, times, power and records that can't be of a real run.

Every bound is far from what a real run records, so that no valid run is refused; a forgery within
the bounds is found only by a rerun. docs/verification.md lists which forgeries are which.
"""

from __future__ import annotations

import dataclasses
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from statistics import median
from typing import Any

from ai500.core.clocks import MAX_DRIFT, Clocks, Measurement, host_of
from ai500.core.events import TRAINING_EVENTS, Event
from ai500.core.units import human_seconds, human_si
from ai500.inventory.description import Processors
from ai500.inventory.peaks import (
    data_sheet,
    data_sheets,
    known_instructions,
    largest_flops,
    processor_flops,
)
from ai500.metrics.node_health import timed_epochs
from ai500.metrics.quality import quality_ratio
from ai500.records import ScoreFigures, TrialScore
from ai500.rules.evidence import Evidence, TrialEvidence, effective
from ai500.rules.record_rules import is_script, members_with_events
from ai500.rules.rule import RUN_AGAIN, Observation, rule

# Winograd's F(4×4, 3×3) does 36 multiplications where 144 are counted (Lavin and Gray, 2016); no
# fast algorithm of a training library saves more.
FAST_ALGORITHMS = 4.0
# Kernels of a run may have better shapes than those that `ai500 roofline` measures, and counted
# operations include some that are no products.
CEILING_MARGIN = 1.5
# A step is dozens of dependent kernels. A GPU starts one in more than 1 µs even from a CUDA graph,
# and a function call takes as long on a CPU.
LEAST_STEP_SECONDS = 20e-6
# The first epoch includes what was not warmed up; shared accelerators are faster while other
# members have not started.
LEAST_FIRST_EPOCH_SHARE = 0.05
# The worker reads the node's state right after its last step: 1.2 s later on an H200 node.
MAX_AFTER_SECONDS, MAX_AFTER_SHARE = 60.0, 0.05
# Reading the state and the event's clock are two calls.
SAME_MOMENT_SECONDS = 1.0
# `sbatch` of a busy controller returns after the job has begun.
MAX_SUBMISSION_SECONDS = 600.0
# NTP keeps hosts of a cluster within milliseconds; without it they are minutes apart.
MAX_HOSTS_APART_SECONDS = 600.0
# NTP slews a clock by at most 5e-4; a correction at start-up is a step.
MAX_SLEW, MAX_STEP_SECONDS = 1e-3, 1.0
# An accelerator that trains draws at least a twentieth of its largest power: idle ones draw a
# tenth (H100: 70 of 700 W), and no computer that trains draws less than a watt.
LEAST_POWER_SHARE, LEAST_NODE_WATTS = 0.05, 1.0
# A power limit holds for an average over milliseconds.
LIMIT_MARGIN = 1.5
# At lower clocks a device computes up to twice as much per watt as its data sheet's peak does.
LOW_CLOCK_GAIN = 2.0
# Eq. 8 has no bound where lower is better: an error of a hundredth would be a score × 10¹⁰. The
# target is what the class's reference ensemble reached on the same data in as many epochs.
LARGEST_QUALITY_RATIO = 4.0
# Figures above it, or below its inverse, are not measurements.
LARGEST_FIGURE = 1e30
# Two members never have the same loss in half of their epochs: other bootstraps, other weights.
COPIED_SHARE = 0.5
MICROSECONDS = 6


@rule(source="vendors' data sheets")
def possible_rate(evidence: Evidence) -> Iterator[Observation]:
    """Score no rate that the devices can't reach: four times their peak by name or description."""
    precisions = {
        effective(member, "numerics", "precision") or evidence.plan.hyperparameters.precision
        for member in evidence.members
    }
    names = {member.device_name for member in evidence.members}
    for trial, score in _scored_trials(evidence):
        if score.flops is None or not names:
            continue  # rules "official convention" and "whole ensemble"
        devices, limit = evidence.plan.system_scale, 0.0
        for precision in map(str, precisions):
            if evidence.plan.device == "cpu":
                rate = _processor_flops(evidence, trial, precision)
            else:
                rate = devices * max(largest_flops(name, precision) for name in names)
            limit = max(limit, FAST_ALGORITHMS * rate)
        if limit == 0.0:
            message = f"trial {trial.trial}: no peak follows from its nodes' own descriptions"
            yield Observation(message, RUN_AGAIN, unchecked=True)
            continue
        if score.flops > limit:
            yield Observation(
                f"trial {trial.trial}: {human_si(score.flops)}FLOPS in {'/'.join(precisions)} is "
                f"more than {devices} × {'/'.join(sorted(names))} can reach",
                RUN_AGAIN,
                reference=f"at most {human_si(limit)}FLOPS",
                run=f"{human_si(score.flops)}FLOPS",
            )


def _scored_trials(evidence: Evidence) -> Iterator[tuple[TrialEvidence, TrialScore]]:
    """Yield the records of each trial with its score."""
    records = {trial.trial: trial for trial in evidence.trials}
    for score in evidence.score.trials:
        if score.trial in records:
            yield records[score.trial], score


def _processor_flops(evidence: Evidence, trial: TrialEvidence, precision: str) -> float:
    """Return the peak of the CPUs of a trial's nodes; 0: a node's is unknown."""
    if not trial.nodes:  # a script's; for others rule "accelerators as described" reports it
        any_processor = Processors(cores=_cores(evidence, trial), instructions=known_instructions())
        return processor_flops(any_processor, precision) or 0.0
    by_host = {
        node.hostname: processor_flops(node.processors, precision) or 0.0 for _, node in trial.nodes
    }
    planned = {share.node for mapping in evidence.plan.mapping for share in mapping.shares}
    if len(by_host) < len(planned) or 0.0 in by_host.values():
        return 0.0
    return sum(by_host.values())


def _cores(evidence: Evidence, trial: TrialEvidence) -> int:
    """Return the logical processors of the nodes of a trial, by their own descriptions."""
    threads = {node.hostname: node.processors.threads or 0 for _, node in trial.nodes}
    detected = evidence.system.cores if evidence.system is not None else 1
    return max(sum(threads.values()), len(evidence.plan.nodes) * detected)


@rule(source="V2 §6")
def under_submitted_ceilings(evidence: Evidence) -> Iterator[Observation]:
    """Score no rate above the ceilings of the roofline that is submitted with the run."""
    roofline = evidence.ceilings
    if roofline is None or not roofline.flops:
        return
    used = {str(effective(member, "numerics", "precision")) for member in evidence.members}
    kernels = {precision.removeprefix("mixed-") for precision in used}
    rate = max(roofline.flops.get(kernel, max(roofline.flops.values())) for kernel in kernels)
    for trial, score in _scored_trials(evidence):
        units = evidence.plan.system_scale
        if roofline.unit == "core":
            units = _cores(evidence, trial)
        limit = CEILING_MARGIN * rate * units
        if score.flops is not None and score.flops > limit:
            yield Observation(
                f"trial {trial.trial}: {human_si(score.flops)}FLOPS is above the measured ceiling "
                f"of {units} × {roofline.device_name}",
                "Measure the roofline on the nodes of the run.",
                reference=f"at most {human_si(limit)}FLOPS",
                run=f"{human_si(score.flops)}FLOPS",
            )


@rule(source="V2 §5.3.2", program="ensemble")
def least_step_time(evidence: Evidence) -> Iterator[Observation]:
    """Take longer for a step than a kernel takes to start."""
    for trial, member, events in members_with_events(evidence):
        for earlier, epoch in timed_epochs(events):
            seconds, steps = epoch["monotonic"] - earlier["monotonic"], epoch["steps"]
            if seconds < steps * LEAST_STEP_SECONDS:
                yield Observation(
                    f"member {member.member} of trial {trial}: {steps} steps of epoch "
                    f"{epoch['epoch']} in {human_seconds(max(0.0, seconds))}",
                    RUN_AGAIN,
                    reference=f"at least {human_seconds(steps * LEAST_STEP_SECONDS)}",
                )
                break


@rule(source="V2 §5.3.2, decision D6", program="ensemble")
def whole_first_epoch(evidence: Evidence) -> Iterator[Observation]:
    """Start the window with the first batch: the first epoch takes as long as the others."""
    share = LEAST_FIRST_EPOCH_SHARE / max(1, evidence.plan.members_per_accelerator)
    for trial, member, events in members_with_events(evidence):
        seconds = {
            epoch["epoch"]: epoch["monotonic"] - earlier["monotonic"]
            for earlier, epoch in timed_epochs(events)
        }
        others = [value for number, value in seconds.items() if number != 1]
        if 1 in seconds and others and seconds[1] < share * median(others):
            yield Observation(
                f"member {member.member} of trial {trial}: its first epoch took "
                f"{human_seconds(seconds[1])}, the others {human_seconds(median(others))}",
                RUN_AGAIN,
            )


@rule(source="decision D6")
def window_as_controlled(evidence: Evidence) -> Iterator[Observation]:
    """Train within the trial and within a member's jobs, by the controller's own clock."""
    for trial in evidence.trials:
        events = evidence.events_by_trial.get(trial.trial, [])
        starts = [event for event in events if event["event"] == "trial_start"]
        results = [event for event in events if event["event"] == "aggregate"]
        training = [event for event in events if event["event"] in TRAINING_EVENTS]
        if not starts or not results or not training:
            continue  # rules "unique seeds" and "window in order"
        clocks = Clocks(events)
        outside = [
            event
            for event in training
            if _outside(event, starts[0], results[-1], clocks) > SAME_MOMENT_SECONDS
        ]
        if outside:
            yield Observation(
                f"trial {trial.trial}: {len(outside)} events of members, such as "
                f"{outside[0]['event']!r} of member {outside[0].get('member')}, are outside of the "
                "controller's events 'trial_start' and 'aggregate'",
                RUN_AGAIN,
            )
        yield from _outside_of_jobs(trial.trial, events, clocks)


def _outside_of_jobs(trial: int, events: Sequence[Event], clocks: Clocks) -> Iterator[Observation]:
    """Yield members that trained before a job of theirs was submitted, or after all had ended.

    The start of a job is not compared: the controller sees it with its next query.
    """
    jobs: dict[Any, list[Event]] = {}
    training: dict[Any, list[Event]] = {}
    for event in events:
        if event["event"] in ("job_submitted", "job_ended"):
            jobs.setdefault(event.get("member"), []).append(event)
        elif event["event"] in TRAINING_EVENTS:
            training.setdefault(event.get("member"), []).append(event)
    for member, own in training.items():
        logged = jobs.get(member, [])
        submitted = [event for event in logged if event["event"] == "job_submitted"]
        ended = [event for event in logged if event["event"] == "job_ended"]
        if not submitted:
            message = f"trial {trial}: no event says when a job of member {member} was submitted"
            yield Observation(message, RUN_AGAIN, unchecked=True)
            continue
        bounds = [(own[0], submitted[0], own[0], MAX_SUBMISSION_SECONDS)]
        # A controller that was stopped does not see the end of its last job.
        if ended and len(ended) >= len(submitted):
            bounds.append((own[-1], own[-1], ended[-1], SAME_MOMENT_SECONDS))
        for event, first, last, most in bounds:
            if _outside(event, first, last, clocks) > most:
                yield Observation(
                    f"trial {trial}: {event['event']!r} of member {member} is outside of its jobs, "
                    "by the controller's events",
                    RUN_AGAIN,
                )


def _outside(event: Event, start: Event, result: Event, clocks: Clocks) -> float:
    """Return the seconds by which an event is outside of an interval; at most 0 inside."""
    clock, allowed = "monotonic", 0.0
    host, controller = host_of(event), host_of(start)
    if host != controller or host != host_of(result):
        clock, allowed = "wall", MAX_HOSTS_APART_SECONDS
    if host[0] == controller[0] == host_of(result)[0]:
        allowed = min(allowed, SAME_MOMENT_SECONDS)  # one host has one wall clock
    times = [event[clock]]
    if clock == "wall":
        times.append(clocks.corrected_wall(event))
    return float(max(start[clock] - min(times), max(times) - result[clock])) - allowed


@rule(source="decision D6")
def one_boot_of_an_attempt(evidence: Evidence) -> Iterator[Observation]:
    """Record one attempt of a member on one boot of one host: another boot is another attempt."""
    for (trial, member), events in evidence.events_by_member.items():
        hosts: dict[Any, set[Any]] = {}
        for event in events:
            hosts.setdefault(event.get("attempt"), set()).add(host_of(event))
        for attempt, boots in hosts.items():
            if len(boots) > 1:
                yield Observation(
                    f"member {member} of trial {trial}: its attempt {attempt} has events of "
                    f"{len(boots)} boots",
                    RUN_AGAIN,
                )


@rule(source="decision D6")
def steady_clocks(evidence: Evidence) -> Iterator[Observation]:
    """Measure offsets that a clock can have: steady on a host, and none against itself."""
    for trial, events in evidence.events_by_trial.items():
        measured: dict[Any, list[Measurement]] = {}
        for event in events:
            if event["event"] == "clock":
                measured.setdefault(host_of(event), []).append(
                    Measurement(
                        event["wall"], event["offset_seconds"], event["uncertainty_seconds"],
                        event["reference"],
                    )
                )  # fmt: skip
        for (host, _), values in measured.items():
            values.sort(key=lambda value: value.wall)
            own = [value for value in values if value.reference == host]
            jumps = [
                abs(later.offset_seconds - earlier.offset_seconds) - _steady(earlier, later)
                for earlier, later in pairwise(values)
                if earlier.reference == later.reference
            ]
            jumps += [
                abs(value.offset_seconds) - value.uncertainty_seconds - MAX_STEP_SECONDS
                for value in own
            ]
            if any(jump > 0 for jump in jumps):
                yield Observation(
                    f"trial {trial}: the measured offset of host {host}'s clock is not that "
                    "of a clock",
                    "Synchronize the nodes' clocks, and run it again.",
                )


def _steady(earlier: Measurement, later: Measurement) -> float:
    uncertainty = earlier.uncertainty_seconds + later.uncertainty_seconds
    return uncertainty + MAX_STEP_SECONDS + (MAX_SLEW + MAX_DRIFT) * abs(later.wall - earlier.wall)


@rule(source="V2 §5.3.3")
def window_as_described(evidence: Evidence) -> Iterator[Observation]:
    """Train between the states of the node before and after it, which the worker records."""
    if is_script(evidence):  # rule "worker of ai500"
        return
    walls: dict[tuple[Any, ...], list[float]] = {}
    ended_on: dict[tuple[Any, Any], Any] = {}
    for event in evidence.events:
        if event["event"] in TRAINING_EVENTS:
            ended_on[event.get("trial"), event.get("member")] = event.get("host")
            place: tuple[Any, ...] = (event.get("trial"), event.get("host"))
            walls.setdefault(place, []).append(event["wall"])
            walls.setdefault((*place, event.get("member")), []).append(event["wall"])
    for trial in evidence.trials:
        described = {node.hostname for _, node in trial.nodes}
        hosts = {place[1] for place in walls if place[0] == trial.trial}
        if trial.nodes and (unknown := sorted(map(str, hosts - described))):
            message = f"trial {trial.trial}: no description of node {', '.join(unknown)}"
            yield Observation(f"{message}, on which members trained", RUN_AGAIN, unchecked=True)
        yield from _without_description(trial, walls)
        for host in described:
            walls.get((trial.trial, host), []).sort()
        for member, node in trial.nodes:
            on_host = walls.get((trial.trial, node.hostname), [])
            own = walls.get((trial.trial, node.hostname, member), [])
            owner = f"trial {trial.trial}: node {node.hostname}'s description by member {member}"
            if not own:
                continue  # a member's other nodes: its rank 0 writes the events
            # A node that failed, or that the job left, has none: another one ended the training.
            before, after = node.before.wall, max(own)
            if node.after is not None:
                after = node.after.wall
            elif ended_on[trial.trial, member] == node.hostname:
                message = f"{owner} has no state after training"
                yield Observation(message, RUN_AGAIN, unchecked=True)
                continue
            if min(own) < before - SAME_MOMENT_SECONDS or max(own) > after + SAME_MOMENT_SECONDS:
                yield Observation(
                    f"{owner} was recorded during its training, not before and after", RUN_AGAIN
                )
            # Members of one process end before its description.
            earlier = bisect_right(on_host, after)
            late = after - (on_host[earlier - 1] if earlier else max(own))
            seconds = max(own) - min(own)
            if late > MAX_AFTER_SECONDS + MAX_AFTER_SHARE * seconds:
                yield Observation(
                    f"{owner} was recorded {human_seconds(late)} after the end of a training of "
                    f"{human_seconds(seconds)}",
                    RUN_AGAIN,
                )


def _without_description(
    trial: TrialEvidence, walls: Mapping[tuple[Any, ...], Sequence[float]]
) -> Iterator[Observation]:
    """Yield members without a description of their own that trained outside of their node's."""
    own = {(node.hostname, member) for member, node in trial.nodes}
    states = {
        node.hostname: [other for _, other in trial.nodes if other.hostname == node.hostname]
        for _, node in trial.nodes
    }
    for (number, host, *member), times in walls.items():
        if number != trial.trial or not member or (host, *member) in own or host not in states:
            continue
        first = min(node.before.wall for node in states[host])
        last = max(node.after.wall if node.after else max(times) for node in states[host])
        if min(times) < first - SAME_MOMENT_SECONDS or max(times) > last + SAME_MOMENT_SECONDS:
            yield Observation(
                f"trial {number}: member {member[0]} trained on node {host} before or after the "
                "node's descriptions",
                RUN_AGAIN,
            )


@rule(source="V2 §5.3.3")
def window_as_metered(evidence: Evidence) -> Iterator[Observation]:
    """Train while the meters record: they start before a member's window."""
    starts: dict[tuple[Any, ...], float] = {}
    for event in evidence.events:
        if event["event"] in TRAINING_EVENTS:
            key = (event.get("trial"), event.get("member"), host_of(event))
            starts[key] = min(starts.get(key, event["monotonic"]), event["monotonic"])
    for trial in evidence.trials:
        for span in trial.meter_spans:
            start = starts.get((trial.trial, span.member, span.host), span.first)
            if start < span.first - SAME_MOMENT_SECONDS:
                yield Observation(
                    f"trial {trial.trial}: member {span.member} trained "
                    f"{human_seconds(span.first - start)} before its meters were started",
                    RUN_AGAIN,
                )


@rule(source="V3 Eq. 7, V2 §5.3.3")
def plausible_figures(evidence: Evidence) -> Iterator[Observation]:
    """Score figures that can be ranked: positive rates and times, none above 10³⁰."""
    score = evidence.score
    positive = {"VFLOPS": score.vflops, "FLOPS": score.flops, "time to quality": score.seconds}
    figures = {field.name: getattr(score, field.name) for field in dataclasses.fields(ScoreFigures)}
    figures["quality ratio"] = quality_ratio(
        score.members_mean_quality if score.ensemble_quality is None else score.ensemble_quality,
        target=score.target_quality,
        direction=evidence.quality_direction,
    )
    if score.search is not None:
        figures["regulated score"] = score.search.regulated_score
    wrong: dict[str, float | None] = {
        name: value
        for name, value in positive.items()
        # Rule "official convention" reports operations that were not counted.
        if value is not None and not 1 / LARGEST_FIGURE <= value <= LARGEST_FIGURE
    }
    wrong |= {
        name.replace("_", " "): value
        for name, value in figures.items()
        if isinstance(value, float) and not abs(value) <= LARGEST_FIGURE
    }
    if score.ensemble_quality is None and not is_script(evidence):
        wrong["the ensemble's quality"] = None
    for name, value in wrong.items():
        statement = f"{name} is {'not measured' if value is None else f'{value:g}'}"
        yield Observation(f"{statement}: it can't be ranked", RUN_AGAIN)


@rule(source="V3 Eq. 8", program="ensemble")
def possible_quality(evidence: Evidence) -> Iterator[Observation]:
    """Reach a quality of at most four times the target's, by Eq. 8's ratio."""
    for trial in evidence.score.trials:
        quality, target = trial.ensemble_quality, trial.target_quality
        if quality is None:
            continue  # rule "plausible figures"
        ratio = quality_ratio(quality, target=target, direction=evidence.quality_direction)
        if ratio > LARGEST_QUALITY_RATIO:
            yield Observation(
                f"trial {trial.trial}: the ensemble's {trial.quality_name} of {quality:.4g} is "
                f"{ratio:.4g} times as good as the target of {target:g}",
                "Check the predictions, and run it again.",
                reference=f"at most {LARGEST_QUALITY_RATIO:g} times",
                run=f"{ratio:.4g} times",
            )


@rule(source="vendors' data sheets")
def plausible_power(evidence: Evidence) -> Iterator[Observation]:
    """Measure watts that the metered devices can draw: between idle and their power limit."""
    plan = evidence.plan
    for trial, score in _scored_trials(evidence):
        watts, coverage = score.watts, score.power_coverage or ""
        if watts is None:
            continue
        nodes = len({share.node for mapping in plan.mapping for share in mapping.shares})
        least, most = nodes * LEAST_NODE_WATTS, float("inf")
        if "accelerators" in coverage or "whole nodes" in coverage:
            sheets = [data_sheet(member.device_name) for member in trial.members]
            known = [sheet.watts for sheet in sheets if sheet is not None]
            if known:
                least = max(least, plan.system_scale * LEAST_POWER_SHARE * min(known))
        if coverage.startswith("accelerators") and "+" not in coverage:
            limits = {
                (node.hostname, device.uuid or device.index): device.power_limit_watts
                for _, node in trial.nodes
                for device in node.accelerators
            }
            drawn = [limit for limit in limits.values() if limit is not None]
            if limits and len(drawn) == len(limits):
                most = LIMIT_MARGIN * sum(drawn)
        computing = "processors" if plan.device == "cpu" else "accelerators"
        if score.flops is not None and ("whole nodes" in coverage or computing in coverage):
            least = max(least, score.flops / _largest_efficiency(evidence))
        if not least <= watts <= most:
            upper = "" if most == float("inf") else f" and at most {most:.4g} W"
            yield Observation(
                f"trial {trial.trial}: {watts:.3g} W of {coverage} on {nodes} node(s)",
                "Check the meters, and run it again.",
                reference=f"at least {least:.3g} W{upper}",
                run=f"{watts:.3g} W",
            )


def _largest_efficiency(evidence: Evidence) -> float:
    """Return operations per second and watt that no device reaches in the run's precisions."""
    used = {str(effective(member, "numerics", "precision")) for member in evidence.members}
    rates = [
        largest_flops(sheet.name, precision) / sheet.watts
        for sheet in data_sheets()
        for precision in used
    ]
    return FAST_ALGORITHMS * LOW_CLOCK_GAIN * max(rates)


@rule(source="V2 §5.3.2", program="ensemble")
def no_copied_members(evidence: Evidence) -> Iterator[Observation]:
    """Train every member for itself: two members never have the same losses or times."""
    losses: dict[tuple[int, Any], str] = {}
    times: dict[tuple[int, float], tuple[int, str]] = {}
    for trial, member, events in members_with_events(evidence):
        owner = f"member {member.member} of trial {trial}"
        same_losses: Counter[str] = Counter()
        same_times: Counter[str] = Counter()
        epochs = list(timed_epochs(events))
        own_losses = {e["epoch"]: e.get("loss") for e in events if e["event"] == "epoch"}
        unknown = list(own_losses.values()).count(None)
        if unknown > COPIED_SHARE * len(own_losses) and not is_script(evidence):
            message = f"{owner} has no loss in {unknown} of {len(own_losses)} epochs"
            yield Observation(message, RUN_AGAIN, unchecked=True)
        for number, loss in own_losses.items():
            first = losses.setdefault((number, owner if loss is None else loss), owner)
            same_losses[first] += first != owner
        for earlier, epoch in epochs:
            number = epoch["epoch"]
            seconds = round(epoch["monotonic"] - earlier["monotonic"], MICROSECONDS)
            first_trial, first = times.setdefault((number, seconds), (trial, owner))
            same_times[first] += first_trial != trial
        for kind, counts, total in (
            ("losses", same_losses, len(own_losses)),
            ("times", same_times, len(epochs)),
        ):
            first, count = max(counts.items(), key=lambda item: item[1], default=("", 0))
            if count >= 2 and count > COPIED_SHARE * total:
                yield Observation(
                    f"{owner} has the {kind} of {first} in {count} of {total} epochs",
                    RUN_AGAIN,
                )


@rule(source="V2 §5.1.7, §5.1.9")
def accelerators_as_described(evidence: Evidence) -> Iterator[Observation]:
    """Claim the processors and accelerators that the nodes describe themselves."""
    if is_script(evidence):  # rule "worker of ai500"
        return
    plan, system = evidence.plan, evidence.system
    for trial in evidence.trials:
        if not trial.nodes:
            message = f"trial {trial.trial}: no node described itself"
            yield Observation(message, RUN_AGAIN, unchecked=True)
            continue
        devices = {
            (node.hostname, device.uuid or (member, device.index)): device.name
            for member, node in trial.nodes
            for device in node.accelerators
        }
        silent = {node.hostname for _, node in trial.nodes} - {host for host, _ in devices}
        if plan.device != "cpu" and silent:
            names = ", ".join(sorted(silent))
            message = f"trial {trial.trial}: no library of {names} lists accelerators"
            yield Observation(message, RUN_AGAIN, unchecked=True)
        elif plan.device != "cpu":
            claimed = len(
                {(s.node, slot) for m in plan.mapping if m.wave == 0 for s in m.shares
                 for slot in s.slots}
            )  # fmt: skip
            if claimed > len(devices):
                yield Observation(
                    f"trial {trial.trial}: the plan has {claimed} accelerators, its nodes describe "
                    f"{len(devices)}",
                    RUN_AGAIN,
                    reference=str(len(devices)),
                    run=str(claimed),
                )
            for name in sorted({member.device_name for member in trial.members}):
                # torch adds the profile of a part of a device to its name.
                if not any(
                    name in described or described in name for described in devices.values()
                ):
                    yield _other_device(trial, name, sorted(set(devices.values())))
        for _, node in trial.nodes:
            model = node.processors.model
            same_host = system is not None and system.hostname == node.hostname
            if same_host and system is not None and model and system.cpu != model:
                yield _other_device(trial, system.cpu, [model])
                break
            cores = node.processors.threads or node.processors.cores
            if same_host and system is not None and cores and system.cores > cores:
                yield _other_device(trial, f"{system.cores} cores", [f"{cores}"])
                break


def _other_device(trial: TrialEvidence, name: str, described: Sequence[str]) -> Observation:
    return Observation(
        f"trial {trial.trial}: {name} is claimed, the nodes describe {', '.join(described)}",
        RUN_AGAIN,
        reference=", ".join(described),
        run=name,
    )


PLAUSIBILITY_RULES = (
    possible_rate, under_submitted_ceilings, least_step_time, whole_first_epoch,
    window_as_controlled, one_boot_of_an_attempt, steady_clocks, window_as_described,
    window_as_metered, possible_quality, plausible_figures, plausible_power, no_copied_members,
    accelerators_as_described,
)  # fmt: skip
