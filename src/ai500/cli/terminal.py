"""Terminal output: tables within 80 columns, a live view, plain lines in a log file."""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console, Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from ai500.automl.worker_view import WorkerView, worker_view
from ai500.bagging.member_views import MemberView, seconds_to_completion, trial_progress
from ai500.cli.verbosity import is_quiet, is_verbose
from ai500.core import schema
from ai500.core.units import human_si, whole_seconds
from ai500.records import Plan

if TYPE_CHECKING:
    from rich.live import Live
    from rich.progress import Progress

console = Console(highlight=False, soft_wrap=False)
TRIAL = re.compile(r"trial (\d+)")
"""Number of the trial in the name of the training stage."""
LINES_SHOWN = 16  # members in the live view: fits a screen of 24 lines
PROBLEMS_SHOWN = 20


def shown(text: str) -> str:
    """Escape control characters in untrusted text, which could control the terminal."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in "\n\t" else f"\\x{ord(c):02x}" for c in text)


Row = tuple[str, str] | tuple[str, str, str]
"""Name, value, and the source that `-v` shows: an equation, a decision, a convention."""


def rows(title: str, pairs: Sequence[Row], *, most: int | None = None) -> None:
    """Print a titled list of names and values, or the first `most` of them."""
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    more: list[Row] = (
        [("…", f"{len(pairs) - most:,} more; --json lists all")]
        if most and len(pairs) > most
        else []
    )
    for name, value, *source in [*pairs[:most], *more]:
        if source and source[0] and is_verbose():
            value = f"{value} [{source[0]}]"
        table.add_row(Text("  " + shown(name)), Text(shown(value)))
    console.print(Text(shown(title), style="bold"))
    if console.is_terminal:
        console.print(table)
        return
    with console.capture() as drawn:
        console.print(table)
    for line in drawn.get().splitlines():
        console.out(line.rstrip(), highlight=False)  # no padding in a log file


def print_json(value: object) -> None:
    """Print a record, or plain data with records in it, as JSON."""
    print(json.dumps(schema.encode(value), indent=2))


def print_report_path(report: Path, *, as_json: bool) -> None:
    """Print where a report is."""
    path = str(report.resolve())
    print(json.dumps({"report": path}) if as_json else path)


def show_problems(problems: Sequence[str]) -> None:
    """Print the first problems of a file."""
    rows("Problems", [("", text) for text in problems], most=PROBLEMS_SHOWN)


class Terminal:
    """An Observer that draws a live view, or prints progress lines to a log file."""

    def __init__(self, *, quiet: bool = False, plan: Plan | None = None) -> None:
        self._plan = plan
        self._trial = 1
        self._quiet = quiet or is_quiet()
        self._live: Live | None = None
        self._bar: Progress | None = None
        self._stage = ""
        self._printed: dict[int, tuple[str, int, str | None]] = {}
        self._last_percent = -1
        self._stage_began = time.monotonic()

    def __enter__(self) -> Terminal:
        if console.is_terminal and not self._quiet:
            from rich.live import Live  # slow to import; `status` draws nothing live

            self._live = Live(console=console, refresh_per_second=4, transient=True)
            self._live.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self._live is not None:
            self._live.stop()
        if kind is KeyboardInterrupt:
            print("interrupted: run the same command again to continue", file=sys.stderr)

    def stage(self, text: str) -> None:
        """Print the stage that begins as a permanent line."""
        if text == self._stage:
            return
        self._stage, self._bar, self._last_percent = text, None, -1
        self._stage_began = time.monotonic()
        if match := TRIAL.search(text):
            self._trial = int(match[1])
        if self._live is not None:
            self._live.update(Text(""))
        if not self._quiet:
            console.print(Text(f"· {text}"))

    def progress(self, done: int, total: int) -> None:
        """Draw a bar; in a log file print a line per quarter of a long stage.

        A total of 0 is not known: the number done is shown.
        """
        if self._quiet:
            return
        if total <= 0:
            self._count(done)
            return
        if self._live is not None:
            from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

            if self._bar is None:
                self._bar = Progress(
                    TextColumn("  "), BarColumn(30), TextColumn("{task.percentage:>3.0f}%"),
                    TimeRemainingColumn(), auto_refresh=False,
                )  # fmt: skip
                self._bar.add_task("", total=total)
            self._bar.update(self._bar.task_ids[0], completed=done, total=total)
            self._live.update(self._bar if done < total else Text(""))
        elif time.monotonic() - self._stage_began > 5:
            quarter = 4 * done // total
            if quarter > self._last_percent:
                self._last_percent = quarter
                console.print(f"  {25 * quarter}%")

    def _count(self, done: int) -> None:
        """Show how much is done of an unknown total; in a log file every half minute."""
        if self._live is not None:
            self._live.update(Text(f"  {done:,}" if done else ""))
        elif (minutes := int(2 * (time.monotonic() - self._stage_began) / 60)) > self._last_percent:
            if minutes:
                console.print(f"  {done:,}")
            self._last_percent = minutes

    def _members(self, views: Sequence[MemberView]) -> RenderableType:
        """Draw the members, below the bar of the whole run where its plan is known."""
        if self._plan is None:
            return members_table(views)
        bar = run_bar(views, self._plan, trial=self._trial)
        return Group(bar, members_table(views, self._plan))

    def members(self, views: Sequence[MemberView]) -> None:
        """Draw the members as a table; in a log file print a line per finished epoch."""
        if self._quiet:
            return
        if self._live is not None:
            self._live.update(self._members(views))
            return
        for view in views:
            waits = view.reason if view.state == "pending" else None
            now = (view.state, view.epoch, waits)
            worker = worker_view(view)
            if worker is not None:
                now = (view.state, worker.models, waits)
            if self._printed.get(view.member) != now and (waits or view.state != "pending"):
                self._printed[view.member] = now
                console.print("  " + _line(view), markup=False, soft_wrap=True)


def _line(view: MemberView) -> str:
    """Format a member within 80 columns; `ai500 status` also shows its throughput."""
    worker = worker_view(view)
    if worker is not None:
        # Printed when the worker starts a model.
        parts = [f"worker {view.member}", view.shown_state, f"round {worker.round}"]
        figures = {
            "best error {}": _figure(worker.best_error, ".4f"),
            "{}FLOPS": "" if worker.flops is None else human_si(worker.flops),
        }
    else:
        waits = view.state in ("pending", "failed", "lost") and view.reason
        parts = [
            f"member {view.member}",
            view.shown_state,
            *([f"({view.reason})"] if waits else []),
        ]
        figures = {
            "epoch {}": f"{view.epoch}/{view.epochs}" if view.epochs else "",
            "loss {}": _figure(view.loss, ".3f"),
            "quality {}": _figure(view.quality, ".4f"),
        }
    figures["{} left"] = _seconds(view.seconds_left)
    parts += [text.format(figure) for text, figure in figures.items() if figure]
    return "  ".join(parts)


def _figure(value: float | None, digits: str) -> str:
    return "" if value is None else format(value, digits)


def _seconds(value: float | None) -> str:
    return "" if value is None else whole_seconds(value)


def _active(views: Sequence[MemberView]) -> list[MemberView]:
    """Select the members to show: running and failed ones before waiting and finished ones."""
    order = {"running": 0, "failed": 1, "lost": 1, "pending": 2, "cancelled": 2, "done": 3}
    chosen = sorted(views, key=lambda view: (order[view.state], view.member))[:LINES_SHOWN]
    return sorted(chosen, key=lambda view: view.member)


def run_bar(views: Sequence[MemberView], plan: Plan, *, trial: int) -> RenderableType:
    """Draw how far the whole run is, with elapsed and remaining time by one estimate."""
    progress = trial_progress(views, epochs=plan.hyperparameters.epochs)
    elapsed, left = progress.elapsed_seconds, progress.seconds_left
    times = [] if elapsed is None else [f"{whole_seconds(elapsed)} elapsed"]
    if elapsed is not None and left is not None:
        whole = left + (plan.trials - trial) * (elapsed + left)
        times.append(f"{whole_seconds(whole)} left")
    share = (trial - 1 + progress.fraction) / plan.trials
    line = Table.grid(padding=(0, 2, 0, 0))
    line.add_row(
        Text(f"trial {trial} of {plan.trials}"),
        ProgressBar(total=1.0, completed=share, width=14),
        Text(f"{100 * share:.0f}%"),
        Text(", ".join(times)),
    )
    return line


STATE_STYLES = {
    "running": "cyan", "done": "green", "failed": "red", "lost": "red", "cancelled": "magenta",
    "pending": "dim",
}  # fmt: skip


def members_table(views: Sequence[MemberView], plan: Plan | None = None) -> RenderableType:
    """Tabulate the state and progress of each member, or of each worker of a search."""
    searching = any(worker_view(view) is not None for view in views)
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("worker" if searching else "member", justify="right")
    table.add_column("state")
    cells = [_worker_cells(view) if searching else _member_cells(view) for view in _active(views)]
    names = [name for name in (cells[0] if cells else ()) if any(row[name] for row in cells)]
    for name in names:
        target = name == "quality" and plan is not None
        heading = f"{name}\ntarget {plan.definition.target_quality:g}" if target and plan else name
        table.add_column(heading, justify="right")
    for view, row in zip(_active(views), cells, strict=True):
        state = Text(view.shown_state, style=STATE_STYLES.get(view.state, ""))
        table.add_row(str(view.member), state, *(row[name] for name in names))
    noun = "worker" if searching else "member"
    failures = [
        Text(f"{noun} {view.member} {view.state}: {shown(view.reason)}")
        for view in _active(views)
        if view.state in ("failed", "lost") and view.reason
    ]
    return Group(table, *failures, Text(totals(views, plan), style="dim"))


def totals(views: Sequence[MemberView], plan: Plan | None = None) -> str:
    """Sum up the members in a line."""
    if any(worker_view(view) is not None for view in views):
        return _search_totals(views)
    rate = _operations_per_second(views, plan)
    text = _member_totals(views) if plan is None else _members_done(views)
    return text + (f"; {human_si(rate)}FLOPS" if rate else "")


def _operations_per_second(views: Sequence[MemberView], plan: Plan | None) -> float:
    """Sum the rates of the members that train; 0: not known."""
    count = plan.operations if plan is not None else None
    training = [view.samples_per_second or 0.0 for view in views if view.state == "running"]
    return sum(training) * count.per_sample if count is not None else 0.0


def _member_cells(view: MemberView) -> dict[str, str]:
    return {
        "epoch": f"{view.epochs_done:.1f}/{view.epochs}" if view.epochs else "",
        "loss": _figure(view.loss, ".3f"),
        "quality": _figure(view.quality, ".4f"),
        f"{view.sample_noun}s/s": _figure(view.samples_per_second, ".0f"),
        "left": _seconds(view.seconds_left),
    }


def _worker_cells(view: MemberView) -> dict[str, str]:
    worker = worker_view(view) or WorkerView()
    return {
        "round": str(worker.round or ""),
        "model": worker.model,
        "epoch": f"{worker.epoch}/{worker.epochs}" if worker.epochs else "",
        "best error": _figure(worker.best_error, ".4f"),
        "FLOPS": "" if worker.flops is None else human_si(worker.flops).strip(),
        "left": _seconds(view.seconds_left),
    }


def _member_totals(views: Sequence[MemberView]) -> str:
    """Sum up members without the bar that shows the time left."""
    left = seconds_to_completion(views)
    return _members_done(views) + ("" if left is None else f", about {whole_seconds(left)} left")


def _members_done(views: Sequence[MemberView]) -> str:
    done = sum(view.state == "done" for view in views)
    reasons = {view.reason for view in views if view.state == "pending" and view.reason}
    waiting = f"; waiting for: {', '.join(sorted(reasons))}" if reasons else ""
    return f"{done} of {len(views)} members done{waiting}"


def _search_totals(views: Sequence[MemberView]) -> str:
    workers = [worker for view in views if (worker := worker_view(view)) is not None]
    errors = [worker.best_error for worker in workers if worker.best_error is not None]
    rates = [worker.flops for worker in workers if worker.flops is not None]
    done = sum(view.state == "done" for view in views)
    models = sum(worker.models for worker in workers)
    parts = [f"{done} of {len(views)} workers done", f"{models} model{'s' * (models != 1)}"]
    if errors:
        parts.append(f"best error {min(errors):.4f}")
    if rates:
        parts.append(f"{human_si(sum(rates))}FLOPS")
    return "; ".join(parts)
