"""The supervising worker of a script: `python -m ai500.frameworks.script_worker TASK.json`.

It runs once on each node of a member: writes the task files of the contract, starts the user's
command once for each rank, and turns what the first rank reports into the member's events, meters
and record, so that a script is placed, timed, resumed and reported like ai500's own members. Needs
neither torch nor anything from the script's interpreter. docs/worker-contract.md is the contract.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import os
import platform
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from ai500.core import __version__, atomic, events, schema
from ai500.core.errors import AI500Error, JobError
from ai500.core.reading import file_sha256
from ai500.core.source import DIE_WITH_PARENT, source_sha256
from ai500.data.bootstrap import expected_counts, out_of_bag_indices
from ai500.frameworks.protocol import NodePlace
from ai500.frameworks.script import words_of
from ai500.frameworks.script_events import ScriptEvent, parse_json, parse_stdout
from ai500.frameworks.script_task import ScriptTask, environment_of, write_tasks
from ai500.frameworks.script_translator import Translator
from ai500.meters.recorder import recorder_of
from ai500.records import Task, TrainRecord, TrialRecord, run_folder
from ai500.records.run_folder import MemberFolder, RunFolder
from ai500.train.timed_window import lock_member, timed_window
from ai500.train.worker import INTERRUPTED_EXIT_CODE, Rank, cores_of, die_with_parent

STOPPED = (75, 128 + signal.SIGTERM)
"""Exit codes of a script that was asked to stop: EX_TEMPFAIL, its checkpoint is written; and death
by SIGTERM, for Slurm sends one too, and the second may find an interpreter that leaves."""
POLL_SECONDS = 0.02  # resolution of the times of events that a script writes to its file
KILL_SECONDS = 10.0  # for the ranks that are left when one failed


class ScriptError(JobError):
    """A script that failed or broke the contract."""


class ScriptRanks:
    """Processes of the script on this node, and the lines that its first rank reports."""

    def __init__(self, task: Task, tasks: list[ScriptTask], *, reports: bool) -> None:
        self._task = task
        self._folder = MemberFolder(Path(task.folder))
        self._processes: list[subprocess.Popen[str]] = []
        self._stdout: queue.Queue[str | None] = queue.Queue()
        self._events_file = Path(tasks[0].events)
        self._events_offset = self._events_file.stat().st_size if self._exists() else 0
        self._lines = {"standard output": 0, str(self._events_file): 0}
        self.stop_requested = False
        signal.signal(signal.SIGTERM, self._request_stop)
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the controller's to handle
        bound = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else None
        for task_of_rank in tasks:
            piped = reports and task_of_rank.rank == 0
            self._processes.append(self._start(task_of_rank, piped=piped))
            if bound is not None:
                os.sched_setaffinity(0, bound)
        reader = self._processes[0].stdout
        if reader is None:
            self._stdout.put(None)
        else:
            threading.Thread(target=self._read, args=(reader,), daemon=True).start()

    def events(self) -> Iterator[ScriptEvent]:
        """Yield the events until every rank has ended; forward a request to stop."""
        forwarded, failed_at, open_stdout = False, math.inf, True
        while True:
            if self.stop_requested and not forwarded:
                self._signal(signal.SIGTERM)
                forwarded = True
            codes = [process.poll() for process in self._processes]
            if any(codes) and not self.stop_requested and failed_at == math.inf:
                failed_at = time.monotonic()
                self._signal(signal.SIGTERM)  # the others would wait for it
            if time.monotonic() - failed_at > KILL_SECONDS:
                self._signal(signal.SIGKILL)
            yield from self._from_file()
            try:
                line = self._stdout.get(timeout=POLL_SECONDS) if open_stdout else None
            except queue.Empty:
                continue
            if line is not None:
                yield from self._parsed("standard output", line)
                continue
            open_stdout = False
            if None not in codes:
                yield from self._from_file()
                return
            time.sleep(POLL_SECONDS)

    def exit_code(self) -> int:
        """Return the first exit code that is not 0, as a shell does; 0: all ended well."""
        codes = (process.wait() for process in self._processes)
        return next((code if code > 0 else 128 - code for code in codes if code), 0)

    def kill(self) -> None:
        """End what is left of the script."""
        self._signal(signal.SIGKILL)
        for process in self._processes:
            process.wait()

    def _start(self, task: ScriptTask, *, piped: bool) -> subprocess.Popen[str]:
        file = self._folder.script / f"task-{task.rank:03d}.json"
        # For a script, which need not know ai500: no digest of ai500's own.
        atomic.write_json(file, schema.encode(task))
        slot = self._task.slots[task.local_rank]
        rank = Rank(task.rank, task.local_rank, task.local_world_size, task.world_size)
        cores = cores_of(slot, rank)
        if isinstance(cores, tuple) and hasattr(os, "sched_setaffinity"):
            os.sched_setaffinity(0, cores)  # the process inherits it
        words = words_of(self._task.framework, task_file=file)
        return subprocess.Popen(
            [sys.executable, "-S", DIE_WITH_PARENT, str(os.getpid()), *words],
            cwd=self._task.framework.folder,
            env=environment_of(task, file),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE if piped else None,
            text=True,
            encoding="utf-8",
            errors="replace",
        )

    def _request_stop(self, number: int, frame: object) -> None:
        self.stop_requested = True

    def _signal(self, number: signal.Signals) -> None:
        for process in self._processes:
            if process.poll() is None:
                process.send_signal(number)

    def _read(self, stream: IO[str]) -> None:
        """Copy the first rank's output to the member's log as it comes, and to the queue."""
        for line in stream:
            sys.stdout.write(line)
            sys.stdout.flush()
            self._stdout.put(line)
        self._stdout.put(None)

    def _exists(self) -> bool:
        return self._events_file.exists()

    def _from_file(self) -> Iterator[ScriptEvent]:
        if not self._exists():
            return
        with self._events_file.open("rb") as file:
            file.seek(self._events_offset)
            data = file.read()
        complete = data[: data.rfind(b"\n") + 1]
        self._events_offset += len(complete)
        for line in complete.decode("utf-8", errors="replace").splitlines():
            yield from self._parsed(str(self._events_file), line)

    def _parsed(self, source: str, line: str) -> Iterator[ScriptEvent]:
        self._lines[source] += 1
        try:
            event = parse_stdout(line) if source == "standard output" else parse_json(line)
        except schema.SchemaError as error:
            raise self.error(f"{source}, line {self._lines[source]}: {error}", error.key) from error
        if event is not None:
            yield event

    def error(self, problem: str, key: str | None = None) -> ScriptError:
        """Build the error about the member, which names its log."""
        return ScriptError(
            f"member {self._task.member}: {problem} ({self._folder.log})",
            key=key,
            path=self._folder.log,
        )


def run(task: Task, place: NodePlace) -> int:
    """Run the member's ranks on this node to their end; return the worker's exit code."""
    folder, count = MemberFolder(Path(task.folder)), place.local_ranks(task)
    rank = Rank(place.first_rank(task), 0, count, task.parallel_degree)
    counts = expected_counts(Path(task.bootstrap), sha256=task.bootstrap_sha256)
    out_of_bag = out_of_bag_indices(counts, limit=task.definition.out_of_bag_samples)
    tasks = write_tasks(task, place, samples=np.repeat(np.arange(counts.size), counts),
                          out_of_bag=out_of_bag)  # fmt: skip
    reports = place.index == 0
    with contextlib.ExitStack() as stack:
        if reports:
            stack.enter_context(lock_member(task))
        meters = recorder_of(task, local_rank=0)
        meters.start()
        stack.callback(meters.close)
        log = events.EventLog(
            folder.events, trial=task.trial, member=task.member, attempt=tasks[0].attempt
        )
        emit: Callable[..., object] = log.emit if reports else _ignore
        emit("start", pid=os.getpid(), world_size=rank.world_size, device=tasks[0].device)
        with timed_window(task, rank=rank, meters=meters, emit=emit) as ready:
            ready()  # a gang starts its scripts together
            ranks = ScriptRanks(task, tasks, reports=reports)
            stack.callback(ranks.kill)
            translator = Translator(task, log, drawn=int(counts.sum(dtype=np.int64)))
            for event in ranks.events():
                try:
                    translator.take(event)
                except schema.SchemaError as error:
                    raise ranks.error(f"event {error}", error.key) from error
                if event.event in ("first_batch", "end"):
                    meters.mark()
            # Inside the window: a script that was stopped leaves before the node is described.
            code = ranks.exit_code()
            if ranks.stop_requested and code in STOPPED:
                if reports:
                    translator.interrupted()
                return INTERRUPTED_EXIT_CODE
            if code != 0:
                raise ranks.error(f"{_shown(task)} exited with code {code}: {_last_line(folder)}")
        if reports:
            _finish(task, log, tasks[0], rows=len(out_of_bag), ranks=ranks)
    return 0


def _finish(
    task: Task, log: events.EventLog, script: ScriptTask, *, rows: int, ranks: ScriptRanks
) -> None:
    """Check that the script did its task, take over its predictions, and write the record."""
    folder = MemberFolder(Path(task.folder))
    logged = list(events.read(folder.events))
    epochs = {event["epoch"]: event for event in logged if event["event"] == "epoch"}
    qualities = {event["epoch"]: event for event in logged if event["event"] == "quality"}
    planned = task.hyperparameters.epochs
    if set(epochs) != set(range(1, planned + 1)):
        raise ranks.error(
            f"reported epochs {sorted(epochs)}; its task says 1 to {planned}", "epoch"
        )
    if planned not in qualities:
        raise ranks.error(f"reported no quality after its last epoch {planned}", "quality")
    if not any(event["event"] == "end" for event in logged):
        raise ranks.error("did not report its end (MLPerf: run_stop)", "end")
    output, count = Path(script.output), task.definition.validation_samples
    _take_predictions(output / "validation.npy", folder.validation, rows=count, ranks=ranks)
    _take_predictions(output / "out_of_bag.npy", folder.out_of_bag, rows=rows, ranks=ranks)
    operations = task.framework.operations
    if operations is not None:
        log.emit("operations", **schema.encode(operations))
    record = TrainRecord(
        member=task.member,
        parameters=None if operations is None else operations.parameters,
        samples=sum(event["samples"] for event in epochs.values()),
        steps=sum(event["steps"] for event in epochs.values()),
        epochs=len(epochs),
        world_size=task.parallel_degree,
        device=script.device,
        device_name=platform.processor() or platform.machine()
        if script.device == "cpu"
        else script.device,
        quality=qualities[planned]["quality"],
        weights_sha256=None,
        operations=operations,
        effective={
            "framework": {"name": "script", "command": list(task.framework.command)},
            "hyperparameters": {"epochs": len(epochs)},
            "epochs": sorted(epochs),
            "evaluation_epochs": sorted(qualities),
            "data": _data(task),
            "seeds": {"trial": task.trial, "seed": task.seed, "initial_weights": script.seed},
        },
        versions={"ai500": __version__, "source": source_sha256()},
        validation_sha256=_sha256(folder.validation),
        out_of_bag_sha256=_sha256(folder.out_of_bag),
    )
    run_folder.write(folder.record, record)


def _data(task: Task) -> dict[str, Any]:
    """Return the identity of the data that the trial began with, and its numbers of samples."""
    trial = RunFolder(Path(task.run)).trial(task.trial)
    definition = task.definition
    return {
        "store_sha256": run_folder.read(TrialRecord, trial.trial).store_sha256,
        "staged": False,
        "samples": {
            "train": definition.train_samples,
            "validation": definition.validation_samples,
        },
    }


def _take_predictions(source: Path, target: Path, *, rows: int, ranks: ScriptRanks) -> None:
    """Check a script's predictions and make them the member's; there may be none."""
    target.unlink(missing_ok=True)
    if not source.exists():
        return
    try:
        array: NDArray[Any] = np.load(source, allow_pickle=False)
        numbers = array.dtype.kind in "fiu"
    except (OSError, ValueError, EOFError) as error:
        raise ranks.error(f"{source} is no array of NumPy: {error}", source.name) from error
    if not numbers or array.ndim == 0 or len(array) != rows or not np.isfinite(array).all():
        raise ranks.error(
            f"{source}: expected {rows} rows of finite numbers, found {array.dtype} {array.shape}",
            source.name,
        )
    atomic.write_array(target, array.astype(np.float32))


def _sha256(predictions: Path) -> str | None:
    return file_sha256(predictions) if predictions.exists() else None


def _ignore(event: str, **fields: object) -> None:
    """Emit nothing: only the member's first node logs."""


def _shown(task: Task) -> str:
    return f"`{' '.join(task.framework.command)}`"


def _last_line(folder: MemberFolder) -> str:
    """Return the last line of a script's own output: a traceback ends with its reason."""
    with contextlib.suppress(OSError):
        lines = folder.log.read_text(encoding="utf-8", errors="replace").split("\n")
        attempt = itertools.takewhile(lambda line: not line.startswith("=== "), reversed(lines))
        own = (line.strip() for line in attempt if not line.startswith(":::"))
        return next(filter(None, own), "no output of its own")
    return "no output of its own"


def main() -> int:
    """Run the task named on the command line."""
    die_with_parent()
    try:
        task = run_folder.read(Task, Path(sys.argv[1]))
        return run(task, NodePlace.from_environment(os.environ))
    except AI500Error as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code


if __name__ == "__main__":
    sys.exit(main())
