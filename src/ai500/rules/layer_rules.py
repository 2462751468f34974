"""Rules about the nine layers (V2 §5.1): they judge what the workers recorded.

The docstring of a rule is its text in the documentation and in reports. A value that a worker did
not record is the concern of the rule "complete records".
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from ai500.rules.evidence import Evidence, effective, optimizer_groups
from ai500.rules.facts import as_text
from ai500.rules.rule import (
    RUN_AGAIN,
    Observation,
    ProgramName,
    comparing,
    differences,
    mismatch,
    rule,
)

# A Poisson bootstrap of n samples draws n ± √n; beyond six deviations it was not drawn at random.
POISSON_DEVIATIONS = 6


@rule("other hyper-parameters", source="V2 §5.4", program="ensemble")
def weight_decay_on_everything(evidence: Evidence) -> Iterator[Observation]:
    """Apply weight decay to every parameter, also to γ and β of batch norm (V2 §5.4)."""
    for name, member in evidence.named_members():
        expected = effective(member, "hyperparameters", "weight_decay")
        for group in optimizer_groups(member):
            decay = group.get("weight_decay", "unknown")
            if expected is None or decay == expected:
                continue
            kinds = group.get("kinds")
            kinds = kinds if isinstance(kinds, dict) else {"parameters": group.get("parameters")}
            parameters = ", ".join(f"{count} × {kind}" for kind, count in kinds.items())
            statement = f"{name} trained {parameters} with weight decay"
            advice = "Put all parameters into one group of the optimizer."
            yield mismatch(statement, decay, "the plan has", expected, advice)


@rule("other hyper-parameters", source="V2 §5.1.2, V3 §3.1", program="ensemble")
def equal_members(evidence: Evidence) -> Iterator[Observation]:
    """Train all members of all trials with the same hyper-parameters."""
    recorded = [effective(member, "hyperparameters") for member in evidence.members]
    settings = [values for values in recorded if isinstance(values, dict)]
    for name in dict.fromkeys(name for values in settings for name in values):
        texts = sorted({as_text(values.get(name)) for values in settings})
        if len(texts) > 1:
            yield Observation(
                f"members differ in {name.replace('_', ' ')}: {' and '.join(texts)}",
                advice="Train the whole ensemble in one run.",
                reference="one value",
                run=" and ".join(texts),
            )


@rule("bagging", program="ensemble")
def own_bootstraps(evidence: Evidence) -> Iterator[Observation]:
    """Draw a bootstrap of its own for each member of each trial, as V3 §3.3 draws it."""
    yield from differences(evidence, "bagging")
    owners: dict[str, str] = {}
    for trial in evidence.trials:
        for bootstrap in trial.bootstraps:
            owner = f"member {bootstrap.member} of trial {trial.trial}"
            if bootstrap.sha256 in owners:
                first_owner = owners[bootstrap.sha256]
                yield Observation(f"{owner} has the bootstrap of {first_owner}", RUN_AGAIN)
            owners.setdefault(bootstrap.sha256, owner)
            spread = POISSON_DEVIATIONS * math.sqrt(bootstrap.samples)
            tolerance = spread if evidence.plan.sampler == "poisson" else 0
            if abs(bootstrap.drawn - bootstrap.samples) > tolerance:
                yield Observation(f"{owner} drew {bootstrap.drawn} of {bootstrap.samples} samples")


COMPARISONS: tuple[tuple[str, str, ProgramName | None, str], ...] = (
    ("same data", "data set", None,
     "Train and validate on the data set of the class, whole and unchanged."),
    ("same target", "target quality", None,
     "Score against the target quality and the exponent of the class."),
    ("same epochs", "epochs", "ensemble",
     "Train exactly the reference number of epochs."),
    ("same evaluations", "evaluations", "ensemble",
     "Evaluate after the epochs that the class prescribes: evaluation takes time of the window."),
    ("changed batch size", "batch size", "ensemble",
     "Disclose another batch size, and other samples that batch norm's statistics cover."),
    ("changed learning rate", "learning-rate policy", "ensemble",
     "Disclose another learning-rate policy; LARS and LAMB count as such."),
    ("fixed hyperparameters", "other hyper-parameters", "ensemble",
     "Keep the reference's optimizer, momentum, weight decay and label smoothing."),
    ("same model", "model", "ensemble",
     "Train the graph of the class, with all of its parameters."),
    ("equivalent parallelism", "equivalent parallelism", None,
     "Disclose parallelism that is mathematically equivalent to training in one process."),
    ("known parallelism", "other parallelism", None,
     "Use no parallelism that is not known to be equivalent to training in one process."),
    ("synchronous training", "synchronous training", None,
     "Train by synchronous SGD: every step waits for the gradients of all workers."),
    ("same framework", "AI framework", None,
     "Use the framework of the reference; it is free at system level and above."),
    ("chosen precision", "precision", None,
     "Disclose another precision among those that the papers allow."),
    ("allowed precision", "other precision", None,
     "Use FP32, TF32, FP16, BF16, FP8, INT8 or INT4, and no other precision."),
    ("chosen communication", "communication", None,
     "Disclose another topology, library or precision of the communication."),
)  # fmt: skip
"""Rules that compare the facts of an aspect: name, aspect, program (None: both), text."""

LAYER_RULES = (
    *(comparing(*row) for row in COMPARISONS),
    weight_decay_on_everything, equal_members, own_bootstraps,
)  # fmt: skip
