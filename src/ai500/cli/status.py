"""`ai500 status`: the progress of a run, read from its folder and the scheduler."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Sequence
from typing import Annotated, Any

import typer
from rich.console import Group
from rich.text import Text

from ai500.bagging.member_views import SUSPENDED, Collector, DetailsReader, MemberView
from ai500.cli.arguments import AsJson, ReadRunPath
from ai500.cli.newest import chosen_run
from ai500.cli.terminal import console, members_table, print_json, run_bar, totals
from ai500.core import events
from ai500.core.errors import AI500Error, InputError
from ai500.core.schema import encode
from ai500.core.shell import quoted
from ai500.jobs.schedulers import ACTIVE, load_scheduler
from ai500.metrics.node_health import Sign, trial_signs
from ai500.records import JobRecord, Plan, run_folder
from ai500.records.run_folder import RunFolder
from ai500.records.worker_exit import exit_remedy

FOLLOW_SECONDS, LOG_SECONDS = 1.0, 10.0
"""Seconds between two reads of the run folder: on a terminal, and in a log file."""
PAUSE_PER_LOOK = 4.0
"""Least pause after a read, in multiples of the time that it took."""
MAX_METER_BYTES = 256 << 20
"""Size of a trial's meter logs above which their signs are left to the report."""


def status(
    path: ReadRunPath = None,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Show it until the run ends; Ctrl-C leaves.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Show the progress of a run: state, epochs, loss, time left.

    Example: ai500 status runs/first
    """
    if follow and as_json:
        raise InputError("--follow and --json exclude each other.", key="--follow")
    folder = chosen_run(path)
    if follow:
        _follow(folder)
    _show_status(folder, as_json=as_json)


def _follow(folder: RunFolder) -> None:
    """Draw the members until no controller works on the run; in a log file print the totals."""
    from rich.live import Live  # slow to import; without --follow nothing is drawn live

    live = Live(console=console, transient=True, auto_refresh=False)
    with live if console.is_terminal else contextlib.nullcontext():
        while folder.holder() is not None:
            began = time.monotonic()
            plan = run_folder.read(Plan, folder.plan)
            number = current_trial(folder, plan)
            if number:
                views = _views(folder, plan, number, finished=False)
                bar = run_bar(views, plan, trial=number)
                if console.is_terminal:
                    table = members_table(views, plan)
                    live.update(Group(Text(str(folder.path)), bar, table), refresh=True)
                else:
                    line = f"trial {number} of {plan.trials}: {totals(views, plan)}"
                    console.print(line, soft_wrap=True, markup=False)
            # A look reads all logs of the trial, which grow: it takes a fifth of the time at most.
            pause = FOLLOW_SECONDS if console.is_terminal else LOG_SECONDS
            time.sleep(max(pause, PAUSE_PER_LOOK * (time.monotonic() - began)))


def _show_status(folder: RunFolder, *, as_json: bool) -> None:
    path = folder.path
    with run_folder.explaining_contradictions(path):
        plan = run_folder.read(Plan, folder.plan)
        state: str = run_folder.state_of(folder, plan)
        owner = folder.owner()
        number = current_trial(folder, plan)
        views = _views(folder, plan, number, finished=state == "finished") if number else []
        signs = _signs(folder, plan, number) if number else []
    active = any(view.state in ACTIVE for view in views)
    if state == "stopped" and active and load_scheduler(plan.scheduler).outlives_controller:
        state = "detached"  # jobs are running; no controller is attached
    outage = _outage(folder, number) if owner else None
    if as_json:
        summary = {
            "run": str(path),
            "state": state,
            "controller": owner,
            "trial": number,
            "trials": plan.trials,
            "outage": outage,
            "signs": [encode(sign) for sign in signs],
            "members": [encode(view) | {"seconds_left": view.seconds_left} for view in views],
        }
        print_json(summary)
        return
    owned = f" ({owner})" if owner else ""
    console.print(f"{path}: {state}{owned}", soft_wrap=True, markup=False)
    if number:
        ended = state == "finished"
        console.print(
            f"trial {number} of {plan.trials}" if ended else run_bar(views, plan, trial=number)
        )
        console.print(members_table(views, plan))
    for sign in signs:
        console.print(f"node to test: {sign}", soft_wrap=True, markup=False)
    if outage is not None:
        since = time.strftime("%H:%M:%S", time.localtime(outage["since"]))
        text = f"the scheduler has not answered since {since}: {outage['reason']}"
        console.print(text, soft_wrap=True, markup=False)
    if state == "detached":
        console.print(
            "jobs are still running; no controller is attached", soft_wrap=True, markup=False
        )
    if state in ("stopped", "detached"):
        for line in _advice(folder, number, views):
            console.print(line, soft_wrap=True, markup=False)
    for file in (folder.score, folder.report):
        if file.exists():
            console.print(str(file), soft_wrap=True, markup=False)


def _advice(folder: RunFolder, number: int, views: Sequence[MemberView]) -> list[str]:
    """Return how to continue: a resume, or what failed members need before it."""
    run = str(folder.path)
    failed = {view.member for view in views if view.state == "failed"}
    jobs = run_folder.read_all(JobRecord, folder.trial(number).jobs) if failed else []
    causes = {job.cause for job in jobs if job.member in failed}
    remedies = {exit_remedy(cause, run=run) for cause in causes} - {exit_remedy(None, run=run)}
    return sorted(remedies) or [f"to continue: ai500 resume {quoted(run)}"]


def _outage(folder: RunFolder, number: int) -> dict[str, Any] | None:
    """Return since when and why the scheduler has not answered the controller; None: it does."""
    outage: dict[str, Any] | None = None
    kinds = ("scheduler_unreachable", "scheduler_reachable")
    for event in events.read_kinds(folder.events, kinds):
        if event.get("trial") == number:
            unreachable = event["event"] == "scheduler_unreachable"
            outage = {"since": event["wall"], "reason": event["reason"]} if unreachable else None
    return outage


def _signs(folder: RunFolder, plan: Plan, number: int) -> list[Sign]:
    """Return the signs of sick nodes, from the events that a controller has collected."""
    log = events.read_checked(folder.events)
    return trial_signs(folder, plan, log, trial=number, most_bytes=MAX_METER_BYTES)


def _suspended(folder: RunFolder, number: int) -> set[int]:
    """Return the members whose jobs were suspended when the controller last queried them."""
    members: set[int] = set()
    for event in events.read_kinds(folder.events, ("job_suspended", "job_continued")):
        if event.get("trial") == number:
            change = members.add if event["event"] == "job_suspended" else members.discard
            change(event["member"])
    return members


def _views(folder: RunFolder, plan: Plan, number: int, *, finished: bool) -> list[MemberView]:
    """Read the members' progress from disk and the scheduler; write nothing."""
    trial = folder.trial(number)
    views = {member: MemberView(member) for member in range(plan.ensemble_size)}
    Collector(
        folder, trial=number, members=list(views), read_details=_details(folder, plan, number)
    ).show_all(views)
    for job in run_folder.read_jobs(trial, views):
        view = views[job.member]
        view.state, view.attempt = job.state, max(view.attempt, job.attempt)
        view.reason = job.end or None
    for member in _suspended(folder, number):
        if member in views and views[member].state == "running":
            views[member].reason = SUSPENDED[0]
    if not finished:
        _show_newer_states(folder, plan, number, views)
    for member, view in views.items():
        if trial.member(member).record.exists():
            view.state, view.reason = "done", None
    if any(view.state == "running" for view in views.values()):
        from ai500.workloads.protocol import sample_noun  # loads the workload

        noun = sample_noun(plan.workload)
        for view in views.values():
            view.sample_noun = noun
    else:
        for view in views.values():
            view.samples_per_second = None  # the last reading of a member that has ended
    return list(views.values())


def _details(folder: RunFolder, plan: Plan, number: int) -> DetailsReader:
    """Return the program's reader; an ensemble's reads nothing, so no program is imported."""
    if plan.search is None:
        return dict
    from ai500.pipeline.programs import program_of

    return program_of(plan).details_reader(folder, number)


def _show_newer_states(
    folder: RunFolder, plan: Plan, number: int, views: dict[int, MemberView]
) -> None:
    """Ask the scheduler where no controller updates the records, or where jobs wait."""
    from ai500.jobs import trial_jobs

    followed = folder.owner() is not None
    waits = any(view.state == "pending" for view in views.values())
    if followed and not (waits and load_scheduler(plan.scheduler).outlives_controller):
        return
    try:
        states = trial_jobs.active_jobs(folder, number)
    except AI500Error as error:
        print(f"showing the states last recorded: {error}", file=sys.stderr)
        states = {}
    for member, (_, current) in states.items():
        views[member].reason = current.reason or views[member].reason
        if not followed:
            views[member].state = current.state


def current_trial(folder: RunFolder, plan: Plan) -> int:
    """Return the number of the last trial that began; 0: none."""
    started = [n for n in range(1, plan.trials + 1) if folder.trial(n).trial.exists()]
    return max(started, default=0)
