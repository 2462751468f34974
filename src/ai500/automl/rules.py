"""AIPerf's rules about a search (§IV-E, Table IV): they judge what the workers' histories tell."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from itertools import pairwise

from ai500.automl.counting import count_architecture
from ai500.automl.history import EXHAUSTED, Candidate, Line, Model, Present, Work
from ai500.core.errors import AI500Error
from ai500.core.units import human_seconds
from ai500.rules.evidence import Evidence
from ai500.rules.facts import facts, plain, recorded
from ai500.rules.layers import Found, rule
from ai500.workloads.models.architecture import Architecture, check

AT_LEAST_FP16 = ("fp32", "tf32", "mixed-bf16", "mixed-fp16", "fp16")
FIXED_TERMS = ("initial", "kernel_sizes", "warmup_rounds", "max_growth")
"""Of a search: where it begins, its space, and when TPE begins."""
OVERLAP_SECONDS = 0.5
"""A line is written a little after the work it tells of."""


def models(evidence: Evidence) -> Iterator[tuple[int, Model]]:
    """Every model of every trial."""
    for trial in evidence.trials:
        if trial.history is not None:
            for model in trial.history.models.values():
                yield trial.trial, model


@rule(source="AIPerf §IV-E, Table IV", of="search")
def least_time(evidence: Evidence) -> Iterator[Found]:
    """A search takes at least the least time of its class: 1 hour in `full`."""
    for trial in evidence.score.trials:
        # Clocks of several hosts are known to so much.
        longest = trial.seconds + (trial.clock_uncertainty_seconds or 0.0)
        if trial.search is not None and longest < trial.search.least_seconds:
            least, took = human_seconds(trial.search.least_seconds), human_seconds(trial.seconds)
            yield Found(
                f"trial {trial.trial} searched for {took}, the least time of the class is {least}",
                do=_how_to_search_longer(evidence, trial.trial),
                reference=f"at least {least}",
                run=took,
            )


def _how_to_search_longer(evidence: Evidence, trial: int | None) -> str:
    lines = [line for one in evidence.trials if one.trial == trial for line in one.lines]
    if any(isinstance(one.entry, Present) and one.entry.reason == EXHAUSTED for one in lines):
        return "Workers found no other model to try: set a larger automl.max_growth."
    return "Leave automl.minutes out, or raise it."


@rule(layer=9, source="AIPerf Table IV, decision D7", of="search")
def largest_error(evidence: Evidence) -> Iterator[Found]:
    """The best model's error is at most the largest of the class: 30 % in `full`."""
    most = evidence.reference.target_quality
    for trial in evidence.score.trials:
        if trial.ensemble_quality > most:
            yield Found(
                f"trial {trial.trial}: the best model's error is {trial.ensemble_quality:.4f}, "
                f"the largest of the class {most:g}",
                do="Search longer (automl.minutes) or with more workers (ensemble.size).",
                reference=f"at most {most:g}",
                run=f"{trial.ensemble_quality:.4f}",
            )


@rule(layer=4, source="AIPerf §IV-E, Table IV", of="search")
def at_least_fp16(evidence: Evidence) -> Iterator[Found]:
    """A search computes with floating-point numbers of at least FP16."""
    used = recorded(evidence, "numerics", "precision")
    low = [one for one in (used or "").split(" and ") if one not in AT_LEAST_FP16]
    if used is not None and low:
        yield Found(
            f"workers trained in {' and '.join(low)}",
            do='Set train.precision = "mixed-fp16", or a finer one.',
            reference="at least fp16",
            run=used,
        )


@rule(layer=7, source="AIPerf §IV-E, Table IV", of="search")
def initial_architecture(evidence: Evidence) -> Iterator[Found]:
    """Every worker's search begins at the class's architecture: ResNet-50 in `full`."""
    for fact in facts(evidence):
        if fact.what == "initial architecture" and fact.differs:
            yield Found(
                f"searches began at {fact.run}, the class's architecture is {fact.reference}",
                do=fact.do,
                reference=fact.reference,
                run=fact.run,
            )
    for trial, model in models(evidence):
        made = model.candidate
        if made.round == 1 and made.parent is not None:
            yield Found(f"trial {trial}: {made.model}, a worker's first, has a parent")


@rule(layer=7, source="AIPerf §IV-A, §IV-E", of="search")
def network_morphism(evidence: Evidence) -> Iterator[Found]:
    """Every other model is a morphism of one in the history: it keeps its layers and adds to it."""
    for trial in evidence.trials:
        known = trial.history.models if trial.history is not None else {}
        for model in known.values():
            made = model.candidate
            if made.parent is None:
                continue
            parent = known.get(made.parent)
            if parent is None:
                yield Found(
                    f"trial {trial.trial}: {made.model}'s parent {made.parent} is not in any "
                    "history",
                    do="Run it again.",
                )
            elif not made.moves or not _grown(parent.architecture, model.architecture):
                yield Found(
                    f"trial {trial.trial}: {made.model} is no morphism of its parent {made.parent}",
                    do="Run it again.",
                )


def _grown(parent: Architecture, child: Architecture) -> bool:
    """Whether the child has each layer of its parent, none of them smaller, and is not the same."""
    layers = {layer.number: layer for layer in child.layers}
    kept = all(
        (now := layers.get(layer.number)) is not None
        and now.kind == layer.kind
        and now.channels >= layer.channels
        and now.kernel >= layer.kernel
        and now.stride == layer.stride
        for layer in parent.layers
    )
    return kept and child.digest != parent.digest


@rule(layer=7, source="AIPerf §IV-B, §IV-E", of="search")
def tuned_from_the_fifth_round(evidence: Evidence) -> Iterator[Found]:
    """Bayesian optimization chooses batch and kernel size from each worker's fifth round on."""
    terms = evidence.reference.search
    for trial, model in models(evidence):
        made = model.candidate
        if terms is not None and made.tuned != terms.tunes(made.round):
            how = "was tuned" if made.tuned else "was not tuned"
            yield Found(
                f"trial {trial}: {made.model} of round {made.round} {how}",
                do="Run it again.",
                reference=f"from round {terms.warmup_rounds + 1} on",
            )


@rule(layer=7, source="AIPerf §IV-E", of="search")
def fixed_search_space(evidence: Evidence) -> Iterator[Found]:
    """Where the search begins, what it may add and when TPE begins are the class's."""
    terms, ours = evidence.reference.search, evidence.plan.search
    for name in FIXED_TERMS:
        wanted, found = (getattr(one, name, None) for one in (terms, ours))
        if wanted != found:
            yield Found(
                f"{name.replace('_', ' ')}: {plain(found)}, the class has {plain(wanted)}",
                do=f"Leave automl.{name} out.",
                reference=plain(wanted),
                run=plain(found),
            )


@rule("a search's defaults", of="search")
def changed_defaults(evidence: Evidence) -> Iterator[Found]:
    """Optimizer, learning rate, batch sizes, patience, … may change, and are disclosed."""
    for fact in facts(evidence):
        if fact.aspect == "a search's defaults" and fact.differs:
            yield Found(
                f"{fact.what}: {fact.run}, the class has {fact.reference}",
                reference=fact.reference,
                run=fact.run,
            )
    terms, ours = evidence.reference.search, evidence.plan.search
    for field in fields(terms) if terms is not None else ():
        wanted, found = (getattr(one, field.name, None) for one in (terms, ours))
        if field.name not in (*FIXED_TERMS, "minutes") and wanted != found:
            yield Found(
                f"{field.name.replace('_', ' ')}: {plain(found)}, the class has {plain(wanted)}",
                reference=plain(wanted),
                run=plain(found),
            )


@rule(source="AIPerf §IV-D, Table I", of="search")
def operations_of_the_architectures(evidence: Evidence) -> Iterator[Found]:
    """Every candidate's operations are those of its layers, counted again, on whole data sets."""
    for trial, model in models(evidence):
        made = model.candidate
        for says in _miscounted(made, evidence):
            yield Found(f"trial {trial}: {made.model} {says}", do="Run it again.")


def _miscounted(made: Candidate, evidence: Evidence) -> Iterator[str]:
    reference = evidence.reference
    try:
        layers = Architecture(made.architecture)
        check(layers)
        counted = count_architecture(
            layers, input_shape=reference.input_shape, convention=made.operations.convention
        )
    except (AI500Error, LookupError, TypeError, ValueError, ZeroDivisionError) as error:
        yield f"has no architecture that can be counted: {error!r}"
        return
    if layers.digest != made.digest:
        yield f"is said to be {made.digest}, its layers are {layers.digest}"
    if counted != made.operations:
        yield (
            f"is counted with {made.operations.forward_per_image:.6g} + "
            f"{made.operations.backward_per_image:.6g} operations an image, its layers have "
            f"{counted.forward_per_image:.6g} + {counted.backward_per_image:.6g}"
        )
    if made.steps_per_epoch * made.batch_size > reference.train_samples:
        yield (
            f"has epochs of {made.steps_per_epoch * made.batch_size} images, the class has "
            f"{reference.train_samples}"
        )
    if made.validation_images != reference.validation_samples:
        yield (
            f"is validated on {made.validation_images} images, the class has "
            f"{reference.validation_samples}"
        )


@rule(source="AIPerf §IV-D, V2 §5.3.2", of="search")
def work_in_order(evidence: Evidence) -> Iterator[Found]:
    """A worker's work was told in its order, one piece after the other."""
    for trial in evidence.trials:
        told: dict[tuple[int, int], list[Line]] = {}
        for line in trial.lines:
            told.setdefault((line.worker, line.attempt), []).append(line)
        for (worker, _), lines in told.items():
            reason = _disorder(lines)
            if reason is not None:
                yield Found(f"trial {trial.trial}, worker {worker}: {reason}", do="Run it again.")


def _disorder(lines: list[Line]) -> str | None:
    for one, other in pairwise(lines):
        if other.event["sequence"] <= one.event["sequence"]:
            return "its lines are not in the order they were written"
        if other.event["monotonic"] < one.event["monotonic"]:
            return "a later line has an earlier time, by its own clock"
    work = [(line.event["monotonic"], line.entry) for line in lines if isinstance(line.entry, Work)]
    for (before, _), (end, entry) in pairwise(work):
        if end - entry.seconds < before - OVERLAP_SECONDS:
            return f"{entry.seconds:.1f} s of work are told {end - before:.1f} s after those before"
    return None


@rule(source="AIPerf §IV-C", severity="note", of="search")
def readable_histories(evidence: Evidence) -> Iterator[Found]:
    """Lines of a history that can't be read are passed over, and disclosed."""
    for trial in evidence.trials:
        skipped = trial.history.unreadable if trial.history is not None else []
        for one in skipped[:3]:
            yield Found(f"trial {trial.trial}, {one}")
        if len(skipped) > 3:
            yield Found(f"trial {trial.trial}: {len(skipped) - 3} more lines are skipped")


@rule(source="AIPerf §IV-C", severity="note", of="search")
def lost_models(evidence: Evidence) -> Iterator[Found]:
    """Models that a failure cost are disclosed; the work that was done counts once."""
    for trial in evidence.score.trials:
        if trial.search is not None and trial.search.lost:
            yield Found(f"trial {trial.trial}: {trial.search.lost} model(s) were lost")
