"""The rules about the procedure: trials, seeds, clocks, counting. They hold at every level."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

from ai500.core.clocks import host_of
from ai500.core.randomness import Stream, derive
from ai500.core.units import human_seconds
from ai500.operations.shipped import shipped
from ai500.records import TrainRecord
from ai500.rules.checks_records import by_member, finished
from ai500.rules.evidence import Evidence, groups, told
from ai500.rules.facts import facts, plain
from ai500.rules.layers import Found, rule

OFFICIAL_CONVENTION = "aiperf"
RECORDED = (("learning_rate", "policy"), ("communication",), ("seeds", "seed"), ("groups",))
"""What the rules need of a worker besides the facts."""
CLOCKS_AGREE_SECONDS, CLOCKS_AGREE_SHARE = 5.0, 0.01


@rule(source="V2 §5.3.2, decision D3")
def enough_trials(evidence: Evidence) -> Iterator[Found]:
    """A valid result has at least the least runs of its class."""
    done = sum(trial.complete for trial in evidence.score.trials)
    least = evidence.reference.least_runs
    if done < least:
        yield Found(
            f"{done} of at least {least} trials: shown, but not a valid result",
            do="Run with --runs valid.",
            reference=f"at least {least}",
            run=str(done),
        )


@rule(source="decision D13")
def one_wave(evidence: Evidence) -> Iterator[Found]:
    """An official entry trains the whole ensemble at once."""
    if evidence.score.waves > 1:
        yield Found(
            f"the ensemble ran in {evidence.score.waves} waves; an official entry has one",
            do="Use a larger system, a smaller parallel.degree, or let members share accelerators "
            "(ensemble.members_per_accelerator).",
            reference="1",
            run=str(evidence.score.waves),
        )


@rule(source="V3 §3.3")
def whole_ensemble(evidence: Evidence) -> Iterator[Found]:
    """Every member of every trial finished."""
    for trial in evidence.score.trials:
        if not trial.complete:
            yield Found(
                f"trial {trial.trial} is incomplete: a member failed",
                do="`ai500 resume` repeats it.",
            )
    for one in evidence.trials:
        told_of, size = len(one.members), evidence.plan.ensemble_size
        incomplete = {s.trial for s in evidence.score.trials if not s.complete}
        if told_of != size and one.trial not in incomplete:
            yield Found(f"trial {one.trial} has records of {told_of} members, not of {size}")


@rule(source="V2 §5.3.2")
def unique_seeds(evidence: Evidence) -> Iterator[Found]:
    """No two trials have the same seed: they would be one trial shown twice."""
    seen: dict[int, int | None] = {}
    for trial in evidence.score.trials:
        if trial.seed is None:
            yield Found(f"trial {trial.trial} has no recorded seed", do="Run it again.")
        elif trial.seed in seen:
            yield Found(f"trials {seen[trial.seed]} and {trial.trial} have the same seed")
        else:
            seen[trial.seed] = trial.trial


@rule(source="V2 §3.3")
def seeds_as_derived(evidence: Evidence) -> Iterator[Found]:
    """Every seed follows from the run's: nobody picked the lucky ones."""
    for trial in evidence.trials:
        expected = derive(evidence.plan.seed, Stream.TRIAL, trial.trial)
        begun = [] if trial.begun is None else [("its record", trial.begun.seed)]
        begun += [("its events", s.seed) for s in evidence.score.trials
                  if s.trial == trial.trial and s.seed is not None]  # fmt: skip
        members = [(f"member {m.member}", told(m, "seeds", "seed")) for m in trial.members]
        for who, seed in (*begun, *members):
            if seed is not None and seed != expected:
                yield Found(
                    f"trial {trial.trial}: {who} has seed {seed}, from the run's seed "
                    f"{evidence.plan.seed} follows {expected}",
                    do="Run it again.",
                    reference=str(expected),
                    run=str(seed),
                )


@rule(source="V2 §5.3.3")
def what_ran_is_recorded(evidence: Evidence) -> Iterator[Found]:
    """The worker of every member recorded what ran: rules judge that, not a configuration."""
    missing = {
        " ".join(path).replace("_", " ")
        for member in evidence.members
        for path in RECORDED
        if told(member, *path) is None
    }
    missing |= {one.what for one in facts(evidence) if one.run is None and one.reference}
    if not all(groups(member) for member in evidence.members):
        missing.add("groups")
    if not all(member.versions.get("source") for member in evidence.members):
        missing.add("source's SHA-256")
    if missing:
        yield Found(
            f"members did not record: {', '.join(sorted(missing))}",
            do="Run it again with this version of ai500.",
        )


@rule(source="V2 §3.1")
def same_software(evidence: Evidence) -> Iterator[Found]:
    """All members on all nodes ran the same source and the same versions."""
    names = dict.fromkeys(name for member in evidence.members for name in member.versions)
    for name in names:
        said = {member.versions.get(name, "none") for member in evidence.members}
        if len(said) > 1:
            both = " and ".join(sorted(one[:16] for one in said))
            yield Found(
                f"members ran different {name}: {both}",
                do="Install the same on every node, and run it again.",
                reference="one",
                run=both,
            )


@rule(source="AIPerf Table I, decision D5")
def official_convention(evidence: Evidence) -> Iterator[Found]:
    """Operations are counted by the convention of the official score."""
    found = evidence.score.convention
    if found != OFFICIAL_CONVENTION:
        yield Found(
            f"operations are counted by convention {found!r}, the score's is "
            f"{OFFICIAL_CONVENTION!r}",
            reference=OFFICIAL_CONVENTION,
            run=found,
        )


@rule(source="V3 Eq. 6, AIPerf Table I", of="ensemble")
def operations_of_the_graph(evidence: Evidence) -> Iterator[Found]:
    """The operations that were scored are those of the graph that was trained."""
    plan = evidence.plan
    counted = shipped(plan.workload, plan.problem_class, OFFICIAL_CONVENTION)
    told_of = {
        (event.get("trial"), event.get("member")): event
        for event in evidence.events
        if event["event"] == "operations"
    }
    for trial in evidence.trials:
        for member in trial.members:
            scored = told_of.get((trial.trial, member.member))
            ours = member.operations
            per = (ours.forward_per_image, ours.backward_per_image, ours.update_per_step)
            names = ("forward_per_image", "backward_per_image", "update_per_step")
            if scored is not None and tuple(scored.get(name) for name in names) != per:
                yield Found(
                    f"trial {trial.trial}: the events count other operations for member "
                    f"{member.member} than its record",
                    do="Run it again.",
                )
            graph = told(member, "model", "graph_sha256")
            same = evidence.model is not None and graph == evidence.model.graph_sha256
            if counted and same and ours.convention == OFFICIAL_CONVENTION:
                expected = (counted.forward, counted.backward, counted.update)
                if not _alike(per, expected):
                    yield Found(
                        f"member {member.member} of trial {trial.trial} counted {_counts(per)}, "
                        f"its graph has {_counts(expected)}",
                        do="Run it again.",
                        reference=_counts(expected),
                        run=_counts(per),
                    )


def _alike(per: Sequence[int], expected: Sequence[int]) -> bool:
    """To a tenth of a thousandth: what a batch does once, such as laying out a detector's anchors,
    is shared out among as many images as it has."""
    pairs = zip(per, expected, strict=True)
    return all(math.isclose(one, other, rel_tol=1e-4) for one, other in pairs)


def _counts(per: Sequence[int]) -> str:
    return "{:.6g} + {:.6g} an image, {:.6g} a step".format(*per)


@rule(layer=9, source="V2 §5.1.1", of="ensemble")
def whole_epochs(evidence: Evidence) -> Iterator[Found]:
    """An epoch is a pass over all of a member's samples, less the last part of a batch."""
    samples, batch = evidence.reference.train_samples, evidence.plan.global_batch_size
    drawn = {
        (trial.trial, one.member): one.drawn
        for trial in evidence.trials
        for one in trial.bootstraps
        if evidence.plan.sampler == "poisson"  # any other draws as many as there are
    }
    wrong: Counter[tuple[int, int]] = Counter()
    for event in evidence.events:
        if event["event"] == "epoch":
            mine = drawn.get((event["trial"], event["member"]), samples)
            expected = mine // batch * batch
            if event.get("images") != expected:
                wrong[event["images"], expected] += 1
    for (found, expected), times in sorted(wrong.items()):
        yield Found(
            f"{times} epochs of members were of {found} images, not of {expected}",
            do="Leave data.path out, and run it again.",
            reference=str(expected),
            run=str(found),
        )


@rule(source="V2 §5.3.2", of="ensemble")
def window_in_order(evidence: Evidence) -> Iterator[Found]:
    """Each member's first batch, epochs, evaluations and end were told in this order."""
    for number, record, told_of in finished(evidence):
        kinds = [event["event"] for event in told_of]
        # A job that is repeated after its end for want of a record still says that it resumed.
        while kinds and kinds[-1] == "resumed":
            kinds.pop()
        if not kinds or (kinds[0], kinds[-1]) != ("first_batch", "end"):
            yield Found(
                f"trial {number}, member {record.member}: its training begins with "
                f"{kinds[0] if kinds else 'nothing'!r} and ends with "
                f"{kinds[-1] if kinds else 'nothing'!r}, not with its first batch and its end",
                do="Run it again.",
            )
    for (trial, member), told_of in by_member(evidence).items():
        for one, other in pairwise(told_of):
            # Between two hosts, or two boots of one, clocks say nothing about the order.
            if host_of(one) == host_of(other) and other["monotonic"] < one["monotonic"]:
                yield Found(
                    f"trial {trial}, member {member}: {other['event']!r} was told before "
                    f"{one['event']!r}, by its own clock",
                    do="Run it again.",
                )


@rule(source="decision D6", severity="note")
def clocks_agree(evidence: Evidence) -> Iterator[Found]:
    """A host's two clocks measured the same time between a member's first and last event."""
    for (trial, member), told_of in by_member(evidence).items():
        first, last = told_of[0], told_of[-1]
        if host_of(first) != host_of(last):
            continue
        wall, monotonic = (last[clock] - first[clock] for clock in ("wall", "monotonic"))
        if abs(wall - monotonic) > CLOCKS_AGREE_SECONDS + CLOCKS_AGREE_SHARE * abs(monotonic):
            yield Found(
                f"trial {trial}, member {member}: {wall:.1f} s by the wall clock, "
                f"{monotonic:.1f} s by the monotonic one: somebody set the clock"
            )


@rule(source="V2 §5.3.2, decision D6")
def clocks_compared(evidence: Evidence) -> Iterator[Found]:
    """Where the window crosses nodes, the offset between their clocks is measured."""
    for trial in evidence.score.trials:
        if trial.clock_uncertainty_seconds is None:
            yield Found(
                f"trial {trial.trial} ran on several hosts, and the offset of their clocks was "
                "not measured at both ends of the window",
                do="Follow the run while it trains, or use slurm.start = 'gang'.",
            )


@rule(source="decision D6", severity="note")
def start_skew(evidence: Evidence) -> Iterator[Found]:
    """Members that start late lower the score: their wait is in the window."""
    for trial in evidence.score.trials:
        if trial.start_skew_seconds > 0.02 * trial.seconds:
            yield Found(
                f"the first wave of trial {trial.trial} started over "
                f"{human_seconds(trial.start_skew_seconds)} of its {human_seconds(trial.seconds)}",
                do="On a cluster, slurm.start = 'gang' starts all members together.",
            )


@rule(source="decision D6", severity="note")
def idle_time(evidence: Evidence) -> Iterator[Found]:
    """The window counts also where nobody trained: interruptions, start-up of later waves."""
    for trial in evidence.score.trials:
        if trial.idle_seconds > 0.1 * trial.seconds:
            yield Found(
                f"in {trial.idle_seconds:.0f} of the {trial.seconds:.0f} s of trial "
                f"{trial.trial} no member trained: start-up of later waves, or an interruption",
                do="It counts.",
            )


@rule(source="decision D11", severity="note")
def shared_accelerators(evidence: Evidence) -> Iterator[Found]:
    """Several members on one accelerator are reported, never hidden."""
    if evidence.score.members_per_accelerator > 1:
        yield Found(f"{evidence.score.members_per_accelerator} members shared each accelerator")


@rule(source="V3 Eq. 8, decision D15", severity="note", of="ensemble")
def target_reached(evidence: Evidence) -> Iterator[Found]:
    """A quality on the wrong side of the target is allowed, and lowers the score by Eq. 8."""
    target = evidence.score.target_quality
    for trial in evidence.score.trials:
        found = trial.ensemble_quality
        if found > target if evidence.lower_is_better else found < target:
            yield Found(
                f"trial {trial.trial}: the ensemble's {trial.quality_name} of {found:.4f} misses "
                f"the target of {target:g}; its FLOPS are multiplied by "
                f"{trial.penalty_coefficient:.3g}",
                reference=f"{target:g}",
                run=f"{found:.4f}",
            )


@rule(layer=8, source="V2 §5.1.2")
def open_learning_rate(evidence: Evidence) -> Iterator[Found]:
    """A learning-rate policy of one's own is open: its source stands in the record."""
    for policy in sorted({_closed(member) for member in evidence.members} - {""}):
        yield Found(
            f"the learning-rate policy {policy} is not ai500's, and its source is not recorded",
            do="Write it as a Python function in a file, so that the record can carry it.",
        )


def _closed(member: TrainRecord) -> str:
    policy, source = (told(member, "learning_rate", key) for key in ("policy", "source"))
    ours = policy is None or str(policy).startswith("ai500.")
    return "" if ours or source else str(policy)


@rule(layer=6, source="V2 §5.1.4", of="ensemble")
def parallelism_as_planned(evidence: Evidence) -> Iterator[Found]:
    """What the engine says it did is what the plan says, on which FLOPS and batch rest."""
    plan = evidence.plan
    names = ("sharded", "data_degree", "pipeline_degree", "tensor_degree")
    planned: dict[tuple[str, ...], Any] = {("global_batch_size",): plan.global_batch_size}
    planned |= {("parallel", name): getattr(plan.parallel, name) for name in names}
    for path, expected in planned.items():
        for member in evidence.members:
            ran = told(member, *path)
            if ran is not None and ran != expected:
                yield Found(
                    f"member {member.member} ran with {path[-1].replace('_', ' ')} {plain(ran)}, "
                    f"its plan says {plain(expected)}",
                    do="Run it again.",
                    reference=plain(expected),
                    run=plain(ran),
                )


@rule(layer=4, source="V2 §5.1.7", severity="note")
def skipped_steps(evidence: Evidence) -> Iterator[Found]:
    """Steps that an overflow of the gradients cost are disclosed."""
    for trial in evidence.trials:
        for member in trial.members:
            skipped = told(member, "numerics", "loss_scaling", "skipped_steps")
            if skipped:
                yield Found(
                    f"member {member.member} of trial {trial.trial} skipped {skipped} optimizer "
                    "steps: gradients overflowed"
                )
