"""The rules about the nine layers (SPEC §5). They judge what the workers recorded.

The rules about the procedure are in `checks_procedure`, those about what is recorded twice in
`checks_records`, those of AIPerf about a search in `checks_search`; importing this registers all.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from ai500.records import TrainRecord
from ai500.rules import checks_procedure as checks_procedure  # registers its rules
from ai500.rules import checks_records as checks_records  # registers its rules
from ai500.rules.evidence import Evidence, groups, told
from ai500.rules.facts import facts, plain
from ai500.rules.layers import Found, rule

# isort: split
from ai500.automl import rules as checks_search  # noqa: F401 - registers its rules


def differing(evidence: Evidence, aspect: str) -> Iterator[Found]:
    """Where the run differs from the reference in an aspect."""
    for fact in facts(evidence):
        if fact.aspect == aspect and fact.differs:
            yield Found(
                f"{fact.what}: {fact.run}, the reference has {fact.reference}",
                do=fact.do,
                reference=fact.reference,
                run=fact.run,
            )


@rule("data set")
def same_data(evidence: Evidence) -> Iterator[Found]:
    """Train and validate on the data set of the class, whole and unchanged."""
    yield from differing(evidence, "data set")


@rule("target quality")
def same_target(evidence: Evidence) -> Iterator[Found]:
    """Score against the target quality and the exponent of the class."""
    yield from differing(evidence, "target quality")


@rule("epochs", of="ensemble")
def same_epochs(evidence: Evidence) -> Iterator[Found]:
    """Train exactly the reference number of epochs."""
    yield from differing(evidence, "epochs")


@rule("evaluations", of="ensemble")
def same_evaluations(evidence: Evidence) -> Iterator[Found]:
    """Evaluate after the epochs that the class says: it costs time of the window."""
    yield from differing(evidence, "evaluations")


@rule("batch size", of="ensemble")
def changed_batch_size(evidence: Evidence) -> Iterator[Found]:
    """The batch may change, and what batch norm's statistics are of; both are disclosed."""
    yield from differing(evidence, "batch size")


@rule("learning-rate policy", of="ensemble")
def changed_learning_rate(evidence: Evidence) -> Iterator[Found]:
    """The learning-rate policy may change, LARS and LAMB count as such; it is disclosed."""
    yield from differing(evidence, "learning-rate policy")


@rule("other hyper-parameters", of="ensemble")
def fixed_hyperparameters(evidence: Evidence) -> Iterator[Found]:
    """Any other optimizer, momentum, weight decay and label smoothing are the reference's."""
    yield from differing(evidence, "other hyper-parameters")


@rule("other hyper-parameters", source="V2 §5.4", of="ensemble")
def weight_decay_on_everything(evidence: Evidence) -> Iterator[Found]:
    """Weight decay is on every parameter, batch norm's γ and β included: V2 §5.4's trick."""
    for trial in evidence.trials:
        for member in trial.members:
            yield from _without_decay(member, trial.trial)


def _without_decay(member: TrainRecord, trial: int) -> Iterator[Found]:
    usual = told(member, "hyperparameters", "weight_decay")
    for group in groups(member):
        if usual is None or group.get("weight_decay") == usual:
            continue
        kinds = group.get("kinds")
        kinds = kinds if isinstance(kinds, dict) else {"parameters": group.get("parameters")}
        held = ", ".join(f"{count} × {kind}" for kind, count in kinds.items())
        decay = group.get("weight_decay")
        yield Found(
            f"member {member.member} of trial {trial} trained {held} with weight decay "
            f"{'unknown' if decay is None else plain(decay)}, all else with {plain(usual)}",
            do="Put all parameters into one group of the optimizer.",
            reference=plain(usual),
            run=plain(decay),
        )


@rule("other hyper-parameters", source="V2 §5.1.2, V3 §3.1", of="ensemble")
def equal_members(evidence: Evidence) -> Iterator[Found]:
    """All members of all trials train with the same hyper-parameters."""
    known = [told(member, "hyperparameters") for member in evidence.members]
    said = [one for one in known if isinstance(one, dict)]
    for name in dict.fromkeys(name for one in said for name in one):
        values = sorted({plain(one.get(name)) for one in said})
        if len(values) > 1:
            yield Found(
                f"members differ in {name.replace('_', ' ')}: {' and '.join(values)}",
                do="Train the whole ensemble in one run.",
                reference="one value",
                run=" and ".join(values),
            )


@rule("model", of="ensemble")
def same_model(evidence: Evidence) -> Iterator[Found]:
    """The graph that was trained is the class's, with all of its parameters."""
    yield from differing(evidence, "model")


@rule("bagging", of="ensemble")
def own_bootstraps(evidence: Evidence) -> Iterator[Found]:
    """Each member of each trial has a bootstrap of its own, drawn as the paper draws it."""
    yield from differing(evidence, "bagging")
    seen: dict[str, str] = {}
    for trial in evidence.trials:
        for one in trial.bootstraps:
            who = f"member {one.member} of trial {trial.trial}"
            if one.sha256 in seen:
                yield Found(f"{who} has the bootstrap of {seen[one.sha256]}", do="Run it again.")
            spread = 6 * math.sqrt(one.samples) if evidence.plan.sampler == "poisson" else 0
            if abs(one.drawn - one.samples) > spread:
                yield Found(f"{who} drew {one.drawn} of {one.samples} samples")
            seen.setdefault(one.sha256, who)


@rule("equivalent parallelism")
def equivalent_parallelism(evidence: Evidence) -> Iterator[Found]:
    """Parallelism that is mathematically equivalent to one process is allowed, and disclosed."""
    yield from differing(evidence, "equivalent parallelism")


@rule("other parallelism")
def known_parallelism(evidence: Evidence) -> Iterator[Found]:
    """Parallelism that nobody has shown to be equivalent to one process is not allowed."""
    yield from differing(evidence, "other parallelism")


@rule("synchronous training")
def synchronous_training(evidence: Evidence) -> Iterator[Found]:
    """Synchronous SGD: every step waits for the gradients of all workers."""
    yield from differing(evidence, "synchronous training")


@rule("AI framework")
def same_framework(evidence: Evidence) -> Iterator[Found]:
    """The framework is the reference's; at system level and above it is free."""
    yield from differing(evidence, "AI framework")


@rule("precision")
def chosen_precision(evidence: Evidence) -> Iterator[Found]:
    """Precision is free among those the papers allow, and disclosed."""
    yield from differing(evidence, "precision")


@rule("other precision")
def allowed_precision(evidence: Evidence) -> Iterator[Found]:
    """FP32, TF32, FP16, BF16, FP8 and INT8 are allowed; another one is not."""
    yield from differing(evidence, "other precision")


@rule("communication")
def chosen_communication(evidence: Evidence) -> Iterator[Found]:
    """Topology, library and precision of the communication are free, and disclosed."""
    yield from differing(evidence, "communication")
