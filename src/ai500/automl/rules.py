"""AIPerf's rules about a search (§IV-E, Table IV), checked against the workers' histories."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from itertools import pairwise

from ai500.automl.counting import count_architecture
from ai500.automl.history import (
    EXHAUSTED,
    FINISHED,
    Candidate,
    History,
    Line,
    Model,
    Presence,
    Work,
)
from ai500.core.errors import AI500Error
from ai500.core.units import human_seconds
from ai500.operations.rules import CONVENTIONS
from ai500.records import Operations, Search, require
from ai500.records.run_folder import RunFolder
from ai500.rules.evidence import Evidence, Fact
from ai500.rules.facts import as_text, problem_facts, recorded, system_facts
from ai500.rules.registry import COMMON_RULES
from ai500.rules.rule import RUN_AGAIN, Observation, differences, mismatch, rule
from ai500.workloads.models.architecture import Architecture, check
from ai500.workloads.models.architecture import initial_architecture as class_architecture

AT_LEAST_FP16 = ("fp32", "tf32", "mixed-bf16", "mixed-fp16", "fp16")
FIXED_SETTINGS = (
    "initial", "kernel_sizes", "warmup_rounds", "hyperparameter_trials", "max_growth",
)  # fmt: skip
"""Settings of a search that its class fixes: its start [D16], its space with the cap on growth
[D21], the first tuned round and the trials of each architecture."""
INITIAL_ARCHITECTURE = "initial architecture"
# A line is written shortly after its work has ended.
OVERLAP_SECONDS = 0.5
"""Largest overlap of two pieces of work, in seconds."""


@dataclass(frozen=True)
class SearchEvidence:
    """Histories of a trial's workers, with the lines they were read from."""

    history: History
    lines: list[Line]


def read_search_evidence(run: RunFolder, trial: int) -> SearchEvidence:
    """Read the histories of a trial's workers."""
    history = History(run.trial(trial).members)
    return SearchEvidence(history, history.refresh())


def searches(evidence: Evidence) -> Iterator[tuple[int, SearchEvidence]]:
    """Yield every trial's number and histories, where they were read."""
    for trial in evidence.trials:
        if isinstance(trial.program_evidence, SearchEvidence):
            yield trial.trial, trial.program_evidence


def search_facts(evidence: Evidence) -> Iterator[Fact]:
    """Yield the facts of a search, the problem domain's first and the hardware's last."""
    yield from problem_facts(evidence)
    yield from _defaults(evidence)
    yield from _initial_architecture(evidence)
    yield from system_facts(evidence)


def _defaults(evidence: Evidence) -> Iterator[Fact]:
    """Yield what may change (AIPerf Table IV); a search tunes batch and kernel size itself."""
    reference = evidence.reference_hyperparameters
    for name in ("optimizer", "base_learning_rate", "schedule", "decay_power", "momentum",
                 "weight_decay", "label_smoothing", "epochs"):  # fmt: skip
        title = "most epochs" if name == "epochs" else name.replace("_", " ")
        value = recorded(evidence, "hyperparameters", name)
        yield Fact("a search's defaults", title, as_text(getattr(reference, name)), value)


def _initial_architecture(evidence: Evidence) -> Iterator[Fact]:
    """Yield the architectures at which the searches began, as their histories record them."""
    reference = evidence.reference
    if reference.search is None:
        return
    expected = class_architecture(
        reference.search.initial,
        classes=reference.classes,
        input_channels=reference.input_shape[0],
    )
    digests = {
        model.candidate.digest for _, model in models(evidence) if model.candidate.parent is None
    }
    run = " and ".join(sorted(digests)) or None
    yield Fact("model", INITIAL_ARCHITECTURE, expected.digest, run, "Run the class as it is.")


def models(evidence: Evidence) -> Iterator[tuple[int, Model]]:
    """Yield every model of every trial, with the trial's number."""
    for trial, search in searches(evidence):
        for model in search.history.models.values():
            yield trial, model


@rule(source="AIPerf §IV-E, Table IV", program="search")
def least_time(evidence: Evidence) -> Iterator[Observation]:
    """Search at least for the least time of the class: 1 hour in `full`."""
    for trial in evidence.score.trials:
        # The clocks of several hosts have this uncertainty.
        longest = trial.seconds + (trial.clock_uncertainty_seconds or 0.0)
        if trial.search is not None and longest < trial.search.min_seconds:
            least, took = human_seconds(trial.search.min_seconds), human_seconds(trial.seconds)
            yield Observation(
                f"trial {trial.trial} searched for {took}, the least time of the class is {least}",
                advice=_how_to_search_longer(evidence, trial.trial),
                reference=f"at least {least}",
                run=took,
            )


def _how_to_search_longer(evidence: Evidence, trial: int) -> str:
    lines = [
        line for number, search in searches(evidence) if number == trial for line in search.lines
    ]
    reasons = {line.entry.reason for line in lines if isinstance(line.entry, Presence)}
    if EXHAUSTED in reasons:
        return "The workers had no other model to try: set a larger automl.max_growth."
    if FINISHED in reasons:
        return "It was ended by `ai500 finish --early`: let it search for the least time."
    return "Leave automl.minutes out, or raise it."


@rule(layer=9, source="AIPerf Table IV, decision D7", program="search")
def largest_error(evidence: Evidence) -> Iterator[Observation]:
    """Find a model with at most the largest error of the class: 30 % in `full`."""
    limit = evidence.reference.target_quality
    for trial in evidence.score.trials:
        if require(trial.ensemble_quality, "ensemble_quality") > limit:
            yield Observation(
                f"trial {trial.trial}: the best model's error is {trial.ensemble_quality:.4f}, "
                f"the largest of the class is {limit:g}",
                advice="Search longer (automl.minutes) or with more workers (ensemble.size).",
                reference=f"at most {limit:g}",
                run=f"{trial.ensemble_quality:.4f}",
            )


@rule(layer=4, source="AIPerf §IV-E, Table IV", program="search")
def at_least_fp16(evidence: Evidence) -> Iterator[Observation]:
    """Compute with floating-point numbers of at least FP16."""
    used = recorded(evidence, "numerics", "precision")
    low = [name for name in (used or "").split(" and ") if name not in AT_LEAST_FP16]
    if used is not None and low:
        yield Observation(
            f"workers trained in {' and '.join(low)}",
            advice='Set train.precision = "mixed-fp16", or a higher precision.',
            reference="at least fp16",
            run=used,
        )


@rule(layer=7, source="AIPerf §IV-E, Table IV", program="search")
def initial_architecture(evidence: Evidence) -> Iterator[Observation]:
    """Start every worker's search at the class's architecture: ResNet-50 in `full`."""
    for fact in evidence.facts:
        if fact.name == INITIAL_ARCHITECTURE and fact.differs:
            source = "the class's architecture is"
            yield mismatch("searches began at", fact.run, source, fact.reference, fact.advice)
    for trial, model in models(evidence):
        candidate = model.candidate
        if candidate.round == 1 and candidate.parent is not None:
            yield Observation(f"trial {trial}: {candidate.model}, a worker's first, has a parent")


@rule(layer=7, source="AIPerf §IV-A, §IV-E", program="search")
def network_morphism(evidence: Evidence) -> Iterator[Observation]:
    """Derive every model but the initial one from a model of the history, by growing it."""
    histories = dict(searches(evidence))
    for trial, model in models(evidence):
        name, parent_name = model.id, model.candidate.parent
        if parent_name is None:
            continue
        parent = histories[trial].history.models.get(parent_name)
        problem = None
        if parent is None:
            problem = f"parent {parent_name} of {name} is in no history"
        elif not model.candidate.moves or not _grown(parent.architecture, model.architecture):
            problem = f"{name} is no morphism of its parent {parent_name}"
        if problem is not None:
            yield Observation(f"trial {trial}: {problem}", advice=RUN_AGAIN)


def _grown(parent: Architecture, child: Architecture) -> bool:
    """Return True if the child differs and has each layer of its parent, none of them smaller."""
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


@rule(layer=7, source="AIPerf §IV-B, §IV-E", program="search")
def tuned_from_the_fifth_round(evidence: Evidence) -> Iterator[Observation]:
    """Choose batch and kernel size by Bayesian optimization from each worker's fifth round on."""
    settings = evidence.reference.search
    if settings is None:
        return
    for trial, model in models(evidence):
        candidate = model.candidate
        tunes = settings.tunes(candidate.round)
        trials = settings.hyperparameter_trials if tunes else 1
        problem = None
        if candidate.tuned != tunes:
            problem = "was tuned" if candidate.tuned else "was not tuned"
        elif candidate.trial > trials:
            problem = f"is trial {candidate.trial} of its architecture, of {trials}"
        if problem is not None:
            yield Observation(
                f"trial {trial}: {candidate.model} of round {candidate.round} {problem}",
                advice=RUN_AGAIN,
                reference=f"from round {settings.warmup_rounds + 1} on",
            )


@rule(layer=7, source="AIPerf §IV-E, decisions D16, D21", program="search")
def fixed_search_space(evidence: Evidence) -> Iterator[Observation]:
    """Leave the start, the space, the cap on growth and the use of TPE as the class has them."""
    reference, plan = evidence.reference.search, evidence.plan.search
    for name in FIXED_SETTINGS:
        expected, planned = getattr(reference, name, None), getattr(plan, name, None)
        if expected != planned:
            key = "initial_version" if name == "initial" else name
            statement, advice = f"{name.replace('_', ' ')}:", f"Leave automl.{key} out."
            yield mismatch(statement, planned, "the class has", expected, advice)
    if reference is not None:
        yield from _beyond_the_cap(evidence, reference)


def _beyond_the_cap(evidence: Evidence, search: Search) -> Iterator[Observation]:
    """Yield the models that have more operations than the cap on growth allows [D21]."""
    problem_class = evidence.reference
    start = class_architecture(
        search.initial,
        classes=problem_class.classes,
        input_channels=problem_class.input_shape[0],
    )
    starts: dict[str, Operations] = {}
    for trial, model in models(evidence):
        count = model.candidate.operations
        if count.convention not in CONVENTIONS:
            continue  # `operations of the architectures` reports it
        if count.convention not in starts:
            starts[count.convention] = count_architecture(
                start, input_shape=problem_class.input_shape, convention=count.convention
            )
        growth = count.forward_per_sample / starts[count.convention].forward_per_sample
        if growth > search.max_growth:
            yield Observation(
                f"trial {trial}: {model.id} has {growth:.3g} times the start's operations an "
                f"image, the class allows {search.max_growth:g}",
                advice=RUN_AGAIN,
                reference=f"at most {search.max_growth:g} times",
                run=f"{growth:.3g} times",
            )


@rule("a search's defaults", program="search")
def changed_defaults(evidence: Evidence) -> Iterator[Observation]:
    """Disclose changes of optimizer, learning rate, batch sizes, patience, …, which are free."""
    yield from differences(evidence, "a search's defaults")
    reference, plan = evidence.reference.search, evidence.plan.search
    for field in fields(reference) if reference is not None else ():
        expected, planned = getattr(reference, field.name), getattr(plan, field.name, None)
        if field.name not in (*FIXED_SETTINGS, "minutes") and expected != planned:
            statement = f"{field.name.replace('_', ' ')}:"
            yield mismatch(statement, planned, "the class has", expected, "")


@rule(source="AIPerf §IV-D, Table I", program="search")
def operations_of_the_architectures(evidence: Evidence) -> Iterator[Observation]:
    """Count every candidate's operations from its layers, on the whole data sets."""
    for trial, model in models(evidence):
        candidate = model.candidate
        for mistake in _miscounted(candidate, evidence):
            yield Observation(f"trial {trial}: {candidate.model} {mistake}", advice=RUN_AGAIN)


def _miscounted(candidate: Candidate, evidence: Evidence) -> Iterator[str]:
    reference = evidence.reference
    try:
        layers = Architecture(candidate.architecture)
        check(layers)
        counted = count_architecture(
            layers, input_shape=reference.input_shape, convention=candidate.operations.convention
        )
    except (AI500Error, LookupError, TypeError, ValueError, ZeroDivisionError) as error:
        yield f"has no architecture that can be counted: {error!r}"
        return
    if layers.digest != candidate.digest:
        yield f"is recorded as {candidate.digest}, its layers are {layers.digest}"
    if counted != candidate.operations:
        yield (
            f"is counted with {candidate.operations.forward_per_sample:.6g} + "
            f"{candidate.operations.backward_per_sample:.6g} operations an image, its layers have "
            f"{counted.forward_per_sample:.6g} + {counted.backward_per_sample:.6g}"
        )
    if candidate.steps_per_epoch * candidate.batch_size > reference.train_samples:
        yield (
            f"has epochs of {candidate.steps_per_epoch * candidate.batch_size} samples, the class "
            f"has {reference.train_samples}"
        )
    if candidate.validation_samples != reference.validation_samples:
        yield (
            f"is validated on {candidate.validation_samples} samples, the class has "
            f"{reference.validation_samples}"
        )


@rule(source="AIPerf §IV-D, V2 §5.3.2", program="search")
def work_in_order(evidence: Evidence) -> Iterator[Observation]:
    """Record a worker's work in order, one piece after the other."""
    for trial, search in searches(evidence):
        by_attempt: dict[tuple[int, int], list[Line]] = {}
        for line in search.lines:
            by_attempt.setdefault((line.worker, line.attempt), []).append(line)
        for (worker, _), lines in by_attempt.items():
            if (reason := _disorder(lines)) is not None:
                message = f"trial {trial}, worker {worker}: {reason}"
                yield Observation(message, advice=RUN_AGAIN)


def _disorder(lines: list[Line]) -> str | None:
    for line, following in pairwise(lines):
        if following.event["sequence"] <= line.event["sequence"]:
            return "its lines are not in the order they were written"
        if following.event["monotonic"] < line.event["monotonic"]:
            return "a later line has an earlier time, by its own clock"
    work = [(line.event["monotonic"], line.entry) for line in lines if isinstance(line.entry, Work)]
    for (before, _), (end, entry) in pairwise(work):
        if end - entry.seconds < before - OVERLAP_SECONDS:
            return f"{entry.seconds:.1f} s of work end {end - before:.1f} s after the work before"
    return None


@rule(source="AIPerf §IV-C", severity="note", program="search")
def readable_histories(evidence: Evidence) -> Iterator[Observation]:
    """Disclose unreadable lines of the histories, which are skipped."""
    for trial, search in searches(evidence):
        skipped = search.history.unreadable
        for line in skipped[:3]:
            yield Observation(f"trial {trial}, {line}")
        if len(skipped) > 3:
            yield Observation(f"trial {trial}: {len(skipped) - 3} more lines are skipped")


@rule(source="AIPerf §IV-C", severity="note", program="search")
def lost_models(evidence: Evidence) -> Iterator[Observation]:
    """Disclose models that a failure cost; their work counts once."""
    for trial in evidence.score.trials:
        if trial.search is not None and trial.search.lost:
            yield Observation(f"trial {trial.trial}: {trial.search.lost} model(s) were lost")


SEARCH_RULES = (
    *COMMON_RULES,
    least_time,
    largest_error,
    at_least_fp16,
    initial_architecture,
    network_morphism,
    tuned_from_the_fifth_round,
    fixed_search_space,
    changed_defaults,
    operations_of_the_architectures,
    work_in_order,
    readable_histories,
    lost_models,
)
"""Every rule that applies to a search."""
