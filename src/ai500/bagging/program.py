"""The programs of the benchmark: what the members of a run do, and how a run is scored.

There are two. Below is the ensemble, whose members each train the class's model on a bootstrap
(V3); `automl/program.py` has the search, whose workers train one architecture after another
(AIPerf). `pipeline/programs.py` chooses between them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from ai500.bagging.aggregate import MemberPredictions, aggregate, read_predictions
from ai500.bagging.illustrate import illustrate
from ai500.bagging.member_views import DetailsReader
from ai500.bagging.score import score_trial
from ai500.bagging.script_result import script_result
from ai500.bagging.sections import ensemble_report
from ai500.config import AutomlConfig, Config
from ai500.core.errors import ConfigError
from ai500.core.events import Event
from ai500.data.bootstrap import recorded_counts
from ai500.data.store import Store
from ai500.meters.log import read_meters
from ai500.metrics.trials import mean_of_trials
from ai500.records import (
    BootstrapRecord,
    EnsembleResult,
    Hyperparameters,
    Plan,
    ProblemClass,
    Score,
    Search,
    TrialScore,
)
from ai500.records.run_folder import RunFolder, TrialFolder
from ai500.report.run_data import RunData
from ai500.report.run_report import ProgramReport
from ai500.rules.evidence import Evidence, Fact
from ai500.rules.facts import ensemble_facts
from ai500.rules.registry import ENSEMBLE_RULES
from ai500.rules.rule import Rule
from ai500.workloads.protocol import load_workload


@dataclass(frozen=True, slots=True)
class ProgramSettings:
    """Part of a plan that only its program decides."""

    sampler: str
    search: Search | None = None


@dataclass(frozen=True, slots=True)
class TrialCost:
    """Estimated cost of one trial; None: not known."""

    operations: int | None
    seconds: float | None
    basis: str
    """Reason of the estimated seconds, or of their absence."""


class Program(Protocol):
    """Everything about a run that depends on what its members do."""

    name: str
    member_noun: str
    """Name of a member in reports."""
    activity: str
    """Name of the training stage."""
    aggregation: str
    """Name of the stage after it."""
    entry_point: str
    """`module:function` that a member's process calls."""
    member_files: Sequence[str]
    """Files that each member leaves beside its record and events."""
    rules: Sequence[Rule]
    """Rules that a run of the program is judged by."""

    def parallel_degree(self, config: Config, problem_class: ProblemClass) -> int | None:
        """Return P_degree of a member; None: Eq. 5 decides."""

    def settings(
        self,
        config: Config,
        problem_class: ProblemClass,
        hyper: Hyperparameters,
        *,
        device: str,
        degree: int,
    ) -> ProgramSettings:
        """Check the program's configuration and return its part of the plan."""

    def cost(self, plan: Plan) -> TrialCost:
        """Estimate one trial of a plan."""

    def details_reader(self, trial: TrialFolder) -> DetailsReader:
        """Return a function that reads what the live view shows besides epochs."""

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
        """Combine the results of the members that finished."""

    def score_trial(
        self, plan: Plan, events: Sequence[Event], trial: TrialFolder, *, number: int
    ) -> TrialScore:
        """Compute a trial's score from its records."""

    def score_run(self, trials: Sequence[TrialScore], *, required_runs: int) -> Score:
        """Combine the scores of the trials."""

    def evidence(self, run: RunFolder, trial: int) -> object | None:
        """Read what only this program's rules need of a trial."""

    def facts(self, evidence: Evidence) -> Iterable[Fact]:
        """Yield the facts of a run that are compared with the reference."""

    def report(self, run: RunData) -> ProgramReport:
        """Return the part of a run's report that depends on the program."""


class Ensemble:
    """A bagged ensemble: every member trains the class's model on its own bootstrap."""

    name = "ensemble"
    member_noun = "member"
    activity = "training the ensemble"
    aggregation = "aggregating predictions and scoring"
    entry_point = "ai500.train.member_process:run"
    member_files: Sequence[str] = ()
    rules: Sequence[Rule] = ENSEMBLE_RULES
    facts = staticmethod(ensemble_facts)
    report = staticmethod(ensemble_report)
    score_run = staticmethod(mean_of_trials)

    def parallel_degree(self, config: Config, problem_class: ProblemClass) -> int | None:
        """Return the configured degree."""
        return config.parallel.degree

    def settings(
        self,
        config: Config,
        problem_class: ProblemClass,
        hyper: Hyperparameters,
        *,
        device: str,
        degree: int,
    ) -> ProgramSettings:
        """Refuse settings of a search; the sampler is the configured one."""
        for field in dataclasses.fields(AutomlConfig):
            if getattr(config.automl, field.name) is not None:
                raise ConfigError(
                    f"automl.{field.name} has no effect: workload {config.workload} trains an "
                    "ensemble and searches nothing.",
                    key=f"automl.{field.name}",
                    value=getattr(config.automl, field.name),
                    remedy='Set workload = "automl", or leave [automl] out.',
                )
        return ProgramSettings(config.ensemble.sampler)

    def cost(self, plan: Plan) -> TrialCost:
        """Count the planned steps' operations; estimate the time from a measured speed."""
        hyper, count, operations = plan.hyperparameters, plan.operations, None
        steps = plan.steps_per_epoch * hyper.epochs
        if count is not None:
            operations = count.per_step(plan.global_batch_size) * steps * plan.ensemble_size
        per_image, reason = plan.definition.seconds_per_image, _not_measured(plan)
        if reason or per_image is None:
            return TrialCost(operations, None, f"not estimated: {reason}")
        seconds = plan.waves * (steps * hyper.images_per_step) * per_image
        return TrialCost(operations, seconds, f"measured on {plan.definition.measured_on}")

    def details_reader(self, trial: TrialFolder) -> DetailsReader:
        """Return a function that reads nothing: a member's progress is its epochs."""
        return dict

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
        """Average the members' predictions, and draw the workload's pictures of them."""
        if plan.framework.kind == "script":
            counts = {m: recorded_counts(run.path, bootstraps[m]) for m in finished}
            return script_result(plan, trial, finished=finished, store=store, counts=counts)
        predictions = [
            MemberPredictions(
                member=member,
                validation=read_predictions(trial.member(member).validation),
                out_of_bag=read_predictions(trial.member(member).out_of_bag),
                counts=recorded_counts(run.path, bootstraps[member]),
            )
            for member in finished
        ]
        result = aggregate(
            predictions,
            workload=load_workload(plan.workload),
            validation=store.splits["validation"],
            train=store.splits["train"],
            ensemble_size=plan.ensemble_size,
            out_of_bag_limit=plan.definition.out_of_bag_samples,
        )
        illustrate(trial, plan=plan, samples=store.splits["validation"])
        return result

    def score_trial(
        self, plan: Plan, events: Sequence[Event], trial: TrialFolder, *, number: int
    ) -> TrialScore:
        """Compute a trial's score from its events."""
        return score_trial(plan, events, trial=number, meters=read_meters(trial.meters))

    def evidence(self, run: RunFolder, trial: int) -> None:
        """Read nothing: the members' records suffice."""


def _not_measured(plan: Plan) -> str:
    """Return why the class's measured speed does not apply to a plan; empty: it applies."""
    definition, name = plan.definition, plan.definition.name
    if plan.members_per_accelerator > 1:
        return "no timing data for shared accelerators"
    measured_on = (definition.measured_on or "").partition(":")[0]
    if definition.seconds_per_image is None or measured_on != plan.device:
        return f"class {name} was not measured on {plan.device}"
    if plan.parallel.mode != "data" or plan.parallel.sharded:
        return f"class {name} was measured with data parallelism"
    if plan.hyperparameters.precision != definition.reference.precision:
        return f"class {name} was not measured in this precision"
    return ""


ENSEMBLE = Ensemble()
