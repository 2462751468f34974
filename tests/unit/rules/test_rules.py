"""Every rule has a passing and a violating example, and the level decides what it is."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import replace

import pytest

from ai500.automl import rules as checks_search
from ai500.core.errors import InputError
from ai500.pipeline.scoring import computed
from ai500.records.findings import Finding, Judgement
from ai500.rules import checks, checks_procedure, checks_records
from ai500.rules.evidence import Evidence, TrialEvidence, evidence_of
from ai500.rules.facts import facts
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
from tests.support.rule_violations import (
    VIOLATIONS,
    Change,
    batch_norm_without_decay,
    defined,
    events,
    first_batch_before_the_end,
    on_every_score,
    plan,
    records,
    result,
    score,
    told,
    trained,
    trial_shown_again,
    without,
)
from tests.support.synthetic_run import official_shape, write_synthetic_run

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
