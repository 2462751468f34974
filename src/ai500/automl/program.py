"""The search of AIPerf as a program: workers that look for architectures until their time is up."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence

from ai500.automl.history import FILE, History
from ai500.automl.progress import Watch
from ai500.automl.rules import (
    SEARCH_RULES,
    SearchEvidence,
    read_search_evidence,
    search_facts,
)
from ai500.automl.search_plan import planned_search
from ai500.automl.search_score import mean_of_searches, search_result
from ai500.automl.sections import search_report
from ai500.automl.trial_score import score_search
from ai500.bagging.member_views import DetailsReader
from ai500.bagging.program import ProgramSettings, TrialCost
from ai500.config import Config
from ai500.core.events import Event
from ai500.data.store import Store
from ai500.meters.log import read_meters
from ai500.metrics.trials import kept_trials, mean_of_trials, variation
from ai500.records import (
    BootstrapRecord,
    EnsembleResult,
    Hyperparameters,
    Plan,
    ProblemClass,
    Score,
    TrialScore,
)
from ai500.records.run_folder import RunFolder, TrialFolder
from ai500.report.run_data import RunData
from ai500.report.run_report import ProgramReport
from ai500.rules.evidence import Evidence, Fact
from ai500.rules.rule import Rule


class ArchitectureSearch:
    """A search: every worker trains one candidate architecture after another (AIPerf §IV)."""

    name = "search"
    member_noun = "worker"
    activity = "searching architectures"
    aggregation = "reading the workers' histories and scoring"
    entry_point = "ai500.automl.worker:run"
    member_files: Sequence[str] = (FILE,)
    rules: Sequence[Rule] = SEARCH_RULES

    def parallel_degree(self, config: Config, problem_class: ProblemClass) -> int | None:
        """Return the configured degree, else the class's, unless the workers' number is set."""
        if config.ensemble.size is not None or problem_class.search is None:
            return config.parallel.degree
        return config.parallel.degree or problem_class.search.degree

    def settings(
        self,
        config: Config,
        problem_class: ProblemClass,
        hyper: Hyperparameters,
        *,
        device: str,
        degree: int,
    ) -> ProgramSettings:
        """Check the search's settings; its workers train on the whole data set."""
        search = planned_search(config, problem_class, hyper, device=device, degree=degree)
        return ProgramSettings("whole", search)

    def cost(self, plan: Plan) -> TrialCost:
        """Return the fixed time; its operations depend on the architectures it tries."""
        seconds = None if plan.search is None else plan.waves * plan.search.minutes * 60
        return TrialCost(None, seconds, "each worker searches for its time")

    def details_reader(self, trial: TrialFolder) -> DetailsReader:
        """Return a function that reads rounds and models from the workers' histories."""
        return Watch(trial.members).look

    def aggregate(
        self,
        run: RunFolder,
        plan: Plan,
        trial: TrialFolder,
        *,
        finished: Sequence[int],
        store: Store,
        bootstraps: Sequence[BootstrapRecord],
    ) -> EnsembleResult:
        """Return the best model of each worker that finished."""
        del run, store, bootstraps
        history = History(trial.members)
        return search_result(history, finished=finished, ensemble_size=plan.ensemble_size)

    def score_trial(
        self, plan: Plan, events: Sequence[Event], trial: TrialFolder, *, number: int
    ) -> TrialScore:
        """Compute a trial's score from its events and the workers' histories."""
        history, meters = History(trial.members), read_meters(trial.meters)
        return score_search(plan, events, history=history, trial=number, meters=meters)

    def score_run(self, trials: Sequence[TrialScore], *, required_runs: int) -> Score:
        """Average the kept trials, and the figures of their searches."""
        kept = kept_trials(trials, required_runs=required_runs)
        searches = [trial.search for trial in kept if trial.search]
        spent = [trial.search.operations_to_target for trial in trials if trial.search]
        return dataclasses.replace(
            mean_of_trials(trials, required_runs=required_runs),
            search=mean_of_searches(searches, variation=variation(spent)),
        )

    def evidence(self, run: RunFolder, trial: int) -> SearchEvidence:
        """Read the histories of a trial's workers."""
        return read_search_evidence(run, trial)

    def facts(self, evidence: Evidence) -> Iterable[Fact]:
        """Yield the facts of a search."""
        return search_facts(evidence)

    def report(self, run: RunData) -> ProgramReport:
        """Return a search's part of the report."""
        return search_report(run)


SEARCH = ArchitectureSearch()
