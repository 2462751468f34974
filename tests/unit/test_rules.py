"""Every rule has a passing and a violating example."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import replace

import pytest

from ai500 import plugins
from ai500.config import load
from ai500.planning import make_plan
from ai500.records import Operations, Parallelism, Placement, Score, TrainRecord
from ai500.rules import checks
from ai500.rules.layers import LAYERS, RULES, Evidence, judge
from tests.unit.test_trials import MACHINE

REFERENCE = plugins.workload("image_classification").problem_classes["smoke"]
OPERATIONS = Operations("aiperf", 1, 2, 3, 4)


def clean() -> Evidence:
    """A run that no rule objects to."""
    overrides = {"ensemble.size": 2, "parallel.degree": 1, "system.accelerators_per_node": 2}
    plan = make_plan(load(overrides=overrides), MACHINE)
    trial = Score(
        workload=plan.workload, problem_class="smoke", convention="aiperf", complete=True, trial=1,
        seed=1, flops=1.0, vflops=1.0, penalty_coefficient=1.0, target_quality=0.8,
        quality_name="top-1", ensemble_quality=0.8, members_mean_quality=0.8,
        out_of_bag_quality=0.8, seconds=1.0, time_to_quality_seconds=1.0,
        time_to_target_seconds=None, operations=1.0, validation_operations=1.0, apc=1.0,
        members_flops_sum=1.0, start_skew_seconds=0.0, idle_seconds=0.0, ensemble_size=2,
        parallel_degree=1, system_scale=2, members_per_accelerator=1, waves=1, clock="monotonic",
        clock_offset_seconds=None, clock_uncertainty_seconds=0.0,
    )  # fmt: skip
    group = {"lr": 0.1, "weight_decay": REFERENCE.reference.weight_decay, "parameters": 9}
    member = TrainRecord(
        member=0, parameters=4, images=1, steps=1, epochs=REFERENCE.reference.epochs, world_size=1,
        device="cpu", device_name="cpu", quality=0.8, weights_sha256="", operations=OPERATIONS,
        effective={"groups": [group]}, versions={},
    )  # fmt: skip
    assert REFERENCE.store_sha256 is not None
    placement = Placement("here", "/store", REFERENCE.store_sha256, None, 0, 0, 0.0)
    return Evidence(
        reference=REFERENCE,
        plan=plan,
        score=replace(trial, trials=(trial,) * REFERENCE.least_runs),
        placements=[placement],
        members=[member],
    )


def with_hyper(evidence: Evidence, **changes: object) -> Evidence:
    hyper = replace(evidence.plan.hyperparameters, **changes)  # type: ignore[arg-type]
    return replace(evidence, plan=replace(evidence.plan, hyperparameters=hyper))


def with_score(evidence: Evidence, **changes: object) -> Evidence:
    return replace(evidence, score=replace(evidence.score, **changes))  # type: ignore[arg-type]


def with_group(evidence: Evidence, **changes: object) -> Evidence:
    """V2 §5.4's trick: another group of parameters, of batch norm, without weight decay."""
    member = evidence.members[0]
    groups = [*member.effective["groups"], {**member.effective["groups"][0], **changes}]
    return replace(evidence, members=[replace(member, effective={"groups": groups})])


def with_numerics(evidence: Evidence, **told: object) -> Evidence:
    """Members whose numerics tell of themselves."""
    member = evidence.members[0]
    effective = {**member.effective, "numerics": told}
    return replace(evidence, members=[replace(member, effective=effective)])


def with_engine(evidence: Evidence, *, planned: bool = True, **told: object) -> Evidence:
    """Members whose engine tells of itself, as planned unless said otherwise."""
    ran = {"mode": "data", "sharded": False, "batch_norm": "replica"}
    ran |= {"data_degree": 1, "pipeline_degree": 1, "tensor_degree": 1, **told}
    member = evidence.members[0]
    effective = {**member.effective, "parallel": ran}
    changed = replace(evidence, members=[replace(member, effective=effective)])
    if not planned:
        return changed
    names = [field.name for field in dataclasses.fields(Parallelism)]
    parallel = Parallelism(**{key: value for key, value in ran.items() if key in names})  # type: ignore[arg-type]
    return replace(changed, plan=replace(evidence.plan, parallel=parallel))


VIOLATIONS: dict[str, tuple[Callable[[Evidence], Evidence], str]] = {
    "enough trials": (
        lambda e: with_score(e, trials=e.score.trials[:1]),
        "1 of at least 3 trials",
    ),
    "one wave": (lambda e: with_score(e, waves=4), "4 waves"),
    "whole ensemble": (
        lambda e: with_score(
            e, trials=(*e.score.trials, replace(e.score.trials[0], complete=False))
        ),
        "trial 1 is incomplete",
    ),
    "clocks compared": (
        lambda e: with_score(
            e, trials=(replace(e.score.trials[0], clock_uncertainty_seconds=None),) * 3
        ),
        "was not measured",
    ),
    "start skew": (
        lambda e: with_score(e, trials=(replace(e.score.trials[0], start_skew_seconds=0.5),) * 3),
        "started over 0.5",
    ),
    "idle time": (
        lambda e: with_score(e, trials=(replace(e.score.trials[0], idle_seconds=0.5),) * 3),
        "no member trained",
    ),
    "shared accelerators": (lambda e: with_score(e, members_per_accelerator=2), "2 members"),
    "same data": (
        lambda e: replace(e, placements=[replace(e.placements[0], store_sha256="f" * 64)]),
        "ffffffffffffffff…",
    ),
    "same epochs": (
        lambda e: replace(e, members=[replace(e.members[0], epochs=5)]),
        "trained 5 epochs",
    ),
    "fixed hyperparameters": (lambda e: with_hyper(e, momentum=0.8), "train.momentum = 0.8"),
    "weight decay on everything": (
        lambda e: with_group(e, weight_decay=0.0, parameters=20),
        "20 parameters with weight decay 0.0",
    ),
    "changed batch or learning rate": (
        lambda e: with_hyper(e, batch_size=7),
        "train.batch_size = 7",
    ),
    "equivalent parallelism": (
        lambda e: with_engine(e, mode="asynchronous"),
        "'asynchronous'",
    ),
    "parallelism as planned": (
        lambda e: with_engine(e, planned=False, data_degree=2),
        "ran with data degree 2, its plan says 1",
    ),
    "model parallelism": (
        lambda e: with_engine(e, mode="pipeline", pipeline_degree=4, microbatches=4),
        "data 1 × pipeline 4 × tensor 1: equivalent",
    ),
    "batch norm statistics": (
        lambda e: with_engine(e, data_degree=2, batch_norm="synchronized"),
        "synchronized: its statistics are of 128 images",
    ),
    "chosen precision": (
        lambda e: with_numerics(e, precision="fp16", products="FP16"),
        "trained in fp16 (FP16), the reference in fp32: allowed",
    ),
    "same evaluations": (
        lambda e: with_hyper(e, evaluate_every_epochs=3),
        "evaluated every 3 epochs",
    ),
}


def test_a_clean_run_has_no_findings() -> None:
    assert judge(clean()) == []


@pytest.mark.parametrize("name", [rule.name for rule in RULES])
def test_each_rule_finds_its_violation_and_no_other_does(name: str) -> None:
    change, says = VIOLATIONS[name]
    found = judge(change(clean()))
    assert {finding.rule for finding in found} == {name}
    assert says in found[0].message


@pytest.mark.parametrize("optimizer", ["lars", "lamb"])
def test_lars_and_lamb_count_as_learning_rate_policy(optimizer: str) -> None:
    """V2 §5.1.2: they may change, and are disclosed with their settings."""
    found = judge(with_hyper(clean(), optimizer=optimizer, trust_coefficient=0.02))
    assert {(finding.rule, finding.severity) for finding in found} == {
        ("changed batch or learning rate", "note")
    }
    assert f"train.optimizer = {optimizer}" in found[0].message
    assert "train.trust_coefficient = 0.02" in found[1].message


@pytest.mark.parametrize("optimizer", ["adam", "adagrad"])
def test_any_other_optimizer_is_fixed(optimizer: str) -> None:
    [found] = judge(with_hyper(clean(), optimizer=optimizer))
    assert (found.rule, found.severity) == ("fixed hyperparameters", "violation")
    assert f"train.optimizer = {optimizer}, the reference has sgd" in found.message


def test_lars_does_not_free_the_other_hyperparameters() -> None:
    found = judge(with_hyper(clean(), optimizer="lars", weight_decay=0.0))
    assert "fixed hyperparameters" in {finding.rule for finding in found}


def test_accumulation_is_disclosed() -> None:
    [found] = judge(with_hyper(clean(), accumulation=4))
    assert found.severity == "note"
    assert "train.accumulation = 4" in found.message


def test_skipped_steps_are_disclosed() -> None:
    told = {"precision": "fp32", "loss_scaling": {"skipped_steps": 3}}
    [found] = judge(with_numerics(clean(), **told))
    assert "skipped 3 optimizer steps" in found.message


def test_every_rule_says_its_layer_source_and_text() -> None:
    assert len(RULES) == len(VIOLATIONS)
    for rule in RULES:
        assert rule.layer is None or rule.layer in LAYERS
        assert rule.source
        assert rule.text.endswith(".")
        assert rule.check.__module__ == checks.__name__
    assert dataclasses.is_dataclass(RULES[0])
