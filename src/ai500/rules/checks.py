"""The rules (SPEC §5). They judge what the workers recorded, not what a config claims."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ai500.records import TrainRecord
from ai500.rules.layers import Evidence, rule


@rule(layer=None, source="V2 §5.3.2, [D3]")
def enough_trials(evidence: Evidence) -> Iterator[str]:
    """A valid result has at least the least runs of its class."""
    done = sum(trial.complete for trial in evidence.score.trials)
    least = evidence.reference.least_runs
    if done < least:
        yield (
            f"{done} of at least {least} trials: shown, but not a valid result. "
            f"Run with --runs {least}."
        )


@rule(layer=None, source="SPEC §9 [D13]")
def one_wave(evidence: Evidence) -> Iterator[str]:
    """An official entry trains the whole ensemble at once."""
    if evidence.score.waves > 1:
        yield (
            f"the ensemble ran in {evidence.score.waves} waves; an official entry has one. "
            "Use a larger system, or a smaller parallel.degree."
        )


@rule(layer=None, source="V3 §3.3")
def whole_ensemble(evidence: Evidence) -> Iterator[str]:
    """Every member finished."""
    for trial in evidence.score.trials:
        if not trial.complete:
            yield f"trial {trial.trial} is incomplete: a member failed. `ai500 resume` repeats it."


@rule(layer=None, source="SPEC §5 Timing, [D6]")
def clocks_compared(evidence: Evidence) -> Iterator[str]:
    """Where the window crosses nodes, the offset between their clocks is measured."""
    for trial in evidence.score.trials:
        if trial.clock_uncertainty_seconds is None:
            yield (
                f"trial {trial.trial} ran on several hosts, and the offset of their clocks was not "
                "measured at both ends of the window. Follow the run while it trains, or use "
                "slurm.start = 'gang'."
            )


@rule(layer=None, source="SPEC §9 [D6]", severity="note")
def start_skew(evidence: Evidence) -> Iterator[str]:
    """Members that start late lower the score: their wait is in the window."""
    for trial in evidence.score.trials:
        if trial.start_skew_seconds > 0.02 * trial.seconds:
            yield (
                f"the first wave of trial {trial.trial} started over "
                f"{trial.start_skew_seconds:.1f} of its {trial.seconds:.0f} s. On a cluster, "
                "slurm.start = 'gang' starts all members together."
            )


@rule(layer=None, source="SPEC §9 [D6]", severity="note")
def idle_time(evidence: Evidence) -> Iterator[str]:
    """The window counts also where nobody trained: interruptions, start-up of later waves."""
    for trial in evidence.score.trials:
        if trial.idle_seconds > 0.1 * trial.seconds:
            yield (
                f"in {trial.idle_seconds:.0f} of the {trial.seconds:.0f} s of trial {trial.trial} "
                "no member trained: start-up of later waves, or an interruption. It counts."
            )


@rule(layer=None, source="SPEC §9 [D11]", severity="note")
def shared_accelerators(evidence: Evidence) -> Iterator[str]:
    """Several members on one accelerator are reported, never hidden."""
    if evidence.score.members_per_accelerator > 1:
        yield f"{evidence.score.members_per_accelerator} members shared each accelerator."


@rule(layer=9, source="V2 §5.1.1")
def same_data(evidence: Evidence) -> Iterator[str]:
    """Train and validate on the data set of the class."""
    expected = evidence.reference.store_sha256
    for found in {placement.store_sha256 for placement in evidence.placements}:
        if expected is not None and found != expected:
            yield (
                f"the data's SHA-256 is {found[:16]}…, class {evidence.reference.name} is defined "
                f"on {expected[:16]}…. Leave data.path out to use it."
            )
    for name in ("train_samples", "validation_samples", "classes"):
        ours, theirs = getattr(evidence.plan.definition, name), getattr(evidence.reference, name)
        if ours != theirs:
            yield f"the data has {name.replace('_', ' ')} = {ours}, the class {theirs}."


@rule(layer=9, source="V2 §5.1.1")
def same_epochs(evidence: Evidence) -> Iterator[str]:
    """Train exactly the reference number of epochs."""
    required = evidence.reference.reference.epochs
    for epochs in {member.epochs for member in evidence.members}:
        if epochs != required:
            yield f"trained {epochs} epochs, class {evidence.reference.name} requires {required}."


LEARNING_RATE_POLICIES = ("lars", "lamb")
"""Optimizers that V2 §5.1.2 counts as learning-rate policies."""


@rule(layer=8, source="V2 §5.1.2")
def fixed_hyperparameters(evidence: Evidence) -> Iterator[str]:
    """Optimizer (but for LARS and LAMB), momentum, weight decay, label smoothing are fixed."""
    reference, used = evidence.reference_hyperparameters, evidence.plan.hyperparameters
    for name in ("optimizer", "momentum", "weight_decay", "label_smoothing"):
        ours, theirs = getattr(used, name), getattr(reference, name)
        if ours != theirs and ours not in LEARNING_RATE_POLICIES:
            yield f"train.{name} = {ours}, the reference has {theirs}: fixed at this level."


@rule(layer=8, source="V2 §5.4")
def weight_decay_on_everything(evidence: Evidence) -> Iterator[str]:
    """Weight decay is on every parameter, batch norm's γ and β included."""
    required = evidence.plan.hyperparameters.weight_decay
    for member in evidence.members:
        for group in member.effective["groups"]:
            if group["weight_decay"] != required:
                yield (
                    f"member {member.member} trained {group['parameters']} parameters with "
                    f"weight decay {group['weight_decay']}, not {required}."
                )


@rule(layer=8, source="V2 §5.1.2", severity="note")
def changed_batch_or_learning_rate(evidence: Evidence) -> Iterator[str]:
    """Batch size and learning-rate policy may change, LARS and LAMB count as such; disclosed."""
    reference, used = evidence.reference_hyperparameters, evidence.plan.hyperparameters
    names = ["batch_size", "accumulation", "base_learning_rate", "schedule", "warmup_epochs"]
    names += ["decay_epochs", "decay_power"]
    if used.optimizer in LEARNING_RATE_POLICIES:
        names += ["optimizer", "betas", "epsilon", "trust_coefficient"]
    for name in names:
        ours, theirs = getattr(used, name), getattr(reference, name)
        if ours != theirs:
            yield f"train.{name} = {ours}, the reference has {theirs}: allowed, and disclosed."


EQUIVALENT_MODES = ("data", "tensor", "pipeline", "mixed")
"""Held equal to one process by tests/train/test_engines.py."""


@rule(layer=6, source="V2 §5.1.2")
def equivalent_parallelism(evidence: Evidence) -> Iterator[str]:
    """Data and model parallelism only where it is mathematically equivalent to one process."""
    for mode in {_ran(member)["mode"] for member in evidence.members if _ran(member)}:
        if mode not in EQUIVALENT_MODES:
            yield f"trained by parallel.mode = {mode!r}: not known to be equivalent to one process."


@rule(layer=6, source="V2 §5.1.2")
def parallelism_as_planned(evidence: Evidence) -> Iterator[str]:
    """What the engine says it did is what the plan says."""
    planned = evidence.plan.parallel
    for member in evidence.members:
        for name in ("sharded", "data_degree", "pipeline_degree", "tensor_degree"):
            ran = _ran(member).get(name, getattr(planned, name))
            if ran != getattr(planned, name):
                yield (
                    f"member {member.member} ran with {name.replace('_', ' ')} {ran}, "
                    f"its plan says {getattr(planned, name)}."
                )


@rule(layer=6, source="V2 §5.1.2", severity="note")
def model_parallelism(evidence: Evidence) -> Iterator[str]:
    """Tensor, pipeline and mixed parallelism are equivalent, allowed, and disclosed."""
    shapes = {
        (ran["mode"], ran["data_degree"], ran["pipeline_degree"], ran["tensor_degree"])
        for member in evidence.members
        if (ran := _ran(member)) and ran["mode"] in EQUIVALENT_MODES[1:]
    }
    for mode, data, pipeline, tensor in sorted(shapes):
        yield (
            f"each member trained by {mode} parallelism, data {data} × pipeline {pipeline} × "
            f"tensor {tensor}: equivalent, allowed, and disclosed."
        )


@rule(layer=8, source="V2 §5.1.2", severity="note")
def batch_norm_statistics(evidence: Evidence) -> Iterator[str]:
    """How many images batch norm's statistics are of, where it is not an accelerator's batch."""
    batch = evidence.plan.hyperparameters.batch_size
    for synchronized, micro in {_normalized(member, batch) for member in evidence.members}:
        if synchronized:
            yield (
                f"batch norm is synchronized: its statistics are of {micro} images, over all "
                f"replicas; the reference's are of each accelerator's {batch}. Disclosed."
            )
        elif micro != batch:
            yield (
                f"batch norm's statistics are of {micro} images at a time; the reference's are of "
                f"each accelerator's {batch}. Disclosed."
            )


def _ran(member: TrainRecord) -> dict[str, Any]:
    """What the member's engine told of itself; nothing in the records of older versions."""
    told: dict[str, Any] = member.effective.get("parallel", {})
    return told


def _normalized(member: TrainRecord, batch_size: int) -> tuple[bool, int]:
    """Whether batch norm was synchronized, and over how many images."""
    ran = _ran(member)
    if not ran:
        return False, batch_size
    images = batch_size * ran["pipeline_degree"] * ran["tensor_degree"]
    images //= ran.get("microbatches", 1)
    synchronized = ran["batch_norm"] == "synchronized"
    return synchronized, images * ran["data_degree"] if synchronized else images


@rule(layer=4, source="V2 §5.1, V3 Table 2", severity="note")
def chosen_precision(evidence: Evidence) -> Iterator[str]:
    """Precision is free, and disclosed with the steps that an overflow cost."""
    reference = evidence.reference_hyperparameters.precision
    for member in evidence.members:
        told = member.effective.get("numerics", {})
        if told.get("precision", reference) != reference:
            yield (
                f"member {member.member} trained in {told['precision']} ({told['products']}), the "
                f"reference in {reference}: allowed, and disclosed."
            )
        skipped = told.get("loss_scaling", {}).get("skipped_steps", 0)
        if skipped:
            yield f"member {member.member} skipped {skipped} optimizer steps: gradients overflowed."


@rule(layer=9, source="SPEC §9 [D14]")
def same_evaluations(evidence: Evidence) -> Iterator[str]:
    """Evaluate as often as the class says."""
    ours = evidence.plan.hyperparameters.evaluate_every_epochs
    theirs = evidence.reference.reference.evaluate_every_epochs
    if ours != theirs:
        yield f"evaluated every {ours} epochs, the class every {theirs}."
