"""Rules about what no machine does: rates, times, power and records that can't be of a real run.

Every bound is far from what a real run records, so that no valid run is refused; a forgery within
the bounds is found only by a rerun. docs/verification.md lists which forgeries are which.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterator, Sequence
from statistics import median
from typing import Any

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
    possible_quality, plausible_figures, plausible_power, no_copied_members,
    accelerators_as_described,
)  # fmt: skip
