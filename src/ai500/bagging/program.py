"""The ensemble of V3 as a program: members that each train the class's model on a bootstrap."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from ai500.bagging.aggregate import MemberPredictions, aggregate, illustrate, read_predictions
from ai500.bagging.member_views import DetailsReader
from ai500.bagging.score import score_trial
from ai500.bagging.sections import ensemble_report
from ai500.config import AutomlConfig, Config
from ai500.core.errors import setting_error
from ai500.core.events import Event
from ai500.data.bootstrap import recorded_counts
from ai500.data.store import Store
from ai500.meters.log import read_meters
from ai500.metrics.trials import mean_of_trials
from ai500.records import (
    BootstrapRecord,
    EnsembleResult,
    Plan,
    ProblemClass,
    TrialScore,
    run_folder,
)
from ai500.records.run_folder import RunFolder
from ai500.rules.facts import ensemble_facts
from ai500.rules.registry import ENSEMBLE_RULES
from ai500.rules.rule import Rule
from ai500.workloads.protocol import load_workload


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

    def complete(self, plan: Plan, config: Config) -> Plan:
        """Refuse settings of a search; count a trial's operations; estimate the run's time."""
        for field in dataclasses.fields(AutomlConfig):
            if (value := getattr(config.automl, field.name)) is not None:
                raise setting_error(
                    f"automl.{field.name}",
                    value,
                    f"no effect: workload {config.workload} trains an ensemble, not a search.",
                    'Set workload = "automl", or leave [automl] out.',
                )
        hyper, count, operations, seconds = plan.hyperparameters, plan.operations, None, None
        steps = plan.steps_per_epoch * hyper.epochs
        if count is not None:
            operations = count.per_step(plan.global_batch_size) * steps * plan.ensemble_size
        per_image, reason = plan.definition.seconds_per_image, _not_measured(plan)
        basis = f"not estimated: {reason}"
        if not reason and per_image is not None:
            seconds = plan.waves * (steps * hyper.images_per_step) * per_image * plan.trials
            basis = f"measured on {plan.definition.measured_on}"
        return dataclasses.replace(
            plan,
            operations_per_trial=operations,
            estimated_seconds=seconds,
            estimate_basis=basis,
        )

    def details_reader(self, run: RunFolder, trial: int) -> DetailsReader:
        """Return a function that reads nothing: a member's progress is its epochs."""
        return dict

    def aggregate(
        self, run: RunFolder, plan: Plan, trial: int, *, finished: Sequence[int], store: Store
    ) -> EnsembleResult:
        """Average the members' predictions, and draw the workload's pictures of them."""
        folder = run.trial(trial)
        bootstraps = run_folder.read_all(BootstrapRecord, folder.bootstraps)
        predictions = [
            MemberPredictions(
                member=member,
                validation=read_predictions(folder.member(member).validation),
                out_of_bag=read_predictions(folder.member(member).out_of_bag),
                counts=recorded_counts(run.path, bootstraps[member]),
            )
            for member in finished
        ]
        result = aggregate(
            predictions,
            workload=load_workload(plan.workload),
            validation_labels=store.splits["validation"].labels,
            train_labels=store.splits["train"].labels,
            ensemble_size=plan.ensemble_size,
            out_of_bag_limit=plan.definition.out_of_bag_samples,
        )
        illustrate(folder, plan=plan, samples=store.splits["validation"])
        return result

    def score_trial(
        self, run: RunFolder, plan: Plan, trial: int, *, events: Sequence[Event]
    ) -> TrialScore:
        """Compute a trial's score from its events."""
        return score_trial(plan, events, trial=trial, meters=read_meters(run.trial(trial).meters))

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
