"""How each rule is broken: a change of a clean run's evidence, and what the rule then says."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from ai500.rules.evidence import Evidence

Change = Callable[[Evidence], Evidence]


def on_every_score(evidence: Evidence, **changes: Any) -> Evidence:
    trials = tuple(replace(trial, **changes) for trial in evidence.score.trials)
    return replace(evidence, score=replace(evidence.score, trials=trials, **changes))


def score(**changes: Any) -> Change:
    """Another score of the run, or of all its trials where the field is one of theirs."""
    return lambda evidence: on_every_score(evidence, **changes)


def run_score(**changes: Any) -> Change:
    return lambda e: replace(e, score=replace(e.score, **changes))


def told(*path: str, value: Any, member: int | None = None) -> Change:
    """Another value in what the workers recorded: of all members, or of one of each trial."""

    def change(evidence: Evidence) -> Evidence:
        for record in evidence.members:
            if member is None or record.member == member:
                at = record.effective
                for key in path[:-1]:
                    at = at.setdefault(key, {})
                at[path[-1]] = value
        return evidence

    return change


def records(**changes: Any) -> Change:
    """Another field of every member's record."""

    def change(evidence: Evidence) -> Evidence:
        trials = [
            replace(one, members=[replace(member, **changes) for member in one.members])
            for one in evidence.trials
        ]
        return replace(evidence, trials=trials)

    return change


def plan(**changes: Any) -> Change:
    return lambda evidence: replace(evidence, plan=replace(evidence.plan, **changes))


def events(kind: str, **changes: Any) -> Change:
    """Another field in all events of a kind."""

    def change(evidence: Evidence) -> Evidence:
        changed = [e | changes if e["event"] == kind else e for e in evidence.events]
        return replace(evidence, events=changed)

    return change


def trained(name: str, value: Any) -> Change:
    """Another hyper-parameter, planned and recorded."""

    def change(evidence: Evidence) -> Evidence:
        hyper = replace(evidence.plan.hyperparameters, **{name: value})
        return told("hyperparameters", name, value=value)(plan(hyperparameters=hyper)(evidence))

    return change


def plan_hyper(**changes: Any) -> Change:
    """Other hyper-parameters in the plan alone."""
    return lambda e: plan(hyperparameters=replace(e.plan.hyperparameters, **changes))(e)


def defined(**changes: Any) -> Change:
    """Another class in the plan than the registered one."""
    return lambda e: plan(definition=replace(e.plan.definition, **changes))(e)


def registered(**changes: Any) -> Change:
    """Another registered class, and the plan's with it."""
    return lambda e: replace(defined(**changes)(e), reference=replace(e.reference, **changes))


def result(**changes: Any) -> Change:
    """Another aggregated result in the events."""

    def change(evidence: Evidence) -> Evidence:
        changed = [
            e | {"result": e["result"] | changes} if e["event"] == "aggregate" else e
            for e in evidence.events
        ]
        return replace(evidence, events=changed)

    return change


def without(kind: str) -> Change:
    """No events of a kind."""
    return lambda e: replace(e, events=[one for one in e.events if one["event"] != kind])


def trial_shown_again(evidence: Evidence) -> Evidence:
    """Trial 2's events at the time of trial 1's."""
    shift = {
        t: next(e["monotonic"] for e in evidence.events if e.get("trial") == t) for t in (1, 2)
    }
    changed = [
        e | {"monotonic": e["monotonic"] - shift[2] + shift[1]} if e.get("trial") == 2 else e
        for e in evidence.events
    ]
    return replace(evidence, events=changed)


def first_batch_before_the_end(evidence: Evidence) -> Evidence:
    """The clock starts when all is done: a window of nothing."""
    held: dict[Any, Any] = {}
    changed = []
    for event in evidence.events:
        of = (event.get("trial"), event.get("member"))
        if event["event"] == "first_batch":
            held[of] = event
            continue
        if event["event"] == "end":
            times = {key: event[key] for key in ("monotonic", "wall")}
            changed.append(held[of] | times)
        changed.append(event)
    return replace(evidence, events=changed)


def batch_norm_without_decay(evidence: Evidence) -> Evidence:
    """V2 §5.4's trick: batch norm's γ and β in a group of their own, without weight decay."""
    for member in evidence.members:
        [group] = member.effective["groups"]
        trick = {**group, "weight_decay": 0.0, "elements": 448}
        trick["kinds"] = {"batch norm bias": 9, "batch norm weight": 9}
        member.effective["groups"] = [{**group, "elements": group["elements"] - 448}, trick]
    return evidence


def same_bootstrap_twice(evidence: Evidence) -> Evidence:
    first = evidence.trials[0]
    twice = [first.bootstraps[0], replace(first.bootstraps[1], sha256=first.bootstraps[0].sha256)]
    return replace(evidence, trials=[replace(first, bootstraps=twice), *evidence.trials[1:]])


def another_target(evidence: Evidence) -> Evidence:
    easier = replace(evidence.plan.definition, target_quality=0.5)
    return replace(evidence, plan=replace(evidence.plan, definition=easier))


def same_seed_twice(evidence: Evidence) -> Evidence:
    first, second, *rest = evidence.score.trials
    trials = (first, replace(second, seed=first.seed), *rest)
    return replace(evidence, score=replace(evidence.score, trials=trials))


def one_incomplete(evidence: Evidence) -> Evidence:
    more = (*evidence.score.trials, replace(evidence.score.trials[0], trial=4, complete=False))
    more = (*more[:-1], replace(more[-1], seed=99))
    return replace(evidence, score=replace(evidence.score, trials=more))


@dataclass(frozen=True)
class Violation:
    """How a rule is broken, what it then says, and which rules can't but notice it too."""

    change: Change
    says: str
    also: frozenset[str] = field(default_factory=frozenset)


V = Violation
OTHER = {"ai500": "0.0", "source": "0" * 64, "torch": "2.9"}
VIOLATIONS: dict[str, Violation] = {
    "enough trials": V(
        lambda e: replace(e, score=replace(e.score, trials=e.score.trials[:1])),
        "1 of at least 3 trials",
    ),
    "one wave": V(run_score(waves=4), "4 waves"),
    "whole ensemble": V(
        one_incomplete, "trial 4 is incomplete", frozenset({"qualities as told"})
    ),
    "unique seeds": V(
        same_seed_twice, "trials 1 and 2 have the same seed", frozenset({"seeds as derived"})
    ),
    "seeds as derived": V(told("seeds", "seed", value=7), "has seed 7, from the run's seed 1"),
    "what ran is recorded": V(
        told("model", "graph_sha256", value=None), "did not record: graph's SHA-256"
    ),
    "same software": V(
        lambda e: replace(e, trials=[*e.trials[1:], records(versions=OTHER)(e).trials[0]]),
        "members ran different torch: 2.0 and 2.9",
    ),
    "official convention": V(run_score(convention="v3"), "counted by convention 'v3'"),
    "operations of the graph": V(
        events("operations", forward_per_image=10**9), "the events count other operations"
    ),
    "whole epochs": V(
        events("epoch", images=64), "were of 64 images, not of 4032",
        frozenset({"records as told"}),
    ),
    "window in order": V(events("end", monotonic=0.0), "'end' was told before 'quality'",
                         frozenset({"clocks agree", "distinct trials"})),
    "class as registered": V(
        defined(least_runs=100), "the plan's class has least runs 100, the registered one 3"
    ),
    "model not known": V(lambda e: replace(e, model=None), "SHA-256 of its graph is disclosed"),
    "data not known": V(
        registered(store_sha256=None), "is not known to this version: its SHA-256 is disclosed"
    ),
    "least ensemble": V(registered(ensemble_size=5), "M = 4, the least of the class is 5"),
    "scale as mapped": V(
        plan(system_scale=100_000), "system scale 100000 is planned, the members are mapped to 4"
    ),
    "qualities as told": V(score(ensemble_quality=3.0), "is 3, which it can't be"),
    "records as told": V(records(images=1), "images are 1 by its record, 44352 by its events"),
    "hyperparameters as planned": V(
        plan_hyper(label_smoothing=0.1), "trained with label smoothing 0, its plan says 0.1"
    ),
    "steady optimizer": V(
        events("first_batch", optimizer_sha256="1" * 64), "settings are changed while it trained"
    ),
    "distinct trials": V(
        records(weights_sha256="0" * 64), "member 1 of trial 1 has the weights of member 0"
    ),
    "clocks agree": V(
        events("first_batch", wall=0.0), "somebody set the clock"
    ),
    "clocks compared": V(score(clock_uncertainty_seconds=None), "was not measured"),
    "start skew": V(score(start_skew_seconds=0.5, seconds=1.0), "started over 500 ms of its 1.0 s"),
    "idle time": V(score(idle_seconds=0.5, seconds=1.0), "no member trained"),
    "shared accelerators": V(run_score(members_per_accelerator=2), "2 members"),
    "target reached": V(score(ensemble_quality=0.8), "misses the target of 0.86"),
    "open learning rate": V(
        told("learning_rate", "policy", value="mine.warm"), "policy mine.warm is not ai500's"
    ),
    "parallelism as planned": V(
        told("parallel", "data_degree", value=2), "ran with data degree 2, its plan says 1"
    ),
    "skipped steps": V(
        told("numerics", "loss_scaling", value={"skipped_steps": 3}), "skipped 3 optimizer steps"
    ),
    "same data": V(told("data", "store_sha256", value="f" * 64), "ffffffffffffffff…"),
    "same target": V(another_target, "target quality: 0.5, n = 5 and 0.86, n = 5"),
    "same epochs": V(
        records(epochs=5), "epochs: 5, the reference has 11", frozenset({"records as told"})
    ),
    "same evaluations": V(
        told("evaluation_epochs", value=[11]), "after epochs: 11, the",
        frozenset({"records as told"}),
    ),
    "changed batch size": V(trained("batch_size", 7), "batch size: 7"),
    "changed learning rate": V(
        trained("base_learning_rate", 9.0), "base learning rate: 9"
    ),
    "fixed hyperparameters": V(trained("momentum", 0.8), "momentum: 0.8"),
    "weight decay on everything": V(
        batch_norm_without_decay,
        "trained 9 × batch norm bias, 9 × batch norm weight with weight decay 0, all else with "
        "0.0005",
    ),
    "equal members": V(
        told("hyperparameters", "reference_batch_size", value=128, member=1),
        "members differ in reference batch size: 128 and 256",
        frozenset({"changed learning rate", "hyperparameters as planned"}),
    ),
    "same model": V(told("model", "graph_sha256", value="e" * 64), "graph's SHA-256: eeee"),
    "own bootstraps": V(same_bootstrap_twice, "member 1 of trial 1 has the bootstrap of member 0"),
    "equivalent parallelism": V(
        told("parallel", "mode", value="pipeline"), "parallel mode: pipeline"
    ),
    "known parallelism": V(told("parallel", "mode", value="hogwild"), "parallel mode: hogwild"),
    "synchronous training": V(
        told("parallel", "communication", value={"mode": "gossip", "precision": "fp32"}),
        "not known of 'gossip'",
        frozenset({"chosen communication"}),
    ),
    "same framework": V(told("framework", "name", value="jax"), "framework: jax"),
    "chosen precision": V(
        told("numerics", "precision", value="fp16"), "precision: fp16, the reference has fp32"
    ),
    "allowed precision": V(told("numerics", "precision", value="fp4"), "precision: fp4"),
    "chosen communication": V(
        told("parallel", "communication", value={"mode": "torus_2d", "precision": "fp32"}),
        "mode: torus_2d, the reference has all_reduce",
    ),
}  # fmt: skip
