"""The search of AIPerf as a program: workers that look for architectures until their time is up."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

from ai500.automl.history import HISTORY_FILE, History
from ai500.automl.progress import ProgressReader
from ai500.automl.rules import SEARCH_RULES, read_search_evidence, search_facts
from ai500.automl.score import mean_of_searches, score_search, search_result
from ai500.automl.sections import search_report
from ai500.bagging.member_views import DetailsReader
from ai500.config import AutomlConfig, Config
from ai500.core.errors import EnvironmentLacksError, setting_error
from ai500.core.events import Event, EventLog
from ai500.data.store import Store
from ai500.meters.log import read_meters
from ai500.metrics.trials import kept_trials, mean_of_trials, variation
from ai500.records import (
    EnsembleResult,
    Hyperparameters,
    InitialNetwork,
    Plan,
    ProblemClass,
    Score,
    Search,
    TrialScore,
)
from ai500.records.run_folder import RunFolder
from ai500.rules.rule import Rule
from ai500.workloads.models.architecture import MAX_KERNEL


class ArchitectureSearch:
    """A search: every worker trains one candidate architecture after another (AIPerf §IV)."""

    name = "search"
    member_noun = "worker"
    activity = "searching architectures"
    aggregation = "reading the workers' histories and scoring"
    trains_class_model = False
    entry_point = "ai500.automl.worker:run"
    member_files: Sequence[str] = (HISTORY_FILE,)
    rules: Sequence[Rule] = SEARCH_RULES
    evidence = staticmethod(read_search_evidence)
    facts = staticmethod(search_facts)
    report = staticmethod(search_report)

    def parallel_degree(self, config: Config, problem_class: ProblemClass) -> int | None:
        """Return the configured degree, else the class's, unless the workers' number is set."""
        if config.ensemble.size is not None or problem_class.search is None:
            return config.parallel.degree
        return config.parallel.degree or problem_class.search.degree

    def complete(self, plan: Plan, config: Config) -> Plan:
        """Check the search's settings; its workers train on the whole data set for a fixed time.

        Its operations are unknown: they depend on the architectures that it tries.
        """
        search = planned_search(plan, config)
        return dataclasses.replace(
            plan,
            sampler="whole",
            search=search,
            estimated_seconds=plan.waves * search.minutes * 60 * plan.trials,
            estimate_basis="each worker searches for its time",
        )

    def recover(self, run: RunFolder, plan: Plan, *, trial: int, log: EventLog) -> None:
        """Do nothing: each worker resumes from its history."""

    def details_reader(self, run: RunFolder, trial: int) -> DetailsReader:
        """Return a function that reads rounds and models from the workers' histories."""
        return ProgressReader(run.trial(trial).members).refresh

    def aggregate(
        self, run: RunFolder, plan: Plan, trial: int, *, finished: Sequence[int], store: Store
    ) -> EnsembleResult:
        """Return the best model of each worker that finished."""
        history = History(run.trial(trial).members)
        return search_result(history, finished=finished, ensemble_size=plan.ensemble_size)

    def score_trial(
        self, run: RunFolder, plan: Plan, trial: int, *, events: Sequence[Event]
    ) -> TrialScore:
        """Compute a trial's score from its events and the workers' histories."""
        folder = run.trial(trial)
        history, meters = History(folder.members), read_meters(folder.meters)
        return score_search(plan, events, history=history, trial=trial, meters=meters)

    def score_run(self, trials: Sequence[TrialScore], *, required_runs: int) -> Score:
        """Average the kept trials, and the figures of their searches."""
        kept = kept_trials(trials, required_runs=required_runs)
        searches = [trial.search for trial in kept if trial.search]
        spent = [trial.search.operations_to_target for trial in trials if trial.search]
        return dataclasses.replace(
            mean_of_trials(trials, required_runs=required_runs),
            search=mean_of_searches(searches, variation=variation(spent)),
        )


SEARCH = ArchitectureSearch()


def planned_search(plan: Plan, config: Config) -> Search:
    """Apply the user's changes to the class's search, and check them."""
    problem_class, hyper, reference = plan.definition, plan.hyperparameters, plan.definition.search
    assert reference is not None
    if reference.needs_accelerator and plan.device == "cpu":
        raise EnvironmentLacksError(
            f"class {problem_class.name} of {config.workload} needs accelerators; torch can use "
            "none on this system, and a CPU would not train one model in its "
            f"{reference.minutes:g} minutes.",
            key="problem_class",
            value=problem_class.name,
            remedy='Choose problem_class = "smoke".',
        )
    search = dataclasses.replace(reference, **_changes(config.automl, reference.initial))
    for key, value, problem, remedy in (*_own(plan, config), *_mistakes(config, search, hyper)):
        raise setting_error(key, value, problem, remedy)
    largest = max(search.batch_sizes) * hyper.accumulation * plan.parallel_degree
    if largest > problem_class.train_samples:
        raise setting_error(
            "automl.batch_sizes",
            search.batch_sizes,
            f"a step of {largest} images (the largest × parallel.degree × train.accumulation) is "
            f"more than the {problem_class.train_samples} samples of class {problem_class.name}.",
            "Leave it out.",
        )
    return search


def _changes(settings: AutomlConfig, initial: InitialNetwork) -> dict[str, Any]:
    values = {field.name: getattr(settings, field.name) for field in dataclasses.fields(settings)}
    version = values.pop("initial_version")
    if version is not None:
        values["initial"] = dataclasses.replace(initial, version=version)
    return {name: value for name, value in values.items() if value is not None}


def _own(plan: Plan, config: Config) -> Iterator[tuple[str, object, str, str]]:
    """Yield key, value, problem and remedy of every class and part of the user's own."""
    if (name := config.custom_class.name) is not None:
        yield "custom_class.name", name, "a search has registered classes only.", "Leave it out."
    for part in plan.own_code.parts:
        problem = "no effect with a search: it replaces parts of an ensemble's training."
        value = getattr(plan.own_code, part)
        yield f"free_level.{part}", value, problem, "Leave [free_level] out."


def _mistakes(
    config: Config, search: Search, hyper: Hyperparameters
) -> Iterator[tuple[str, object, str, str]]:
    """Yield key, value, problem and remedy of every setting that a search can't use."""
    batches, kernels = search.batch_sizes, search.kernel_sizes
    if not batches or min(batches) < 1:
        problem = "TPE needs at least one size, each at least 1."
        yield "automl.batch_sizes", batches, problem, "Set sizes such as [32, 64]."
    if not kernels or any(size < 1 or size % 2 == 0 for size in kernels):
        problem = "TPE needs sizes, all odd: an added block keeps the size of its input."
        yield "automl.kernel_sizes", kernels, problem, "Set sizes such as [3, 5]."
    elif max(kernels) > MAX_KERNEL:
        problem = f"the largest kernel is {MAX_KERNEL}."
        yield "automl.kernel_sizes", kernels, problem, "Set smaller sizes, such as [3, 5]."
    for name, sizes in (("batch_sizes", batches), ("kernel_sizes", kernels)):
        if len(set(sizes)) < len(sizes):
            yield f"automl.{name}", sizes, "a size is repeated.", "Set each size once."
    if search.initial.kind == "basic" and search.initial.version != "v1.5":
        problem = "the class starts at a network of basic blocks, which v1 and v1.5 have in common."
        yield "automl.initial_version", search.initial.version, problem, "Leave it out."
    if search.max_growth <= 1:
        problem = "every child has more operations than the initial model: none would be allowed."
        yield "automl.max_growth", search.max_growth, problem, "Set more than 1, such as 3."
    for name, allowed in (("mode", "data"), ("sharded", False)):
        if (value := getattr(config.parallel, name)) != allowed:
            problem = (
                "the accelerators of a worker share the batch of each model (AIPerf Table IV: "
                "synchronous all-reduce)."
            )
            yield f"parallel.{name}", value, problem, 'Leave it out: parallel.mode = "data".'
    if (sampler := config.ensemble.sampler) not in ("bootstrap", "whole"):
        problem = "all workers of a search train on the whole data set."
        yield "ensemble.sampler", sampler, problem, "Leave it out."
    if (every := hyper.evaluate_every_epochs) != 1:
        problem = "a search validates after every epoch (AIPerf §IV-E: patience, prediction)."
        yield "train.evaluate_every_epochs", every, problem, "Leave it out."
