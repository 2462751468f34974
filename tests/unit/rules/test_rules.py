"""Every rule has a passing and a violating example, and the level decides what it is."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import fields, replace

import pytest

from ai500.core import schema
from ai500.core.errors import InputError
from ai500.operations.graph import Op, Shapes, Trace
from ai500.operations.graph_file import graph_bytes, graph_digest, read_graph, recount
from ai500.pipeline import scoring
from ai500.records import Operations, ProblemClass
from ai500.records.findings import Finding, Judgement
from ai500.rules.comparison import compare
from ai500.rules.evidence import CountedGraph, Evidence, Fact, TrialEvidence
from ai500.rules.judgement import judge as judge_by
from ai500.rules.judgement import rules_of
from ai500.rules.layers import ASPECTS, LAYERS, LEVELS, Level
from ai500.rules.record_rules import UNCOMPARED_FIELDS
from ai500.rules.registry import COMMON_RULES, ENSEMBLE_RULES
from ai500.rules.rule import VERSIONS, Observation, Rule
from tests.support.rule_violations import (
    VIOLATIONS,
    Change,
    batch_norm_without_decay,
    computed_in,
    defined,
    events,
    first_batch_before_the_end,
    on_every_score,
    other_tail,
    plan,
    recorded,
    records,
    result,
    score,
    trained,
    trial_shown_again,
    without,
)
from tests.support.synthetic_run import official_shape, write_synthetic_run

RULES = {rule.name: rule for rule in ENSEMBLE_RULES}


@pytest.fixture(scope="session")
def clean_run(tmp_path_factory: pytest.TempPathFactory) -> Evidence:
    """Evidence of a run of the real class that breaks no rule; its quality is at the target."""
    run = write_synthetic_run(tmp_path_factory.mktemp("rules") / "run", official_shape())
    return on_every_score(scoring.run_evidence(run), ensemble_quality=0.9)


@pytest.fixture
def clean(clean_run: Evidence) -> Evidence:
    """A copy that a test may change."""
    return copy.deepcopy(clean_run)


def judge(evidence: Evidence, *, level: Level = "hardware") -> Judgement:
    return judge_by(evidence, rules=ENSEMBLE_RULES, level=level)


def rule_names(judgement: Judgement) -> set[str]:
    return {finding.rule for finding in judgement.findings}


def test_a_clean_run_has_no_findings(clean: Evidence) -> None:
    judgement = judge(clean)
    assert judgement.findings == ()
    assert not judgement.broken
    verdicts = {verdict.layer: verdict.verdict for verdict in judgement.layers}
    assert verdicts == dict.fromkeys((9, 8, 7, 6, 5, 4), "same") | dict.fromkeys(
        (3, 2, 1), "allowed"
    )


@pytest.mark.parametrize("name", RULES)
def test_each_rule_finds_its_violation_and_no_other_does(clean: Evidence, name: str) -> None:
    assert name in VIOLATIONS, f"rule {name!r} has no violation in tests/support"
    violation, rule = VIOLATIONS[name], RULES[name]
    judgement = judge(violation.change(clean))
    assert rule_names(judgement) == {name} | violation.also
    finding = next(finding for finding in judgement.findings if finding.rule == name)
    assert (finding.layer, finding.source) == (rule.layer, rule.source)
    assert finding.severity == rule.severity_at("hardware")
    assert finding.rule_text == rule.text
    assert (finding.run, finding.reference or None) == (violation.run, violation.reference)
    assert all(value in finding.message for value in violation.mentions), finding.message


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("name", [rule.name for rule in ENSEMBLE_RULES if rule.aspect])
def test_the_level_decides_the_severity(clean: Evidence, name: str, level: Level) -> None:
    rule = RULES[name]
    assert rule.aspect is not None
    fixed = ASPECTS[rule.aspect].at(level) == "fixed"
    judgement = judge(VIOLATIONS[name].change(clean), level=level)
    findings = [finding for finding in judgement.findings if finding.rule == name]
    assert {finding.severity for finding in findings} == {"violation" if fixed else "note"}
    [layer] = [layer for layer in judgement.layers if layer.layer == rule.layer]
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


def test_int4_is_allowed_and_disclosed(clean: Evidence) -> None:
    """V2 §5.1.7: quantization (INT8, INT4) is allowed."""
    judgement = judge(computed_in("int4")(clean))
    assert [(f.rule, f.severity, f.run) for f in judgement.findings] == [
        ("chosen precision", "note", "int4")
    ]


def test_any_collective_that_is_synchronous_is_allowed_and_disclosed(clean: Evidence) -> None:
    """V2 §5.1.6: new topologies are allowed; the source of one from outside is recorded."""
    averaged = {"mode": "gossip", "precision": "fp32", "synchronous": True}
    recorded("parallel", "communication", value=averaged)(clean)
    recorded("communication", "code", value="site.collectives:gossip")(clean)
    recorded("communication", "source", value="def gossip(): ...")(clean)
    judgement = judge(clean)
    assert not judgement.broken
    assert {(f.rule, f.run) for f in judgement.findings} == {
        ("chosen communication", "gossip"),
        ("chosen communication", "site.collectives:gossip"),
    }


def test_an_undeclared_collective_of_another_package_is_a_violation(clean: Evidence) -> None:
    recorded("parallel", "communication", value={"mode": "gossip", "precision": "fp32"})(clean)
    finding = next(f for f in judge(clean).violations if f.rule == "synchronous training")
    assert finding.run == "not known of 'gossip'"


@pytest.mark.parametrize(
    "mode", ["ring", "double_binary_tree", "butterfly", "parameter_server", "torus_2d"]
)
def test_every_collective_of_ai500_is_synchronous(clean: Evidence, mode: str) -> None:
    recorded("parallel", "communication", value={"mode": mode, "precision": "fp32"})(clean)
    judgement = judge(clean)
    assert [(f.rule, f.severity) for f in judgement.findings] == [("chosen communication", "note")]


def test_runs_that_differ_in_torchs_version_may_be_compared(clean: Evidence) -> None:
    other = copy.deepcopy(clean)
    recorded("framework", "version", value="2.11.0")(other)
    comparison = compare(clean, other, level="hardware", judgements=[judge(clean), judge(other)])
    assert comparison.comparable, comparison.reasons
    assert [(d.aspect, d.second, d.allowed) for d in comparison.differences] == [
        ("version", "2.11.0", True)
    ]
    jax = recorded("framework", "name", value="jax")(replace(copy.deepcopy(clean)))
    comparison = compare(clean, jax, level="hardware", judgements=[judge(clean), judge(jax)])
    assert not comparison.comparable


@pytest.mark.parametrize("framework", ["jax", "tensorflow", "mindspore"])
def test_another_framework_is_forbidden_at_hardware_level_and_named_at_system_level(
    clean: Evidence, framework: str
) -> None:
    other = recorded("framework", "name", value=framework)(clean)
    update = f"ai500.frameworks.{framework}_backend.sgd"
    other = recorded("optimizer_class", value=update)(other)
    severities: dict[Level, str] = {"hardware": "violation", "system": "note"}
    for level, severity in severities.items():
        (finding,) = judge(other, level=level).findings
        assert (finding.rule, finding.severity) == ("same framework", severity)
        assert (finding.run, finding.reference) == (framework, "pytorch")


@pytest.mark.parametrize("optimizer", ["lars", "lamb"])
def test_lars_and_lamb_count_as_learning_rate_policy(clean: Evidence, optimizer: str) -> None:
    """V2 §5.1.2: they may change, and are disclosed with their settings."""
    changed = trained("optimizer", optimizer)(clean)
    code = f"ai500.train.optimizers.{optimizer.upper()}"
    judgement = judge(recorded("optimizer_class", value=code)(changed))
    assert {(finding.rule, finding.severity) for finding in judgement.findings} == {
        ("changed learning rate", "note")
    }
    assert (judgement.findings[0].run, judgement.findings[0].reference) == (optimizer, "sgd")


@pytest.mark.parametrize("optimizer", ["adam", "adagrad", "unregistered"])
def test_any_other_optimizer_is_fixed(clean: Evidence, optimizer: str) -> None:
    judgement = judge(trained("optimizer", optimizer)(clean))
    assert judgement.broken
    assert rule_names(judgement) == {"fixed hyperparameters"}


def test_an_optimizer_that_only_has_the_name_is_found(clean: Evidence) -> None:
    """An optimizer is identified by its class, not by its name in the configuration."""
    judgement = judge(recorded("optimizer_class", value="mine.SGD")(clean))
    assert rule_names(judgement) == {"fixed hyperparameters"}
    [finding] = judgement.findings
    assert (finding.run, finding.reference) == ("mine.SGD", "torch.optim.sgd.SGD")


def test_a_frozen_layer_is_found_from_the_optimizer_groups(clean: Evidence) -> None:
    for member in clean.members:
        member.effective["groups"][0]["elements"] -= 448
    judgement = judge(clean)
    assert rule_names(judgement) == {"same model"}
    assert "parameters trained" in judgement.findings[0].message


def test_v2_section_5_4_is_allowed_at_the_free_level_only(clean: Evidence) -> None:
    changed = batch_norm_without_decay(clean)
    assert [judge(changed, level=level).broken for level in LEVELS] == [True, True, False]


def test_d15_where_lower_is_better_a_higher_quality_misses_the_target(clean: Evidence) -> None:
    lower = replace(clean, quality_direction="lower")
    above = judge(on_every_score(lower, ensemble_quality=0.9))
    below = judge(on_every_score(lower, ensemble_quality=0.8))
    assert rule_names(above) == {"target reached"}
    assert rule_names(below) == set()


def test_a_policy_of_ones_own_is_allowed_where_its_source_is_recorded(clean: Evidence) -> None:
    changed = recorded("learning_rate", "policy", value="mine.warm")(clean)
    judgement = judge(recorded("learning_rate", "source", value="def warm(step): …")(changed))
    assert not judgement.broken


def test_operations_that_the_graph_does_not_have_are_found(clean: Evidence) -> None:
    """Record and events agree with each other, but not with the graph."""
    inflated = replace(clean.members[0].operations, forward_per_sample=10**9)
    changed = records(operations=inflated)(clean)
    changed = events("operations", forward_per_sample=10**9)(changed)
    assert rule_names(judge(changed)) == {"operations of the graph"}


def test_a_record_of_an_older_version_is_not_passed(clean: Evidence) -> None:
    old = {"optimizer": "SGD", "groups": [{"weight_decay": 5e-4, "parameters": 29}]}
    judgement = judge(records(effective=old)(clean))
    assert rule_names(judgement) == {
        "complete records", "operations of the graph", "parallelism as planned"
    }  # fmt: skip
    assert judgement.broken


@pytest.mark.parametrize("value", ["text", 5, [], {}, None, [["x"]], {"data_degree": "two"}])
@pytest.mark.parametrize("key", ["groups", "parallel", "hyperparameters", "numerics", "data"])
def test_a_damaged_record_is_a_finding_never_a_crash(
    clean: Evidence, key: str, value: object
) -> None:
    assert judge(recorded(key, value=value)(clean)).broken


@pytest.mark.parametrize(
    ("change", "rule", "values"),
    [
        (first_batch_before_the_end, "window in order", ("'epoch'", "'end'")),
        (without("end"), "window in order", ("'first_batch'", "'quality'")),
        (without("first_batch"), "window in order", ("'epoch'",)),
        (trial_shown_again, "distinct trials", ("trials 1 and 2",)),
        (events("epoch", steps=10**6), "consistent records", ("steps 693,",)),
        (events("quality", quality=0.9), "consistent qualities", ("0.9 by",)),
        (events("quality", quality=7.0), "consistent qualities", ("member 0", "is 7,")),
        (records(quality=0.9), "consistent qualities", ("0.9 by",)),
        (result(member_qualities=[0.9] * 4), "consistent qualities", ("is 0.9 ",)),
        (score(members_mean_quality=0.9), "consistent qualities", ("mean", "is 0.9 ")),
        (plan(waves=2), "scale as mapped", ("waves 2", "has 1")),
        (plan(members_per_accelerator=2), "scale as mapped", ("members per accelerator 2",)),
        (records(world_size=8), "scale as mapped", ("accelerators of a member: 8",)),
        (records(versions={"ai500": "0.0"}), "complete records", ("source's SHA-256",)),
        (defined(penalty_exponent=1), "same target", ("0.86, n = 1",)),
        (defined(global_batch_size=9), "registered class", ("global batch size 9",)),
        (events("epoch", optimizer_sha256=None), "constant optimizer settings", ("recorded",)),
    ],
)
def test_attempts_to_gain_a_better_rank(
    clean: Evidence, change: Change, rule: str, values: tuple[str, ...]
) -> None:
    """Each of these once gave a better rank in the list."""
    messages = [
        finding.message
        for finding in judge(change(clean)).findings
        if finding.rule == rule and finding.severity == "violation"
    ]
    assert any(all(value in message for value in values) for message in messages), messages


@pytest.mark.parametrize(("drawn", "broken"), [(37, False), (-37, False), (400, True)])
def test_v3_section_3_3_a_poisson_bootstrap_varies_in_size(
    clean: Evidence, drawn: int, broken: bool
) -> None:
    """An epoch has as many images as the member drew; six deviations off breaks a rule."""
    changed = plan(sampler="poisson")(clean)
    batch, samples = changed.plan.global_batch_size, changed.reference.train_samples
    trials = [
        replace(trial, bootstraps=[replace(b, drawn=samples + drawn) for b in trial.bootstraps])
        for trial in changed.trials
    ]
    images = (samples + drawn) // batch * batch
    changed = events("epoch", samples=images, steps=images // batch)(
        replace(changed, trials=trials)
    )
    epochs = changed.plan.hyperparameters.epochs
    changed = records(samples=images * epochs, steps=images // batch * epochs)(changed)
    assert rule_names(judge(changed)) == ({"own bootstraps"} if broken else set())


def test_a_word_for_a_number_of_microbatches_is_no_crash(clean: Evidence) -> None:
    assert not judge(recorded("parallel", "microbatches", value="a")(clean)).broken


def test_facts_that_cannot_be_read_leave_every_rule_that_compares_them_unchecked(
    clean: Evidence,
) -> None:
    judgement = judge(replace(clean, system=5))  # type: ignore[arg-type]
    unchecked = {f.rule for f in judgement.findings if f.severity == "unchecked"}
    assert {"complete records", "same data", "chosen precision"} <= unchecked
    assert judgement.broken
    assert all(layer.facts == () for layer in judgement.layers)


def test_every_rule_has_a_name_a_layer_a_source_and_a_text() -> None:
    assert set(VIOLATIONS) == set(RULES)
    assert len(RULES) == len(ENSEMBLE_RULES)
    assert set(COMMON_RULES) == {rule for rule in ENSEMBLE_RULES if rule.program != "ensemble"}
    for rule in ENSEMBLE_RULES:
        assert rule.layer is None or rule.layer in LAYERS
        assert rule.source
        assert rule.text.endswith(".")
        assert rule.since in VERSIONS


def test_every_aspect_has_a_rule_and_every_layer_a_fact(clean: Evidence) -> None:
    stated_only = {"framework's version", "accelerators", "operating system", "hardware"}
    of_a_search = {"a search's defaults"}
    assert {rule.aspect for rule in ENSEMBLE_RULES if rule.aspect} == (
        set(ASPECTS) - stated_only - of_a_search
    )
    assert {fact.layer for fact in clean.facts} == set(LAYERS)


def test_fields_that_no_rule_compares_directly_are_fields_of_a_class() -> None:
    assert {field.name for field in fields(ProblemClass)} >= UNCOMPARED_FIELDS


def test_facts_are_read_once_for_a_judgement(clean: Evidence) -> None:
    calls = []

    def read(evidence: Evidence) -> tuple[Fact, ...]:
        calls.append(evidence)
        return clean.facts

    assert not judge(replace(clean, read_facts=read)).broken
    assert len(calls) == 1


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
        rule_text=RULES["fixed hyperparameters"].text,
    )


def no_observations(evidence: Evidence) -> Iterator[Observation]:
    yield from ()


def test_a_rule_set_has_the_rules_of_its_version() -> None:
    versions = ("1", "2", "3")
    rules = [
        Rule(name, "Text.", "V2", no_observations, since=since, until=until)
        for name, since, until in (("old", "1", "2"), ("always", "1", None), ("new", "3", None))
    ]
    names = {
        version: [rule.name for rule in rules_of(version, rules, versions=versions)]
        for version in versions
    }
    assert names == {"1": ["old", "always"], "2": ["always"], "3": ["always", "new"]}


def test_an_unknown_rule_set_is_an_error(clean: Evidence) -> None:
    with pytest.raises(InputError) as caught:
        judge_by(clean, rules=ENSEMBLE_RULES, version="1999")
    assert caught.value.value == "1999"
    assert VERSIONS[-1] in str(caught.value)


def test_one_trial_of_evidence_needs_nothing_but_its_members() -> None:
    assert TrialEvidence(1, members=[]).placements == ()


def with_graph(evidence: Evidence, trace: Trace, counts: dict[str, Operations]) -> Evidence:
    """Give every member a counted graph and the counts that it records."""
    data = graph_bytes(trace)
    graph = CountedGraph(graph_digest(data), recount(read_graph(data)))
    others = tuple(count for name, count in counts.items() if name != "aiperf")
    changed = records(
        operations=counts["aiperf"], other_conventions=others, counted_graph_sha256=graph.sha256
    )(events("operations", **schema.encode(counts["aiperf"]))(evidence))
    graphs = {member.member: graph for member in evidence.trials[0].members}
    return replace(changed, trials=[replace(trial, graphs=graphs) for trial in changed.trials])


DENSE = Trace(
    (Op("dense", Shapes(((4, 8), (8, 2)), ((4, 2),)), {"gradients": 2, "updated": 16}),), 16, 4
)


def graph_findings(evidence: Evidence) -> list[Finding]:
    return [
        f for f in judge(evidence, level="free").findings if f.rule == "operations of the graph"
    ]


def test_a_graph_of_ones_own_is_counted_again_in_every_convention(clean: Evidence) -> None:
    """Free level: the shipped counts do not apply, the submitted graph does."""
    counts = recount(DENSE)
    free = recorded("model", "graph_sha256", value="e" * 64)(clean)
    assert graph_findings(with_graph(free, DENSE, counts)) == []
    for name in counts:
        forged = replace(counts[name], forward_per_sample=counts[name].forward_per_sample + 1)
        reported = graph_findings(with_graph(free, DENSE, counts | {name: forged}))
        assert reported
        assert {f.severity for f in reported} == {"violation"}
        assert all(f"counted by {name}" in f.message for f in reported)


def test_below_free_level_the_class_graph_is_required(clean: Evidence) -> None:
    """A smaller graph with its own, consistent counts under the class's hash."""
    reported = graph_findings(with_graph(clean, DENSE, recount(DENSE)))
    assert reported
    assert "the class's graph has" in reported[0].message


def test_another_or_no_graph_than_the_recorded_one(clean: Evidence) -> None:
    free = recorded("model", "graph_sha256", value="e" * 64)(clean)
    counted = with_graph(free, DENSE, recount(DENSE))
    tail = other_tail(graph_digest(graph_bytes(DENSE)))
    assert "SHA-256" in graph_findings(records(counted_graph_sha256=tail)(counted))[0].message
    missing = replace(counted, trials=[replace(trial, graphs={}) for trial in counted.trials])
    assert {f.severity for f in graph_findings(missing)} == {"violation"}
    unrecorded = graph_findings(free)
    assert {f.severity for f in unrecorded} == {"unchecked"}
    assert judge(free, level="free").broken


@pytest.mark.parametrize("share", [9e-5, 1e-9])
def test_counts_a_little_above_the_class_are_refused(clean: Evidence, share: float) -> None:
    counted = clean.members[0].operations
    assert counted is not None
    forward = counted.forward_per_sample + max(1, round(share * counted.forward_per_sample))
    forged = records(operations=replace(counted, forward_per_sample=forward))(
        events("operations", forward_per_sample=forward)(clean)
    )
    assert {f.rule for f in judge(forged).violations} == {"operations of the graph"}


def fewer_operations(share: float) -> Change:
    """Count so much less per sample than the class's graph, as for a larger batch."""

    def change(evidence: Evidence) -> Evidence:
        counted = evidence.members[0].operations
        assert counted is not None
        forward = counted.forward_per_sample - round(share * counted.forward_per_sample)
        changed = replace(counted, forward_per_sample=forward)
        changed_events = events("operations", forward_per_sample=forward)
        return records(operations=changed)(changed_events(evidence))

    return change


def later_end(seconds: float) -> Change:
    """Let the wall clock of the first member's end run ahead; it trained for 24 s."""

    def change(evidence: Evidence) -> Evidence:
        end = next(event for event in evidence.events if event["event"] == "end")
        changed = [
            event | {"wall": event["wall"] + seconds} if event is end else event
            for event in evidence.events
        ]
        return replace(evidence, events=changed)

    return change


def another_mean(share: float) -> Change:
    """Score a members' mean that is off by a share."""

    def change(evidence: Evidence) -> Evidence:
        trials = [
            replace(trial, members_mean_quality=trial.members_mean_quality * (1 + share))
            for trial in evidence.score.trials
        ]
        return replace(evidence, score=replace(evidence.score, trials=tuple(trials)))

    return change


BOUNDS: list[tuple[str, Callable[[float], Change], float, float]] = [
    # rule, change by a number, number just inside, number just outside
    ("start skew", lambda x: score(start_skew_seconds=x, seconds=100.0), 1.99, 2.01),
    ("idle time", lambda x: score(idle_seconds=x, seconds=100.0), 9.99, 10.01),
    ("clocks agree", later_end, 5.2, 5.3),
    ("clocks agree", later_end, -5.2, -5.3),
    ("operations of the graph", fewer_operations, 0.99e-4, 1.01e-4),
    ("consistent qualities", another_mean, 0.9e-9, 1.1e-9),
    ("consistent qualities", another_mean, -0.9e-9, -1.1e-9),
]  # fmt: skip


@pytest.mark.parametrize(("rule", "change", "inside", "outside"), BOUNDS)
def test_both_sides_of_a_bound(
    rule: str, change: Callable[[float], Change], inside: float, outside: float, clean: Evidence
) -> None:
    def is_found(number: float) -> bool:
        changed = change(number)(copy.deepcopy(clean))
        return bool(judge_by(changed, rules=(RULES[rule],)).findings)

    assert (is_found(inside), is_found(outside)) == (False, True)


def test_a_target_a_little_below_the_class_is_refused(clean: Evidence) -> None:
    forged = defined(target_quality=clean.reference.target_quality - 4e-7)(clean)
    assert {f.rule for f in judge(forged).violations} == {"same target"}


def test_a_difference_of_all_members_from_the_plan_is_one_finding(clean: Evidence) -> None:
    for change in (
        recorded("numerics", "precision", value="mixed-bf16"),
        recorded("hyperparameters", "epochs", value=7),
    ):
        changed = change(copy.deepcopy(clean))
        assert len(changed.members) > 1
        found = judge_by(changed, rules=(RULES["hyperparameters as planned"],)).findings
        assert len(found) == 1


def test_members_without_weights_digests_are_not_passed(clean: Evidence) -> None:
    assert "complete records" in {
        f.rule for f in judge(records(weights_sha256=None)(clean)).violations
    }
