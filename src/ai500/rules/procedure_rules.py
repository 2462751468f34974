"""Rules about the procedure (trials, seeds, clocks): they hold at every level."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

from ai500.core import plugins
from ai500.core.clocks import Clocks, Host, host_of
from ai500.core.editions import edition_seed
from ai500.core.events import Event
from ai500.core.randomness import Stream, derive
from ai500.core.units import human_seconds
from ai500.metrics.quality import is_better
from ai500.records import (
    TrainRecord,
)
from ai500.rules.evidence import Evidence, effective, optimizer_groups
from ai500.rules.operation_rules import (
    every_operator_counted,
    official_convention,
    operations_of_the_graph,
)
from ai500.rules.record_rules import is_script, members_with_events
from ai500.rules.rule import RUN_AGAIN, Observation, mismatch, rule

# Paths that the rules read from a worker's record besides the facts.
REQUIRED_PATHS = (("learning_rate", "policy"), ("communication",), ("seeds", "seed"), ("groups",))
# Wall and monotonic clock may differ by NTP's corrections.
CLOCK_TOLERANCE_SECONDS, CLOCK_TOLERANCE_SHARE = 5.0, 0.01
# A member goes on elsewhere after its job has ended and another has started, which takes longer.
MOVED_CLOCK_SECONDS = 1.0
# Clocks are compared within the time of a message: milliseconds.
UNCERTAIN_SECONDS, UNCERTAIN_SHARE = 1.0, 0.01
# Shares of a trial's time above which late starts and idle time are reported.
START_SKEW_SHARE, IDLE_SHARE = 0.02, 0.1


@rule(source="V2 §5.3.2, decision D3")
def enough_trials(evidence: Evidence) -> Iterator[Observation]:
    """Run at least the minimum number of trials of the class."""
    complete = sum(trial.complete for trial in evidence.score.trials)
    least = evidence.reference.required_runs
    if complete < least:
        yield Observation(
            f"{complete} of at least {least} trials: shown, but not a valid result",
            advice="Run with --runs valid.",
            reference=f"at least {least}",
            run=str(complete),
        )


@rule(source="decision D4")
def measured_target(evidence: Evidence) -> Iterator[Observation]:
    """Compare with a target that was measured: a provisional one makes no valid result."""
    if evidence.reference.provisional_target:
        yield Observation(
            f"the target of class {evidence.reference.name} is provisional: no reference ensemble "
            "has been measured yet",
            advice="Choose another class.",
            reference="measured",
            run="provisional",
        )


@rule(source="decision D13")
def one_wave(evidence: Evidence) -> Iterator[Observation]:
    """Train the whole ensemble at once."""
    if evidence.score.waves > 1:
        yield Observation(
            f"the ensemble ran in {evidence.score.waves} waves; an official entry has one",
            advice="Use a larger system, a smaller parallel.degree, or let members share "
            "accelerators (ensemble.members_per_accelerator).",
            reference="1",
            run=str(evidence.score.waves),
        )


@rule(source="V3 §3.3")
def whole_ensemble(evidence: Evidence) -> Iterator[Observation]:
    """Finish every member of every trial."""
    incomplete = {trial.trial for trial in evidence.score.trials if not trial.complete}
    for trial in evidence.score.trials:
        if not trial.complete:
            yield Observation(
                f"trial {trial.trial} is incomplete: a member failed",
                advice="`ai500 resume` repeats it.",
            )
    size = evidence.plan.ensemble_size
    for records in evidence.trials:
        members = len(records.members)
        if members != size and records.trial not in incomplete:
            yield Observation(
                f"trial {records.trial} has records of {members} members, not of {size}",
                reference=str(size),
                run=str(members),
            )


@rule(source="V2 §5.3.2")
def unique_seeds(evidence: Evidence) -> Iterator[Observation]:
    """Use another seed for each trial: two trials with one seed are one trial shown twice."""
    trials: dict[int, int | None] = {}
    for trial in evidence.score.trials:
        if trial.seed is None:
            yield Observation(f"trial {trial.trial} has no recorded seed", RUN_AGAIN)
        elif trial.seed in trials:
            yield Observation(f"trials {trials[trial.seed]} and {trial.trial} have the same seed")
        else:
            trials[trial.seed] = trial.trial


@rule(source="decision D22")
def seed_of_the_edition(evidence: Evidence) -> Iterator[Observation]:
    """Draw from the edition's seed: a seed of one's own is shown, and is no entry."""
    seed, edition = evidence.plan.seed, evidence.plan.edition
    expected = edition_seed(edition)
    if seed != expected:
        yield Observation(
            f"the run's seed {seed} is the submitter's own; edition {edition} has seed {expected}",
            advice="Leave run.seed out, and run it again.",
            reference="none" if expected is None else str(expected),
            run=str(seed),
        )


@rule(source="V2 §3.3")
def derived_seeds(evidence: Evidence) -> Iterator[Observation]:
    """Derive every seed from the run's seed: seeds can't be selected by their result."""
    for trial in evidence.trials:
        expected = derive(evidence.plan.seed, Stream.TRIAL, trial.trial)
        seeds = [] if trial.record is None else [("its record", trial.record.seed)]
        seeds += [("its events", score.seed) for score in evidence.score.trials
                  if score.trial == trial.trial and score.seed is not None]  # fmt: skip
        seeds += [
            (f"member {member.member}", effective(member, "seeds", "seed"))
            for member in trial.members
        ]
        for source, seed in seeds:
            if seed is not None and seed != expected:
                derivation = f"the run's seed {evidence.plan.seed} gives"
                yield mismatch(
                    f"trial {trial.trial}: {source} has seed", seed, derivation, expected
                )


@rule(source="V2 §5.3.3")
def complete_records(evidence: Evidence) -> Iterator[Observation]:
    """Record what every member's worker ran: the rules judge records, not a configuration."""
    if is_script(evidence):  # rule "worker of ai500"
        return
    missing = {
        " ".join(path).replace("_", " ")
        for member in evidence.members
        for path in REQUIRED_PATHS
        if effective(member, *path) is None
    }
    missing |= {fact.name for fact in evidence.facts if fact.run is None and fact.reference}
    if not all(optimizer_groups(member) for member in evidence.members):
        missing.add("groups")
    if not all(member.versions.get("source") for member in evidence.members):
        missing.add("source's SHA-256")
    if not all(member.weights_sha256 for member in evidence.members):
        missing.add("weights' SHA-256")
    if missing:
        yield Observation(
            f"members did not record: {', '.join(sorted(missing))}",
            advice="Run it again with this version of ai500.",
        )


@rule(source="V2 §5.3.3")
def worker_of_ai500(evidence: Evidence) -> Iterator[Observation]:
    """Train by a worker of ai500: a script of one's own records only what it says itself."""
    if is_script(evidence):
        yield Observation(
            "members were trained by a script: what it ran is not recorded",
            advice='Set framework.kind = "pytorch".',
            reference="a worker of ai500",
            run=" ".join(evidence.plan.framework.command) or "script",
        )


@rule(source="V2 §3.1")
def same_software(evidence: Evidence) -> Iterator[Observation]:
    """Run the same source and the same versions in all members on all nodes."""
    names = dict.fromkeys(name for member in evidence.members for name in member.versions)
    for name in names:
        versions = {member.versions.get(name, "none") for member in evidence.members}
        if len(versions) > 1:
            joined = " and ".join(sorted(version[:16] for version in versions))
            yield Observation(
                f"members ran different {name}: {joined}",
                advice="Install the same on every node, and run it again.",
                reference="one",
                run=joined,
            )


@rule(source="V2 §3.1")
def same_accelerators(evidence: Evidence) -> Iterator[Observation]:
    """Train all members on accelerators of one type: a result of several is no system's."""
    types = sorted({member.device_name for member in evidence.members})
    if len(types) > 1:
        joined = " and ".join(types)
        yield Observation(
            f"members trained on different accelerators: {joined}",
            advice="Choose one type, on Slurm by slurm.gpu_type, and run it again.",
            reference="one",
            run=joined,
        )


@rule(layer=9, source="V2 §5.1.1", program="ensemble")
def whole_epochs(evidence: Evidence) -> Iterator[Observation]:
    """Train on all of a member's samples in each epoch; only an incomplete batch is dropped."""
    samples, batch = evidence.reference.train_samples, evidence.plan.global_batch_size
    drawn = {
        (trial.trial, bootstrap.member): bootstrap.drawn
        for trial in evidence.trials
        for bootstrap in trial.bootstraps
        if evidence.plan.sampler == "poisson"  # the other samplers draw `samples`
    }
    epochs: Counter[tuple[int, int]] = Counter()
    for event in evidence.events_of("epoch"):
        whole = drawn.get((event["trial"], event["member"]), samples)
        expected = whole // batch * batch
        # A script may train on its last, incomplete batch.
        if event.get("samples") not in (expected, whole if is_script(evidence) else expected):
            epochs[event["samples"], expected] += 1
    for (samples, expected), count in sorted(epochs.items()):
        yield Observation(
            f"{count} epochs of members were of {samples} samples, not of {expected}",
            advice="Leave data.path out, and run it again.",
            reference=str(expected),
            run=str(samples),
        )


@rule(source="V2 §5.3.2", program="ensemble")
def window_in_order(evidence: Evidence) -> Iterator[Observation]:
    """Record each member's first batch, epochs, evaluations and end in this order."""
    for trial, member, events in members_with_events(evidence):
        kinds = [event["event"] for event in events]
        # A job that ended without a record is repeated, and then records that it resumed.
        while kinds and kinds[-1] == "resumed":
            kinds.pop()
        if not kinds or (kinds[0], kinds[-1]) != ("first_batch", "end"):
            yield Observation(
                f"trial {trial}, member {member.member}: its events begin with "
                f"{kinds[0] if kinds else 'nothing'!r} and end with "
                f"{kinds[-1] if kinds else 'nothing'!r}, not with 'first_batch' and 'end'",
                RUN_AGAIN,
            )
    clocks = {trial: Clocks(events) for trial, events in evidence.events_by_trial.items()}
    for (trial, member), events in evidence.events_by_member.items():
        owner = f"trial {trial}, member {member}"
        for earlier, later in pairwise(events):
            # Monotonic clocks of two hosts, or of two boots of one host, can't be compared.
            clock, seconds = "monotonic", later["monotonic"] - earlier["monotonic"]
            if host_of(earlier) != host_of(later):
                clock, (start, end) = "common", map(clocks[trial].corrected, (earlier, later))
                seconds = end["wall"] - start["wall"] + MOVED_CLOCK_SECONDS
            if seconds < 0:
                yield Observation(
                    f"{owner}: {later['event']!r} was recorded before {earlier['event']!r}, by "
                    f"its {clock} clock",
                    RUN_AGAIN,
                )
        epochs = evidence.plan.hyperparameters.epochs
        for event in events:
            if event["event"] == "end" and event.get("epoch") != epochs:
                statement = f"{owner}: its end is after epoch"
                yield mismatch(statement, event.get("epoch"), "planned are", epochs)
        # A crash repeats an epoch in another attempt.
        done = Counter(
            (event["event"], event["epoch"], event["attempt"])
            for event in events
            if event["event"] in ("epoch", "quality")
        )
        for (kind, epoch, attempt), count in done.items():
            if count > 1:
                yield Observation(
                    f"{owner}: attempt {attempt} has {count} events {kind!r} of epoch {epoch}",
                    RUN_AGAIN,
                )


@rule(source="decision D6")
def clocks_agree(evidence: Evidence) -> Iterator[Observation]:
    """Measure the same duration by the wall clock and by the monotonic clock of a host."""
    for (trial, member), events in evidence.events_by_member.items():
        for first, last in _on_each_host(events):
            wall, monotonic = (last[clock] - first[clock] for clock in ("wall", "monotonic"))
            tolerance = CLOCK_TOLERANCE_SECONDS + CLOCK_TOLERANCE_SHARE * abs(monotonic)
            if abs(wall - monotonic) > tolerance:
                yield Observation(
                    f"trial {trial}, member {member}: {wall:.1f} s by the wall clock, "
                    f"{monotonic:.1f} s by the monotonic clock: the wall clock was set, or the "
                    "host was suspended",
                    RUN_AGAIN,
                )


def _on_each_host(events: Sequence[Event]) -> Iterator[tuple[Event, Event]]:
    """Yield the first and last event of each boot of each host."""
    ends: dict[Host, tuple[Event, Event]] = {}
    for event in events:
        first, _ = ends.get(host_of(event), (event, event))
        ends[host_of(event)] = first, event
    yield from ends.values()


@rule(source="V2 §5.3.2, decision D6")
def clocks_compared(evidence: Evidence) -> Iterator[Observation]:
    """Measure the offset between the clocks of nodes where the window spans several."""
    for trial in evidence.score.trials:
        uncertain = trial.clock_uncertainty_seconds
        most = UNCERTAIN_SECONDS + UNCERTAIN_SHARE * trial.seconds
        if uncertain is not None and uncertain > most:
            yield Observation(
                f"the clocks of trial {trial.trial} are known to {human_seconds(uncertain)} only, "
                f"its window has {human_seconds(trial.seconds)}",
                advice="Run it again on a network that is less loaded.",
                reference=f"at most {human_seconds(most)}",
                run=human_seconds(uncertain),
            )
        if uncertain is None:
            yield Observation(
                f"trial {trial.trial} ran on several hosts, and the offset of their clocks was "
                "not measured at both ends of the window",
                advice="Keep `ai500 run` attached while it trains, or use slurm.start = 'gang'.",
            )


@rule(source="decision D6", severity="note")
def start_skew(evidence: Evidence) -> Iterator[Observation]:
    """Disclose members that start late: the window contains their wait."""
    for trial in evidence.score.trials:
        if trial.start_skew_seconds > START_SKEW_SHARE * trial.seconds:
            yield Observation(
                f"the first wave of trial {trial.trial} started over "
                f"{human_seconds(trial.start_skew_seconds)} of its {human_seconds(trial.seconds)}",
                advice="On a cluster, slurm.start = 'gang' starts all members together.",
            )


@rule(source="decision D6", severity="note")
def idle_time(evidence: Evidence) -> Iterator[Observation]:
    """Disclose time of the window in which no member trained: interruptions, later waves."""
    for trial in evidence.score.trials:
        if trial.idle_seconds > IDLE_SHARE * trial.seconds:
            yield Observation(
                f"in {trial.idle_seconds:.0f} of the {trial.seconds:.0f} s of trial "
                f"{trial.trial} no member trained: start-up of later waves, or an interruption",
                advice="Idle time is part of the window.",
            )


@rule(source="decision D11", severity="note")
def shared_accelerators(evidence: Evidence) -> Iterator[Observation]:
    """Disclose members that share an accelerator."""
    if evidence.score.members_per_accelerator > 1:
        yield Observation(
            f"{evidence.score.members_per_accelerator} members shared each accelerator"
        )


@rule(source="V3 Eq. 8, decision D15", severity="note", program="ensemble")
def target_reached(evidence: Evidence) -> Iterator[Observation]:
    """Disclose a quality that misses the target; it lowers the score by Eq. 8."""
    target = evidence.score.target_quality
    for trial in evidence.score.trials:
        ensemble, quality = "ensemble's", trial.ensemble_quality
        if quality is None:
            ensemble, quality = "members' mean", trial.members_mean_quality
        if is_better(target, quality, direction=evidence.quality_direction):
            yield Observation(
                f"trial {trial.trial}: the {ensemble} {trial.quality_name} of {quality:.4f} "
                f"misses the target of {target:g}; its FLOPS are multiplied by "
                f"{trial.penalty_coefficient:.3g}",
                reference=f"{target:g}",
                run=f"{quality:.4f}",
            )


@rule(layer=8, source="V2 §5.1.2")
def open_learning_rate(evidence: Evidence) -> Iterator[Observation]:
    """Record the source of a learning-rate policy that is not ai500's."""
    for policy in sorted({_closed_policy(member) for member in evidence.members} - {""}):
        yield Observation(
            f"the learning-rate policy {policy} is not ai500's, and its source is not recorded",
            advice="Write it as a Python function in a file, so that the record contains it.",
        )


def _closed_policy(member: TrainRecord) -> str:
    policy, source = (effective(member, "learning_rate", key) for key in ("policy", "source"))
    built_in = policy is None or str(policy).startswith("ai500.")
    return "" if built_in or source else str(policy)


@rule(layer=7, source="V2 §3.1, §5.3.3", program="ensemble")
def open_code(evidence: Evidence) -> Iterator[Observation]:
    """Record the source of a model, optimizer or loss that is not ai500's."""
    closed = {
        f"{part} {own.get('code')}"
        for member in evidence.members
        for part, own in (effective(member, "own_code") or {}).items()
        if not own.get("source")
    }
    for name in sorted(closed):
        yield Observation(
            f"the {name} is the submitter's own, and its source is not recorded",
            advice="Write it in Python, in a file, so that the record contains it.",
        )


@rule(layer=3, source="V2 §5.1.6")
def open_collective(evidence: Evidence) -> Iterator[Observation]:
    """Record the source of a collective that is not ai500's."""
    for mode in sorted({_closed_collective(member) for member in evidence.members} - {""}):
        yield Observation(
            f"the collective {mode} is not ai500's, and its source is not recorded",
            advice="Write it in Python, in a file, so that the record contains it.",
        )


def _closed_collective(member: TrainRecord) -> str:
    mode = effective(member, "parallel", "communication", "mode")
    built_in = mode is None or plugins.is_built_in("collective", str(mode))
    return "" if built_in or effective(member, "communication", "source") else str(mode)


@rule(layer=6, source="V2 §5.1.4", program="ensemble")
def parallelism_as_planned(evidence: Evidence) -> Iterator[Observation]:
    """Run with the batch and the degrees of the plan, which FLOPS are computed from."""
    plan = evidence.plan
    names = ("sharded", "data_degree", "pipeline_degree", "tensor_degree")
    planned: dict[tuple[str, ...], Any] = {("global_batch_size",): plan.global_batch_size}
    planned |= {("parallel", name): getattr(plan.parallel, name) for name in names}
    for path, expected in planned.items():
        for member in evidence.members:
            value = effective(member, *path)
            if value != expected and not (value is None and is_script(evidence)):
                statement = f"member {member.member} ran with {path[-1].replace('_', ' ')}"
                yield mismatch(statement, value, "its plan says", expected)


@rule(layer=4, source="V2 §5.1.7", severity="note")
def skipped_steps(evidence: Evidence) -> Iterator[Observation]:
    """Disclose optimizer steps that were skipped because gradients overflowed."""
    for name, member in evidence.named_members():
        if skipped := effective(member, "numerics", "loss_scaling", "skipped_steps"):
            message = f"{name} skipped {skipped} optimizer steps: gradients overflowed"
            yield Observation(message, run=str(skipped))


@rule(source="V2 §5.3", severity="note")
def intact_checkpoints(evidence: Evidence) -> Iterator[Observation]:
    """Disclose checkpoints that were damaged; training continued from an earlier one."""
    for event in evidence.events_of("checkpoint_damaged"):
        member, trial = event.get("member"), event.get("trial")
        yield Observation(
            f"member {member} of trial {trial}: {event.get('file')} was damaged: "
            f"{event.get('reason')}; training continued from the checkpoint before it, or from "
            "the start",
            run=str(event.get("file")),
        )


@rule(source="V2 §5.3.3", severity="note")
def healthy_nodes(evidence: Evidence) -> Iterator[Observation]:
    """Disclose nodes that may be sick: slower steps than on the others, errors, lower clocks."""
    for trial in evidence.trials:
        for sign in trial.signs:
            yield Observation(
                f"trial {trial.trial}: {sign}",
                advice="Test the node; on Slurm, slurm.exclude leaves it out.",
                run=", ".join(sign.hosts),
            )


PROCEDURE_RULES = (
    enough_trials, measured_target, one_wave, whole_ensemble, unique_seeds, seed_of_the_edition,
    derived_seeds, complete_records,
    worker_of_ai500, same_software, same_accelerators, official_convention, every_operator_counted,
    operations_of_the_graph, whole_epochs,
    window_in_order, clocks_agree, clocks_compared, start_skew, idle_time, shared_accelerators,
    target_reached, open_learning_rate, open_code,
    open_collective, parallelism_as_planned, skipped_steps, intact_checkpoints, healthy_nodes,
)  # fmt: skip
