"""Run a benchmark and work with its folder: run, resume, status, cancel, finish, score."""

from __future__ import annotations

import os
import signal
import socket
import time
import webbrowser
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Annotated

import typer

from ai500 import config as configuration
from ai500.automl.finish_request import request_finish, require_least_time
from ai500.cli.arguments import AsJson, ReadRunPath, RunPath
from ai500.cli.newest import chosen_run
from ai500.cli.options import ConfigOptions, with_options
from ai500.cli.output import surviving_output
from ai500.cli.plan import planned, show_prospects
from ai500.cli.score_view import show_score
from ai500.cli.status import current_trial
from ai500.cli.terminal import Terminal, console, print_json, print_report_path
from ai500.cli.verbosity import is_quiet
from ai500.core.atomic import write_text
from ai500.core.errors import EnvironmentLacksError, InputError
from ai500.core.interrupts import as_disconnection, as_interrupt
from ai500.core.shell import quoted
from ai500.jobs import trial_jobs
from ai500.jobs.schedulers import ACTIVE, load_scheduler
from ai500.operations.count import convention_named
from ai500.pipeline import scoring
from ai500.pipeline import stages as pipeline
from ai500.pipeline.scoring import write_report
from ai500.profile import page as profile_page
from ai500.records import Plan, Score, run_folder
from ai500.records.findings import Finding
from ai500.records.run_folder import RunFolder
from ai500.roofline import page as roofline_page

CANCEL_SECONDS = 240.0  # members write checkpoints first
Detach = Annotated[
    bool, typer.Option("--detach", help="Submit the jobs and exit; `resume` follows them.")
]


@with_options()
def run(
    selected: ConfigOptions,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Run folder. Default: runs/<name>.")
    ] = None,
    detach: Detach = False,
    as_json: AsJson = False,
) -> None:
    """Train the bagged ensemble, score it, and write the report.

    --runs valid runs as many trials as a valid result needs, and where it can chooses a layout in
    which all members train at once. Before it starts it says whether the result can be valid.

    Example: ai500 run --class smoke --out runs/my-run
    """
    config, plan = planned(selected.load())
    stamp = time.strftime("%Y%m%d-%H%M%S")
    name = f"{config.workload}-{config.problem_class}-{stamp}"
    folder = pipeline.prepare(config, out or Path("runs") / name)
    if not (as_json or is_quiet()):
        with surviving_output():
            show_prospects(plan)
    _execute(folder, as_json=as_json, detach=detach)


def resume(
    path: RunPath,
    assignments: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="KEY=VALUE", help="Change a site option, e.g. slurm.partition=long."
        ),
    ] = None,
    detach: Detach = False,
    as_json: AsJson = False,
) -> None:
    """Resume a run that was stopped or failed.

    Finished work is not repeated; jobs that are still queued or running are followed. --set changes
    where jobs run that are submitted from now on (partition, memory, interpreter, …), and is
    recorded; what is trained cannot change.

    Example: ai500 resume runs/first
    """
    overrides = dict(configuration.parse_assignment(text) for text in assignments or ())
    _execute(RunFolder.open(path), as_json=as_json, detach=detach, overrides=overrides)


def _execute(
    folder: RunFolder,
    *,
    as_json: bool,
    detach: bool,
    overrides: Mapping[str, object] = MappingProxyType({}),
) -> None:
    # SIGTERM and Ctrl-C stop the members, which write checkpoints. A closed terminal does the same
    # to local jobs; jobs of a cluster keep running.
    signal.signal(signal.SIGTERM, as_interrupt)
    if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:  # nohup ignores it
        signal.signal(signal.SIGHUP, as_disconnection)
    with surviving_output():
        plan = run_folder.read(Plan, folder.plan)
        with Terminal(quiet=as_json, plan=plan) as terminal:
            if not (as_json or is_quiet()):
                console.print(f"run folder {folder.path}", soft_wrap=True, markup=False)
            result = pipeline.execute(folder, terminal, detach=detach, overrides=overrides)
        _print_score(folder, result, as_json=as_json)


def _print_score(folder: RunFolder, result: Score, *, as_json: bool) -> None:
    if as_json:
        print_json(result)
        return
    show_score(result, run_folder.read_all(Finding, folder.findings))
    if folder.report.exists():
        console.print(f"report {folder.report.resolve()}", soft_wrap=True, markup=False)


def cancel(path: RunPath, as_json: AsJson = False) -> None:
    """Cancel a run; members write checkpoints, and `resume` continues.

    Example: ai500 cancel runs/first
    """
    folder = RunFolder.open(path)
    plan = run_folder.read(Plan, folder.plan)
    number = current_trial(folder, plan)
    was_running = _end_controller(folder)
    if number and load_scheduler(plan.scheduler).outlives_controller:
        was_running |= trial_jobs.cancel_orphaned_jobs(folder, number) > 0
    if as_json:
        print_json({"run": str(path), "was_running": was_running})
    elif was_running:
        print(f"cancelled; to continue: ai500 resume {quoted(path)}")
    else:
        print(f"{path} is not running")


def finish(
    path: RunPath,
    early: Annotated[
        bool,
        typer.Option("--early", help="Also before the minimum time: not a valid result."),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """End a running search with a score, after its minimum time.

    Workers stop after the step in progress and the trial is scored; the next trial, if any, begins.

    Example: ai500 finish runs/search
    """
    folder = RunFolder.open(path)
    plan = run_folder.read(Plan, folder.plan)
    number = current_trial(folder, plan)
    running = number > 0 and (folder.owner() is not None or _has_jobs(folder, number))
    if running and not early:
        require_least_time(folder, plan, number)
    if running:
        request_finish(folder, plan, number)
    if as_json:
        print_json({"run": str(path), "trial": number, "was_running": running})
    elif running:
        print(f"trial {number} of {path} ends with a score; `ai500 status {quoted(path)}` shows it")
    else:
        print(f"{path} is not running")


def _has_jobs(folder: RunFolder, number: int) -> bool:
    """Return True if jobs of a trial run or wait that no controller follows."""
    jobs = trial_jobs.active_jobs(folder, number).values()
    return any(status.state in ACTIVE for _, status in jobs)


def _end_controller(folder: RunFolder) -> bool:
    """Stop the run's controller and wait until it has ended; return False if there is none."""
    holder = folder.holder()
    if holder is None:
        return False
    host, pid = holder
    if host != socket.gethostname():
        write_text(folder.cancel_request, f"requested on {socket.gethostname()}\n")
    else:
        try:
            os.kill(pid, signal.SIGTERM)
        except ProcessLookupError:
            return False  # it has just ended by itself
        except PermissionError as error:
            raise InputError(
                f"process {pid} belongs to another user.",
                value=pid,
                remedy="Ask its owner to cancel the run.",
            ) from error
    deadline = time.monotonic() + CANCEL_SECONDS
    while folder.holder() is not None:
        if time.monotonic() > deadline:
            raise InputError(f"process {pid} did not end within {CANCEL_SECONDS:.0f} s.", value=pid)
        time.sleep(0.1)
    return True


def score(
    path: ReadRunPath = None,
    convention: Annotated[
        str | None,
        typer.Option(help="Count operations by v3, aiperf (official) or matmul."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Recompute the score of a run from its events.

    --convention shows it with operations counted by another convention and writes nothing: the
    official score is unchanged. Needs no torch.

    Example: ai500 score runs/first --json
    """
    folder = chosen_run(path)
    with run_folder.explaining_contradictions(folder.path):
        if convention is None:
            result = scoring.score_run(folder)
        else:
            convention_named(convention)
            result = scoring.score_by_convention(folder, convention)
    _print_score(folder, result, as_json=as_json)


def report(
    path: ReadRunPath = None,
    show: Annotated[bool, typer.Option("--open", help="Open it in the browser.")] = False,
    as_json: AsJson = False,
) -> None:
    """Write the HTML report of a run again.

    Needs no torch.

    Example: ai500 report runs/first
    """
    folder = chosen_run(path)
    with run_folder.explaining_contradictions(folder.path):
        evidence = scoring.scored_evidence(folder)
        profile_page.write_report_section(folder)
        roofline_page.write_report_section(folder)
        write_report(folder, evidence)
    print_report_path(folder.report, as_json=as_json)
    if show and not webbrowser.open(folder.report.resolve().as_uri()):
        raise EnvironmentLacksError(
            "there is no browser here.",
            key="--open",
            path=folder.report,
            remedy="Copy the report, one file, to a machine that has one.",
        )
