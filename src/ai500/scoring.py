"""The run folder's scores and findings, recomputed from its events at any time. Needs no torch."""

from __future__ import annotations

from typing import Literal

from ai500 import events, plugins, rundir
from ai500.bagging.job_controller import train_record
from ai500.errors import JobError
from ai500.metrics.trials import mean_of_trials, score_trial
from ai500.records import Finding, Placement, Plan, Score
from ai500.rules import checks as checks  # registers the rules
from ai500.rules.layers import Evidence, judge
from ai500.rundir import RunFolder


def score_run(run: RunFolder) -> Score:
    """The run's score and findings, recomputed from the events."""
    plan = rundir.read(Plan, run.plan)
    told = list(events.read(run.events))
    done = sorted({int(e.get("trial", 0)) for e in told if e["event"] == "aggregate"})
    if not done:
        raise JobError(f"{run.path} has no finished trial yet: `ai500 resume {run.path}`.")
    try:
        trials = [score_trial(plan, told, trial=number) for number in done]
    except (KeyError, TypeError, ValueError) as error:
        raise JobError(f"{run.events} is damaged: an event lacks {error}.") from error
    for number, one in zip(done, trials, strict=True):
        rundir.write(run.trial(number).score, one)
    score = mean_of_trials(trials)
    rundir.write(run.score, score)
    rundir.write(run.findings, find(run, plan, score))
    return score


def find(run: RunFolder, plan: Plan, score: Score) -> list[Finding]:
    """What the rules say of the run."""
    members, placements = [], []
    for one in score.trials:
        assert one.trial is not None
        trial = run.trial(one.trial)
        placements += rundir.read_all(Placement, trial.placement)
        folders = [trial.member(member) for member in range(plan.ensemble_size)]
        members += [train_record(folder) for folder in folders if folder.record.exists()]
    reference = plugins.workload(plan.workload).problem_classes[plan.problem_class]
    return judge(
        Evidence(
            reference=reference, plan=plan, score=score, placements=placements, members=members
        )
    )


def state_of(run: RunFolder, plan: Plan) -> Literal["running", "finished", "stopped"]:
    """Finished is a run whose every planned trial is scored, with all its members."""
    if run.holder() is not None:
        return "running"
    files = [run.trial(number).score for number in range(1, plan.trials + 1)]
    whole = all(file.exists() and rundir.read(Score, file).complete for file in files)
    return "finished" if whole and run.score.exists() else "stopped"
