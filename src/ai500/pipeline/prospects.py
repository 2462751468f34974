"""Prospects of a plan before it runs: can its result be valid, and what would have to change.

The rules judge what the workers recorded; this module foresees those that a plan already breaks, at
hardware level. A plan without obstacles can still end in a result that is not valid.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass

from ai500.config import Config
from ai500.core.editions import edition_seed
from ai500.core.errors import ConfigError
from ai500.parallel.parallelism_controller import divisors
from ai500.pipeline.programs import program_of
from ai500.pipeline.stages import survey_and_plan
from ai500.records import Plan, ProblemClass
from ai500.rules.evidence import reference_class
from ai500.rules.facts import LEARNING_RATE_POLICIES, SAMPLERS

FIXED_HYPERPARAMETERS = (
    "epochs", "evaluate_every_epochs", "optimizer", "momentum", "weight_decay", "label_smoothing",
)  # fmt: skip
MOST_SHARING = 8
"""Members per accelerator that a layout is chosen with: more seldom fit its memory."""


@dataclass(frozen=True)
class Obstacle:
    """A rule that every run of the plan breaks."""

    rule: str
    """Name of the rule."""
    message: str
    """Value in the plan, without a full stop."""
    remedy: str
    """Sentence that tells the user what to change."""


def obstacles(plan: Plan) -> list[Obstacle]:
    """List the rules that any run of the plan breaks; empty: its result can be valid."""
    reference = reference_class(plan)
    listed = [*_class_obstacles(plan, reference), *_procedure_obstacles(plan, reference)]
    if program_of(plan).name == "ensemble" and plan.definition.custom is None:
        listed += _training_obstacles(plan, reference)
    return listed


def _class_obstacles(plan: Plan, reference: ProblemClass) -> Iterator[Obstacle]:
    if plan.definition.custom is not None:
        yield Obstacle(
            "registered class",
            f"{plan.problem_class} is a class of your own",
            "Leave [custom_class] out.",
        )
    if reference.provisional_target:
        yield Obstacle(
            "measured target",
            f"the target of class {reference.name} is provisional",
            "Choose another class.",
        )
    counts = [
        (
            split,
            getattr(plan.definition, f"{split}_samples"),
            getattr(reference, f"{split}_samples"),
        )
        for split in ("train", "validation")
    ]
    if any(count != expected for _, count, expected in counts):
        has = " and ".join(f"{count:,} {split}" for split, count, _ in counts)
        needs = " and ".join(f"{expected:,}" for _, _, expected in counts)
        yield Obstacle(
            "same data", f"the data has {has} samples, the class {needs}", "Leave --data out."
        )


def _procedure_obstacles(plan: Plan, reference: ProblemClass) -> Iterator[Obstacle]:
    least = reference.required_runs
    if plan.trials < least:
        trials = "1 trial" if plan.trials == 1 else f"{plan.trials} trials"
        yield Obstacle("enough trials", f"{trials} of at least {least}", "Add --runs valid.")
    if plan.waves > 1:
        yield Obstacle(
            "one wave",
            f"{plan.waves} waves: the members do not all train at once",
            "Add --runs valid, which chooses a layout of one wave where there is one; or set "
            "parallel.degree and ensemble.members_per_accelerator.",
        )
    if plan.ensemble_size < reference.ensemble_size:
        yield Obstacle(
            "minimum ensemble size",
            f"M = {plan.ensemble_size}, the class needs {reference.ensemble_size}",
            "Leave ensemble.size out.",
        )
    if plan.seed != edition_seed(plan.edition):
        yield Obstacle("seed of the edition", f"your own seed {plan.seed}", "Leave run.seed out.")


def _training_obstacles(plan: Plan, reference: ProblemClass) -> Iterator[Obstacle]:
    if plan.framework.kind == "script":
        yield Obstacle(
            "worker of ai500",
            "a script of your own trains",
            'Set framework.kind = "pytorch" for a valid result.',
        )
    elif plan.framework.kind != "pytorch":
        yield Obstacle(
            "same framework",
            f"{plan.framework.kind} is not the reference's framework",
            'Set framework.kind = "pytorch", or enter at system level.',
        )
    if plan.own_code.parts:
        yield Obstacle(
            "same model",
            f"{' and '.join(plan.own_code.parts)} of your own",
            "Leave [free_level] out, or enter at free level.",
        )
    if plan.sampler not in SAMPLERS:
        yield Obstacle("own bootstraps", f"sampler {plan.sampler}", "Leave ensemble.sampler out.")
    expected = reference.reference_at(plan.parallel_degree)
    for name in FIXED_HYPERPARAMETERS:
        value, prescribed = getattr(plan.hyperparameters, name), getattr(expected, name)
        policy = name == "optimizer" and value in LEARNING_RATE_POLICIES  # may change
        if value != prescribed and not policy:
            rule = {"epochs": "same epochs", "evaluate_every_epochs": "same evaluations"}
            yield Obstacle(
                rule.get(name, "fixed hyperparameters"),
                f"{name.replace('_', ' ')} {value}, the class has {prescribed}",
                f"Leave train.{name} out.",
            )


def with_one_wave(config: Config, plan: Plan) -> tuple[Config, Plan]:
    """Choose a layout in which all members train at once, as `--runs valid` promises.

    Only what the user left open is chosen: P_degree, and how many members share an accelerator.
    The same configuration and plan come back where there is nothing to choose, or nothing fits.
    """
    if plan.waves == 1 or config.ensemble.members_per_accelerator > 1:
        return config, plan
    members = config.ensemble.size or reference_class(plan).ensemble_size
    degrees = (
        sorted(divisors(plan.system_scale), reverse=True)
        if config.parallel.degree is None
        else [config.parallel.degree]
    )
    for shared in range(1, MOST_SHARING + 1):
        for degree in degrees:
            if shared * plan.system_scale // degree < members:
                continue
            chosen = dataclasses.replace(
                config,
                parallel=dataclasses.replace(config.parallel, degree=degree),
                ensemble=dataclasses.replace(config.ensemble, members_per_accelerator=shared),
            )
            try:
                _, planned = survey_and_plan(chosen)
            except ConfigError:
                continue  # such as more members than this scheduler lets share an accelerator
            if planned.waves == 1:
                return chosen, planned
    return config, plan
