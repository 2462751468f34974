"""Every rule has a passing and a violating example, and the level decides what it is."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from ai500.errors import InputError
from ai500.rules import checks, checks_procedure, checks_records, checks_search
from ai500.rules.evidence import Evidence, TrialEvidence, evidence_of
from ai500.rules.facts import facts
from ai500.rules.judgement import Finding, Judgement
from ai500.rules.layers import (
    ASPECTS,
    LAYERS,
    LEVELS,
    RULES,
    VERSIONS,
    Found,
    Level,
    Rule,
    judge,
    rule_set,
)
from ai500.scoring import computed
from tests.unit.synthetic_run import official_shape, write_synthetic_run

Change = Callable[[Evidence], Evidence]
OURS = [rule for rule in RULES if rule.of != "search"]
"""Those of a search have their examples in test_search_rules.py."""


@pytest.fixture(scope="session")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Evidence:
    """A run of the real class that no rule objects to; its quality is raised to the target."""
    run = write_synthetic_run(tmp_path_factory.mktemp("rules") / "run", official_shape())
    plan, told, score = computed(run)
    found = evidence_of(run, plan=plan, score=score, events=told)
    return on_every_score(found, ensemble_quality=0.9)


@pytest.fixture
def clean(recorded: Evidence) -> Evidence:
    """A copy to change at will."""
    return copy.deepcopy(recorded)


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
    "start skew": V(score(start_skew_seconds=0.5, seconds=1.0), "started over 0.5"),
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


def found(judgement: Judgement) -> set[str]:
    return {finding.rule for finding in judgement.findings}


def test_a_clean_run_has_no_findings(clean: Evidence) -> None:
    judgement = judge(clean)
    assert judgement.findings == ()
    assert not judgement.broken
    verdicts = {one.layer: one.verdict for one in judgement.layers}
    assert verdicts == dict.fromkeys((9, 8, 7, 6, 5, 4), "same") | dict.fromkeys(
        (3, 2, 1), "allowed"
    )


@pytest.mark.parametrize("name", [rule.name for rule in OURS])
def test_each_rule_finds_its_violation_and_no_other_does(clean: Evidence, name: str) -> None:
    assert name in VIOLATIONS, f"rule {name!r} has no violating example in this file"
    violation = VIOLATIONS[name]
    judgement = judge(violation.change(clean))
    assert found(judgement) == {name} | violation.also
    mine = [finding for finding in judgement.findings if finding.rule == name]
    assert violation.says in mine[0].message


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("name", [rule.name for rule in OURS if rule.aspect])
def test_the_table_decides_what_a_change_is_at_each_level(
    clean: Evidence, name: str, level: Level
) -> None:
    [rule] = [one for one in RULES if one.name == name]
    assert rule.aspect is not None
    fixed = ASPECTS[rule.aspect].at(level) == "fixed"
    judgement = judge(VIOLATIONS[name].change(clean), level=level)
    mine = [finding for finding in judgement.findings if finding.rule == name]
    assert {finding.severity for finding in mine} == {"violation" if fixed else "note"}
    assert f"{'fixed' if fixed else 'may change'} at {level} level" in mine[0].message
    [layer] = [one for one in judgement.layers if one.layer == rule.layer]
    assert layer.verdict == ("forbidden" if fixed else "allowed")


def test_spec_section_5_table() -> None:
    """The rows of SPEC §5, as it stands there."""
    fixed = {level: {n for n, a in ASPECTS.items() if a.at(level) == "fixed"} for level in LEVELS}
    assert fixed["free"] == {"data set", "target quality", "epochs", "evaluations"}
    assert fixed["system"] == fixed["free"] | {
        "other hyper-parameters", "model", "bagging", "other parallelism", "synchronous training",
        "other precision",
    }  # fmt: skip
    assert fixed["hardware"] == fixed["system"] | {"AI framework"}
    assert {aspect.layer for aspect in ASPECTS.values()} == set(LAYERS)


@pytest.mark.parametrize("optimizer", ["lars", "lamb"])
def test_lars_and_lamb_count_as_learning_rate_policy(clean: Evidence, optimizer: str) -> None:
    """V2 §5.1.2: they may change, and are disclosed with their settings."""
    changed = trained("optimizer", optimizer)(clean)
    code = f"ai500.train.optimizers.{optimizer.upper()}"
    judgement = judge(told("optimizer_class", value=code)(changed))
    assert {(one.rule, one.severity) for one in judgement.findings} == {
        ("changed learning rate", "note")
    }
    assert f"optimizer: {optimizer}, the reference has sgd" in judgement.findings[0].message


@pytest.mark.parametrize("optimizer", ["adam", "adagrad", "somebody's"])
def test_any_other_optimizer_is_fixed(clean: Evidence, optimizer: str) -> None:
    judgement = judge(trained("optimizer", optimizer)(clean))
    assert judgement.broken
    assert found(judgement) == {"fixed hyperparameters"}


def test_an_optimizer_that_only_has_the_name_is_found(clean: Evidence) -> None:
    """What ran is known by its code, not by what the configuration calls it."""
    judgement = judge(told("optimizer_class", value="mine.SGD")(clean))
    assert found(judgement) == {"fixed hyperparameters"}
    assert "mine.SGD, the reference has torch.optim.sgd.SGD" in judgement.findings[0].message


def test_a_frozen_layer_is_found_from_the_optimizer_groups(clean: Evidence) -> None:
    for member in clean.members:
        member.effective["groups"][0]["elements"] -= 448
    judgement = judge(clean)
    assert found(judgement) == {"same model"}
    assert "parameters trained" in judgement.findings[0].message


def test_v2_section_5_4_is_allowed_at_the_free_level_only(clean: Evidence) -> None:
    changed = batch_norm_without_decay(clean)
    assert [judge(changed, level=level).broken for level in LEVELS] == [True, True, False]


def test_d15_where_lower_is_better_a_higher_quality_misses_the_target(clean: Evidence) -> None:
    lower = replace(clean, lower_is_better=True)
    above = judge(on_every_score(lower, ensemble_quality=0.9))
    below = judge(on_every_score(lower, ensemble_quality=0.8))
    assert found(above) == {"target reached"}
    assert found(below) == set()


def test_a_policy_of_ones_own_is_allowed_where_its_source_is_recorded(clean: Evidence) -> None:
    changed = told("learning_rate", "policy", value="mine.warm")(clean)
    judgement = judge(told("learning_rate", "source", value="def warm(step): …")(changed))
    assert not judgement.broken


def test_operations_that_the_graph_does_not_have_are_found(clean: Evidence) -> None:
    """Record and events agree with each other, but not with the graph."""
    inflated = replace(clean.members[0].operations, forward_per_image=10**9)
    changed = records(operations=inflated)(clean)
    changed = events("operations", forward_per_image=10**9)(changed)
    assert found(judge(changed)) == {"operations of the graph"}


def test_a_record_of_an_older_version_is_not_passed(clean: Evidence) -> None:
    old = {"optimizer": "SGD", "groups": [{"weight_decay": 5e-4, "parameters": 29}]}
    judgement = judge(records(effective=old)(clean))
    assert found(judgement) == {"what ran is recorded"}
    assert judgement.broken


@pytest.mark.parametrize("value", ["text", 5, [], {}, None, [["x"]], {"data_degree": "two"}])
@pytest.mark.parametrize("key", ["groups", "parallel", "hyperparameters", "numerics", "data"])
def test_a_damaged_record_is_a_finding_never_a_crash(
    clean: Evidence, key: str, value: object
) -> None:
    assert judge(told(key, value=value)(clean)).broken


@pytest.mark.parametrize(
    ("change", "rule", "says"),
    [
        (first_batch_before_the_end, "window in order", "begins with 'epoch' and ends with 'end'"),
        (without("end"), "window in order", "begins with 'first_batch' and ends with 'quality'"),
        (without("first_batch"), "window in order", "begins with 'epoch'"),
        (trial_shown_again, "distinct trials", "trials 1 and 2 ran at the same time"),
        (events("epoch", steps=10**6), "records as told", "steps are 693 by its record"),
        (events("quality", quality=0.9), "qualities as told", "0.9 by its own evaluation"),
        (events("quality", quality=7.0), "qualities as told", "member 0's top-1 accuracy is 7"),
        (records(quality=0.9), "qualities as told", "0.9 by its own evaluation"),
        (result(member_qualities=[0.9] * 4), "qualities as told", "is 0.9 in the result"),
        (score(members_mean_quality=0.9), "qualities as told", "members' mean top-1 accuracy"),
        (plan(waves=2), "scale as mapped", "waves 2 is planned, the members are mapped to 1"),
        (plan(members_per_accelerator=2), "scale as mapped", "members per accelerator 2"),
        (records(world_size=8), "scale as mapped", "members ran on 8 accelerators"),
        (records(versions={"ai500": "0.0"}), "what ran is recorded", "source's SHA-256"),
        (defined(penalty_exponent=1), "same target", "0.86, n = 1"),
        (defined(global_batch_size=9), "class as registered", "global batch size 9"),
        (events("epoch", optimizer_sha256=None), "steady optimizer", "are not recorded"),
    ],
)
def test_what_a_submitter_might_try(clean: Evidence, change: Change, rule: str, says: str) -> None:
    """Every one of these once gave a better place in the list."""
    findings = judge(change(clean)).findings
    mine = [one for one in findings if one.rule == rule and one.severity == "violation"]
    assert any(says in one.message for one in mine)


@pytest.mark.parametrize(("drawn", "broken"), [(37, False), (-37, False), (400, True)])
def test_v3_section_3_3_a_poisson_bootstrap_varies_in_size(
    clean: Evidence, drawn: int, broken: bool
) -> None:
    """An epoch is then of what the member drew; six deviations off, it was not drawn."""
    changed = plan(sampler="poisson")(clean)
    batch, samples = changed.plan.global_batch_size, changed.reference.train_samples
    trials = [
        replace(one, bootstraps=[replace(b, drawn=samples + drawn) for b in one.bootstraps])
        for one in changed.trials
    ]
    images = (samples + drawn) // batch * batch
    changed = events("epoch", images=images, steps=images // batch)(replace(changed, trials=trials))
    epochs = changed.plan.hyperparameters.epochs
    changed = records(images=images * epochs, steps=images // batch * epochs)(changed)
    assert found(judge(changed)) == ({"own bootstraps"} if broken else set())


def test_a_word_for_a_number_of_microbatches_is_no_crash(clean: Evidence) -> None:
    assert not judge(told("parallel", "microbatches", value="a")(clean)).broken


def test_facts_that_cannot_be_read_are_findings(clean: Evidence) -> None:
    """Also where no rule asks for them: `check` shows layers of any folder."""
    judgement = judge(replace(clean, system=5))  # type: ignore[arg-type]
    assert judgement.broken
    assert any("can't be judged" in one.message for one in judgement.findings)


def test_rules_say_who_they_are() -> None:
    assert set(VIOLATIONS) == {rule.name for rule in OURS}
    assert len({rule.name for rule in RULES}) == len(RULES)
    for rule in RULES:
        assert rule.layer is None or rule.layer in LAYERS
        assert rule.source
        assert rule.text.endswith(".")
        assert rule.since in VERSIONS
        assert rule.check.__module__ in {
            one.__name__ for one in (checks, checks_procedure, checks_records, checks_search)
        }


def test_every_fact_has_a_row_in_the_table_and_every_row_a_fact_or_rule(clean: Evidence) -> None:
    known = facts(clean)
    assert all(ASPECTS[fact.aspect].layer == fact.layer for fact in known)
    ruled = {rule.aspect for rule in RULES}
    compared = {name for name in ASPECTS if name not in ("accelerators", "operating system",
                                                          "hardware")}  # fmt: skip
    assert compared <= ruled
    assert {fact.layer for fact in known} == set(LAYERS)


def test_findings_show_both_values_and_what_to_do(clean: Evidence) -> None:
    [finding] = judge(trained("momentum", 0.8)(clean)).findings
    assert finding == Finding(
        rule="fixed hyperparameters",
        layer=8,
        source="V2 §5.1.2, §5.4",
        severity="violation",
        message="momentum: 0.8, the reference has 0.9; fixed at hardware level. "
        "Leave train.momentum out.",
        reference="0.9",
        run="0.8",
        advice="Leave train.momentum out.",
    )


def never(evidence: Evidence) -> Iterator[Found]:
    """Nothing to say."""
    yield from ()


def test_a_rule_set_has_the_rules_of_its_version() -> None:
    def made(name: str, since: str, until: str | None) -> Rule:
        return Rule(name, None, None, "V2", "note", "Text.", never, since, until)

    rules = [made("old", "1", "2"), made("always", "1", None), made("new", "3", None)]
    sets = {
        version: [
            one.name for one in rule_set(version, versions=("1", "2", "3"), rules=rules).rules
        ]
        for version in ("1", "2", "3")
    }
    assert sets == {"1": ["old", "always"], "2": ["always"], "3": ["always", "new"]}
    assert rule_set(versions=("1", "2", "3"), rules=rules).version == "3"


def test_an_unknown_rule_set_is_named_with_the_known_ones(clean: Evidence) -> None:
    with pytest.raises(InputError, match=r"no rule set '1999'; known: 2026\.1"):
        judge(clean, rules="1999")


def test_one_trial_of_evidence_needs_nothing_but_its_members() -> None:
    assert TrialEvidence(1, members=[]).placements == ()
