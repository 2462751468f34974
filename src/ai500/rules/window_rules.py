"""Rules about when a run trained: its windows, clocks and meters have to agree."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

from ai500.core.clocks import MAX_DRIFT, Clocks, Measurement, host_of
from ai500.core.events import TRAINING_EVENTS, Event
from ai500.core.units import human_seconds
from ai500.rules.evidence import Evidence, TrialEvidence
from ai500.rules.record_rules import is_script
from ai500.rules.rule import RUN_AGAIN, Observation, rule

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


WINDOW_RULES = (
    window_as_controlled, one_boot_of_an_attempt, steady_clocks, window_as_described,
    window_as_metered,
)  # fmt: skip
