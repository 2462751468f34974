"""A violation of each rule: a change of a clean run's evidence, and the finding that it causes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from ai500.core.clocks import host_of
from ai500.core.randomness import Stream, derive
from ai500.inventory.description import Accelerator, NodeDescription
from ai500.metrics.node_health import Sign
from ai500.operations.shipped import shipped_model
from ai500.records import FrameworkChoice
from ai500.rules.evidence import Ceilings, Evidence, MeterSpan
from ai500.rules.facts import shorten
from ai500.workloads.protocol import load_workload

Change = Callable[[Evidence], Evidence]


def on_every_score(evidence: Evidence, **changes: Any) -> Evidence:
    trials = tuple(replace(trial, **changes) for trial in evidence.score.trials)
    return replace(evidence, score=replace(evidence.score, trials=trials, **changes))


def score(**changes: Any) -> Change:
    """Change a field of the score of the run and of all its trials."""
    return lambda evidence: on_every_score(evidence, **changes)


def run_score(**changes: Any) -> Change:
    return lambda e: replace(e, score=replace(e.score, **changes))


def recorded(*path: str, value: Any, member: int | None = None) -> Change:
    """Change a value that the workers recorded: of all members, or of one of each trial."""

    def change(evidence: Evidence) -> Evidence:
        for record in evidence.members:
            if member is None or record.member == member:
                values = record.effective
                for key in path[:-1]:
                    values = values.setdefault(key, {})
                values[path[-1]] = value
        return evidence

    return change


def records(**changes: Any) -> Change:
    """Change a field of every member's record."""

    def change(evidence: Evidence) -> Evidence:
        trials = [
            replace(trial, members=[replace(member, **changes) for member in trial.members])
            for trial in evidence.trials
        ]
        return replace(evidence, trials=trials)

    return change


def signs(*values: Sign) -> Change:
    """Give the first trial signs of sick nodes."""
    return lambda e: replace(e, trials=[replace(e.trials[0], signs=values), *e.trials[1:]])


def plan(**changes: Any) -> Change:
    return lambda evidence: replace(evidence, plan=replace(evidence.plan, **changes))


def added_event(kind: str, **fields: Any) -> Change:
    """Add an event of the first member, beside its first batch."""

    def change(evidence: Evidence) -> Evidence:
        first = next(e for e in evidence.events if e["event"] == "first_batch")
        added = first | {"event": kind} | fields
        return replace(evidence, events=[*evidence.events, added])

    return change


def events(kind: str, **changes: Any) -> Change:
    """Change a field in all events of a kind."""

    def change(evidence: Evidence) -> Evidence:
        changed = [e | changes if e["event"] == kind else e for e in evidence.events]
        return replace(evidence, events=changed)

    return change


def trained(name: str, value: Any) -> Change:
    """Change a hyper-parameter in the plan and in the records."""

    def change(evidence: Evidence) -> Evidence:
        hyper = replace(evidence.plan.hyperparameters, **{name: value})
        return recorded("hyperparameters", name, value=value)(plan(hyperparameters=hyper)(evidence))

    return change


def computed_in(precision: str) -> Change:
    """Compute in another precision, as planned."""
    return lambda e: recorded("numerics", "precision", value=precision)(
        trained("precision", precision)(e)
    )


def plan_hyper(**changes: Any) -> Change:
    """Change hyper-parameters in the plan alone."""
    return lambda e: plan(hyperparameters=replace(e.plan.hyperparameters, **changes))(e)


def defined(**changes: Any) -> Change:
    """Change the plan's problem class, but not the registered one."""
    return lambda e: plan(definition=replace(e.plan.definition, **changes))(e)


def registered(**changes: Any) -> Change:
    """Change the registered class and the plan's."""
    return lambda e: replace(defined(**changes)(e), reference=replace(e.reference, **changes))


def result(**changes: Any) -> Change:
    """Change the aggregated result in the events."""

    def change(evidence: Evidence) -> Evidence:
        changed = [
            e | {"result": e["result"] | changes} if e["event"] == "aggregate" else e
            for e in evidence.events
        ]
        return replace(evidence, events=changed)

    return change


def without(kind: str) -> Change:
    """Remove all events of a kind."""
    return lambda e: replace(e, events=[event for event in e.events if event["event"] != kind])


def trial_shown_again(evidence: Evidence) -> Evidence:
    """Move the events of trial 2 to the time of trial 1."""
    shift = {
        trial: next(e["monotonic"] for e in evidence.events if e.get("trial") == trial)
        for trial in (1, 2)
    }
    changed = [
        e | {"monotonic": e["monotonic"] - shift[2] + shift[1]} if e.get("trial") == 2 else e
        for e in evidence.events
    ]
    return replace(evidence, events=changed)


def first_batch_before_the_end(evidence: Evidence) -> Evidence:
    """Move each member's first batch to its end, so that the window is empty."""
    first_batches: dict[Any, Any] = {}
    changed = []
    for event in evidence.events:
        member = (event.get("trial"), event.get("member"))
        if event["event"] == "first_batch":
            first_batches[member] = event
            continue
        if event["event"] == "end":
            times = {key: event[key] for key in ("monotonic", "wall")}
            changed.append(first_batches[member] | times)
        changed.append(event)
    return replace(evidence, events=changed)


def batch_norm_without_decay(evidence: Evidence) -> Evidence:
    """Put γ and β of batch norm into a group without weight decay (V2 §5.4)."""
    for member in evidence.members:
        [group] = member.effective["groups"]
        batch_norm = {**group, "weight_decay": 0.0, "elements": 448}
        batch_norm["kinds"] = {"batch norm bias": 9, "batch norm weight": 9}
        member.effective["groups"] = [{**group, "elements": group["elements"] - 448}, batch_norm]
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


def other_tail(digest: str) -> str:
    """Change the last digit of a digest."""
    return digest[:-1] + ("0" if digest[-1] != "0" else "1")


def one_incomplete(evidence: Evidence) -> Evidence:
    incomplete = replace(evidence.score.trials[0], trial=4, complete=False, seed=99)
    trials = (*evidence.score.trials, incomplete)
    return replace(evidence, score=replace(evidence.score, trials=trials))


def trials(**changes: Any) -> Change:
    """Change a field of every trial's evidence."""
    return lambda e: replace(e, trials=[replace(trial, **changes) for trial in e.trials])


def described(change: Callable[[NodeDescription], NodeDescription]) -> Change:
    """Change every node's description of itself."""

    def changed(evidence: Evidence) -> Evidence:
        return replace(
            evidence,
            trials=[
                replace(trial, nodes=[(member, change(node)) for member, node in trial.nodes])
                for trial in evidence.trials
            ],
        )

    return changed


def after_training(seconds: float) -> Change:
    """Move the state after training."""

    def change(node: NodeDescription) -> NodeDescription:
        assert node.after is not None
        return replace(node, after=replace(node.after, wall=node.after.wall + seconds))

    return described(change)


def on_accelerators(name: str, count: int, described_count: int) -> Change:
    """Run on accelerators of a name, of which the node describes a number."""

    def change(evidence: Evidence) -> Evidence:
        devices = tuple(
            Accelerator(index, name, f"GPU-{index}") for index in range(described_count)
        )
        evidence = described(lambda node: replace(node, accelerators=devices))(evidence)
        evidence = records(device="cuda:0", device_name=name)(evidence)
        return replace(evidence, plan=replace(evidence.plan, device="cuda", system_scale=count))

    return change


def faster(factor: float, *, kinds: frozenset[str] = frozenset()) -> Change:
    """Shorten the times of members from their first batches on: of some events, or of all."""

    def change(evidence: Evidence) -> Evidence:
        starts: dict[Any, Any] = {}
        changed = []
        for event in evidence.events:
            member = (event.get("trial"), event.get("member"))
            if event["event"] == "first_batch":
                starts[member] = event
            if member in starts and (not kinds or event["event"] in kinds):
                start = starts[member]
                event = event | {
                    clock: start[clock] + factor * (event[clock] - start[clock])
                    for clock in ("monotonic", "wall")
                }
            changed.append(event)
        return replace(evidence, events=changed)

    return change


def late_first_batch(share: float) -> Change:
    """Move each member's first batch towards the end of its first epoch."""

    def change(evidence: Evidence) -> Evidence:
        ends = {
            (e.get("trial"), e.get("member")): e
            for e in evidence.events
            if e["event"] == "epoch" and e["epoch"] == 1
        }
        changed = []
        for event in evidence.events:
            if event["event"] == "first_batch":
                end = ends[event["trial"], event["member"]]
                moved = {
                    clock: end[clock] - share * (end[clock] - event[clock])
                    for clock in ("monotonic", "wall")
                }
                event = event | moved
            changed.append(event)
        return replace(evidence, events=changed)

    return change


def clock_event(**fields: Any) -> Change:
    """Add a measurement of the clock's offset."""
    measured = {"offset_seconds": 0.0, "uncertainty_seconds": 1e-3, "reference": "host"}
    return added_event("clock", **(measured | fields))


def copied_losses(evidence: Evidence) -> Evidence:
    """Give member 0 of trial 2 the losses of member 0 of trial 1."""
    losses = {
        e["epoch"]: e["loss"]
        for e in evidence.events
        if e["event"] == "epoch" and (e["trial"], e["member"]) == (1, 0)
    }
    changed = [
        e | {"loss": losses[e["epoch"]]}
        if e["event"] == "epoch" and (e["trial"], e["member"]) == (2, 0)
        else e
        for e in evidence.events
    ]
    return replace(evidence, events=changed)


@dataclass(frozen=True)
class Violation:
    """Change that breaks a rule, and the rule's first finding on it."""

    change: Change
    run: str | None = None
    """Value of the run in the finding."""
    reference: str | None = None
    """Required value in the finding."""
    mentions: tuple[str, ...] = ()
    """Values that the message names, where the finding has no field for them."""
    also: frozenset[str] = frozenset()
    """Other rules that the change breaks too."""


SMOKE = load_workload("image_classification").problem_classes["smoke"]
STORE = str(SMOKE.store_sha256)
MODEL = shipped_model("image_classification", "smoke")
assert MODEL is not None
GRAPH = shorten(MODEL.graph_sha256)
OTHER_TORCH = {"ai500": "0.0", "source": "0" * 64, "torch": "2.9"}
OTHER_ARCHIVE = {"name": "train.tar", "md5": "0" * 32, "published_md5": "1" * 32}
GOSSIP = {"mode": "gossip", "precision": "fp32"}
TORUS = {"mode": "torus_2d", "precision": "fp32"}
VIOLATIONS: dict[str, Violation] = {
    "enough trials": Violation(
        lambda e: replace(e, score=replace(e.score, trials=e.score.trials[:1])), "1", "at least 3"
    ),
    "measured target": Violation(registered(provisional_target=True), "provisional", "measured"),
    "one wave": Violation(run_score(waves=4), "4", "1"),
    "whole ensemble": Violation(
        one_incomplete, mentions=("trial 4",), also=frozenset({"consistent qualities"})
    ),
    "unique seeds": Violation(
        same_seed_twice, mentions=("trials 1 and 2",), also=frozenset({"derived seeds"})
    ),
    "seed of the edition": Violation(
        plan(seed=7), "7", "1", mentions=("edition 2026-11",),
        also=frozenset({"derived seeds"}),
    ),
    "derived seeds": Violation(
        recorded("seeds", "seed", value=7), "7", str(derive(1, Stream.TRIAL, 1)),
        mentions=("seed 1 ",),
    ),
    "complete records": Violation(
        recorded("model", "graph_sha256", value=None), mentions=("graph's SHA-256",),
        also=frozenset({"operations of the graph"}),
    ),
    "worker of ai500": Violation(
        plan(framework=FrameworkChoice("script", ("sh", "train.sh"))),
        "sh train.sh",
        "a worker of ai500",
    ),
    "same software": Violation(
        lambda e: replace(e, trials=[*e.trials[1:], records(versions=OTHER_TORCH)(e).trials[0]]),
        "2.0 and 2.9", "one", mentions=("torch",),
    ),
    "same accelerators": Violation(
        lambda e: replace(e, trials=[*e.trials[1:], records(device_name="slow")(e).trials[0]]),
        "slow and x86_64", "one", mentions=("different accelerators",),
    ),
    "official convention": Violation(run_score(convention="v3"), "v3", "aiperf"),
    "every operator counted": Violation(
        run_score(uncounted={"aten::lstsq": 2, "mine::scan": 1}),
        "aten::lstsq ×2, mine::scan ×1", "none",
    ),
    "operations of the graph": Violation(
        events("operations", forward_per_sample=10**9), mentions=("trial 1", "member 0")
    ),
    "whole epochs": Violation(
        events("epoch", samples=64), "64", "4032", also=frozenset({"consistent records"})
    ),
    "window in order": Violation(
        events("end", monotonic=0.0), mentions=("'end'", "'quality'"),
        also=frozenset({"clocks agree", "distinct trials", "window as controlled"}),
    ),
    "registered class": Violation(
        defined(required_runs=100), "100", "3", mentions=("required runs",)
    ),
    "unknown model": Violation(
        lambda e: replace(e, model=None), GRAPH, also=frozenset({"operations of the graph"})
    ),
    "unknown data": Violation(registered(store_sha256=None), shorten(STORE)),
    "published files": Violation(
        recorded("data", "published", value=[OTHER_ARCHIVE]), "0" * 32, "1" * 32,
        mentions=("train.tar",),
    ),
    "minimum ensemble size": Violation(registered(ensemble_size=5), "4", "at least 5"),
    "scale as mapped": Violation(
        plan(system_scale=100_000), "100000", "4", mentions=("system scale",)
    ),
    "consistent qualities": Violation(score(ensemble_quality=3.0), "3", "0 to 1"),
    "consistent records": Violation(records(samples=1), "1", "44352", mentions=("samples",)),
    "hyperparameters as planned": Violation(
        plan_hyper(label_smoothing=0.1), "0", "0.1", mentions=("label smoothing",)
    ),
    "constant optimizer settings": Violation(
        events("first_batch", optimizer_sha256="1" * 64), mentions=("member 0 of trial 1",)
    ),
    "distinct trials": Violation(
        records(weights_sha256="0" * 64), mentions=("member 1 of trial 1", "member 0 of trial 1")
    ),
    "clocks agree": Violation(
        events("first_batch", wall=0.0), mentions=("trial 1, member 0",),
        also=frozenset({"window as described"}),
    ),
    "clocks compared": Violation(score(clock_uncertainty_seconds=None), mentions=("trial 1",)),
    "possible rate": Violation(
        score(flops=8.001e12), "8.001 TFLOPS", "at most 3.84 TFLOPS", mentions=("fp32", "trial 1")
    ),
    "under submitted ceilings": Violation(
        lambda e: replace(e, ceilings=Ceilings("CPU", "core", {"fp32": 1e9})),
        "311.1 GFLOPS", "at most 3 GFLOPS", mentions=("2 × CPU",)
    ),
    "least step time": Violation(
        faster(1e-5), None, "at least 1.26 ms", mentions=("member 0 of trial 1", "63 steps"),
        also=frozenset({"no copied members"}),
    ),
    "whole first epoch": Violation(late_first_batch(0.01), mentions=("member 0 of trial 1",)),
    "window as controlled": Violation(
        events("aggregate", monotonic=0.0, wall=0.0), mentions=("trial 1", "'first_batch'")
    ),
    "one boot of an attempt": Violation(
        events("end", boot="11111111-1111-1111-1111-111111111111"),
        mentions=("member 0 of trial 1", "2 boots"),
    ),
    "steady clocks": Violation(clock_event(offset_seconds=9.0), mentions=("trial 1", "host host")),
    "window as described": Violation(
        after_training(600.0), mentions=("trial 1", "member 0", "9 min 58 s")
    ),
    "window as metered": Violation(
        lambda e: trials(meter_spans=[MeterSpan(host_of(e.events[0]), 0, 1e9)])(e),
        mentions=("trial 1", "member 0"),
    ),
    "possible quality": Violation(
        score(target_quality=0.2), "4.5 times", "at most 4 times", mentions=("0.9", "0.2"),
        also=frozenset({"same target"}),
    ),
    "plausible figures": Violation(run_score(vflops=0.0), mentions=("VFLOPS is 0",)),
    "plausible power": Violation(
        score(watts=1e-6, power_coverage="accelerators"), "1e-06 W", "at least 1 W"
    ),
    "no copied members": Violation(
        copied_losses, mentions=("member 0 of trial 2", "losses of member 0 of trial 1", "11 of 11")
    ),
    "accelerators as described": Violation(
        described(lambda n: replace(n, processors=replace(n.processors, model="Slow CPU"))),
        "Synthetic CPU", "Slow CPU",
    ),
    "start skew": Violation(
        score(start_skew_seconds=0.5, seconds=1.0), mentions=("trial 1", "500 ms", "1.0 s")
    ),
    "idle time": Violation(score(idle_seconds=5.0, seconds=10.0), mentions=("5 of the 10 s",)),
    "shared accelerators": Violation(run_score(members_per_accelerator=2), mentions=("2",)),
    "target reached": Violation(score(ensemble_quality=0.8), "0.8000", "0.86"),
    "open learning rate": Violation(
        recorded("learning_rate", "policy", value="mine.warm"), mentions=("mine.warm",)
    ),
    "parallelism as planned": Violation(
        recorded("parallel", "data_degree", value=2), "2", "1", mentions=("data degree",)
    ),
    "skipped steps": Violation(
        recorded("numerics", "loss_scaling", value={"skipped_steps": 3}), "3"
    ),
    "intact checkpoints": Violation(
        added_event("checkpoint_damaged", file="checkpoint.pt", reason="its SHA-256 is 0"),
        "checkpoint.pt", mentions=("member 0 of trial 1", "its SHA-256 is 0"),
    ),
    "healthy nodes": Violation(
        signs(Sign(("n7",), "slow steps", "a step takes 2 s, 2.00 × the median of 4 nodes")),
        "n7", mentions=("trial 1: n7: a step takes",)
    ),
    "same data": Violation(
        recorded("data", "store_sha256", value=other_tail(STORE)),
        " and ".join(sorted([STORE, other_tail(STORE)])), STORE
    ),
    "same target": Violation(another_target, "0.5, n = 5 and 0.86, n = 5", "0.86, n = 5"),
    "same epochs": Violation(
        records(epochs=5), "5", "11", also=frozenset({"consistent records"})
    ),
    "same evaluations": Violation(
        recorded("evaluation_epochs", value=[11]), "11", "1–11",
        also=frozenset({"consistent records"}),
    ),
    "changed batch size": Violation(trained("batch_size", 7), "7", "64"),
    "changed learning rate": Violation(
        trained("base_learning_rate", 9.0), "9", "1.2", mentions=("base learning rate",)
    ),
    "fixed hyperparameters": Violation(trained("momentum", 0.8), "0.8", "0.9"),
    "weight decay on everything": Violation(
        batch_norm_without_decay, "0", "0.0005",
        mentions=("9 × batch norm bias", "9 × batch norm weight"),
    ),
    "equal members": Violation(
        recorded("hyperparameters", "reference_batch_size", value=128, member=1),
        "128 and 256", "one value", mentions=("reference batch size",),
        also=frozenset({"changed learning rate", "hyperparameters as planned"}),
    ),
    "same model": Violation(
        recorded("model", "graph_sha256", value=other_tail(MODEL.graph_sha256)),
        other_tail(MODEL.graph_sha256), MODEL.graph_sha256,
        also=frozenset({"operations of the graph"}),
    ),
    "own bootstraps": Violation(
        same_bootstrap_twice, mentions=("member 1 of trial 1", "member 0 of trial 1")
    ),
    "equivalent parallelism": Violation(
        recorded("parallel", "mode", value="pipeline"), "pipeline", "data"
    ),
    "known parallelism": Violation(
        recorded("parallel", "mode", value="hogwild"), "hogwild", "data"
    ),
    "synchronous training": Violation(
        recorded("parallel", "communication", value=GOSSIP | {"synchronous": False}),
        "no: 'gossip'", "yes", also=frozenset({"chosen communication", "open collective"}),
    ),
    "open code": Violation(
        recorded("own_code", "model", value={"code": "mine:net", "source": None}),
        mentions=("model mine:net",), also=frozenset({"same model"}),
    ),
    "open collective": Violation(
        recorded("parallel", "communication", value=GOSSIP | {"synchronous": True}),
        mentions=("gossip",), also=frozenset({"chosen communication"}),
    ),
    "same framework": Violation(recorded("framework", "name", value="paddle"), "paddle", "pytorch"),
    "chosen precision": Violation(computed_in("fp16"), "fp16", "fp32"),
    "allowed precision": Violation(computed_in("fp4"), "fp4", "fp32"),
    "chosen communication": Violation(
        recorded("parallel", "communication", value=TORUS), "torus_2d", "all_reduce"
    ),
}  # fmt: skip
"""Violations by the name of the rule."""
