"""A search in the terminal: its workers live, its score; within 80 columns."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from ai500.automl.progress import WorkerView, worker_view
from ai500.bagging.member_views import MemberView
from ai500.core.units import human_seconds, human_si
from ai500.records import Score, SearchScore


def line(view: MemberView, worker: WorkerView) -> str:
    """For a log file: where a worker is when it takes up a model."""
    parts = [f"worker {view.member}", view.state, f"round {worker.round}"]
    if worker.best_error is not None:
        parts.append(f"best error {worker.best_error:.4f}")
    if worker.flops is not None:
        parts.append(f"{human_si(worker.flops)}FLOPS")
    if view.seconds_left is not None:
        parts.append(f"{human_seconds(view.seconds_left)} left")
    return "  ".join(parts)


def workers_table(shown: Sequence[MemberView], *, of: Sequence[MemberView]) -> RenderableType:
    """Each worker: state, round, model, epoch, best error, FLOPS, time left."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("worker", justify="right")
    table.add_column("state")
    for name in ("round", "model", "epoch", "best error", "FLOPS", "left"):
        table.add_column(name, justify="right")
    for view in shown:
        worker = worker_view(view) or WorkerView()
        table.add_row(
            str(view.member),
            view.state,
            str(worker.round or ""),
            worker.model,
            f"{worker.epoch}/{worker.epochs}" if worker.epochs else "",
            "" if worker.best_error is None else f"{worker.best_error:.4f}",
            "" if worker.flops is None else human_si(worker.flops).strip(),
            "" if view.seconds_left is None else human_seconds(view.seconds_left),
        )
    return Group(table, Text(_together(of), style="dim"))


def _together(views: Sequence[MemberView]) -> str:
    known = [worker for view in views if (worker := worker_view(view)) is not None]
    errors = [one.best_error for one in known if one.best_error is not None]
    rates = [one.flops for one in known if one.flops is not None]
    done = sum(view.state == "done" for view in views)
    models = sum(one.models for one in known)
    parts = [f"{done} of {len(views)} workers done", f"{models} model{'s' * (models != 1)}"]
    if errors:
        parts.append(f"best error {min(errors):.4f}")
    if rates:
        parts.append(f"{human_si(sum(rates))}FLOPS")
    return "; ".join(parts)


def score_rows(
    score: Score, search: SearchScore, *, power: str, skew: str
) -> tuple[str, list[tuple[str, str]]]:
    """Title and rows: the final score first, then what it is made of."""
    initial, target = search.initial_error, score.time_to_target_seconds
    began = "not measured" if initial is None else f"{initial:.4f}"
    operations = score.operations + score.validation_operations
    reached = "not reached"
    if target is not None and search.operations_to_target is not None:
        reached = f"{human_seconds(target)}, {human_si(search.operations_to_target)}FLOP"
    title = f"Score: {score.workload}, class {score.problem_class}, {len(score.trials)} trial(s)"
    if not score.complete:
        title += "  — INCOMPLETE: a worker failed"
    return title, [
        (
            "FLOPS",
            f"{human_si(score.flops)}FLOPS (highest since the first batch, at "
            f"{human_seconds(search.at_seconds)}; counted by {score.convention})",
        ),
        ("regulated", f"{human_si(search.regulated_score)}FLOPS (−ln(error) × FLOPS)"),
        ("error", f"{score.ensemble_quality:.4f} best, at most {score.target_quality:g} is valid"),
        ("", f"{began} of the initial model; best model {search.best_model}"),
        (f"time to {score.target_quality:g}", reached),
        (
            "tried",
            f"{search.models} models of {search.architectures} architectures, {search.tuned} "
            f"tuned by TPE, {search.lost} lost",
        ),
        (
            "idle",
            f"{100 * search.idle_between_trainings:.2f} % of the workers' time between trainings, "
            f"{100 * search.without_work:.2f} % without work in all",
        ),
        ("searched", human_seconds(score.seconds)),
        ("operations", f"{human_si(operations)}FLOP of training and validation"),
        ("power", power),
        ("start skew", skew),
        (
            "workers",
            f"M = {score.ensemble_size}, P_degree = {score.parallel_degree}, "
            f"Sys_scale = {score.system_scale}, {score.waves} wave(s)",
        ),
    ]
