"""The run folder: layout, lock, and reading and writing of records.

    runs/<name>/
      run.json  config.toml  plan.json  system.json  events.jsonl  score.json  report.html
      findings.json  judgement.json
      roofline.json  roofline.html                            (`ai500 roofline --run RUN`)
      profile/profile.json  profile.html  timeline.json.gz    (`ai500 profile RUN`)
      sections/roofline.json  sections/profile.json           (their parts of the report)
      trials/01/
        trial.json  bootstraps.json  placement.json  jobs.json  ensemble.json  score.json
        bootstraps/000.bootstrap
        placements/NODE-000.json  barrier.json  slurm/001.sh      (on a cluster)
        reports/0-1-started               (scheduler.follow = "events", until they are read)
        systems/HOST-000.json  meters/HOST-000.jsonl
        pictures/pictures.json  pictures/*.png          (of some workloads)
        members/000/
          task.json  events.jsonl  log.txt  progress.json  record.json  exit-000.json
          log-001.txt                                   (a gang's member on several nodes)
          checkpoint.pt  checkpoint.pt.previous         (the latter while it trains)
          checkpoint.npz  checkpoint.npz.previous       (the same, of frameworks but PyTorch)
          validation.npy  out_of_bag.npy
          history.jsonl                                 (models that a search worker trained)
          script/task-000.json  samples.npy  output/  checkpoint/       (of a script of one's own)

A stage is finished if its record exists; otherwise `resume` runs it.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import shutil
import socket
import time
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any, Literal, TextIO, TypeVar

from ai500.core import atomic, reading, schema, sealed_json
from ai500.core.errors import EnvironmentLacksError, InputError, RunFolderError
from ai500.core.processes import is_running
from ai500.core.reading import open_regular, require_regular
from ai500.core.shell import quoted
from ai500.core.source import Checkout
from ai500.records import JobRecord, Plan, RunState, TrialScore

T = TypeVar("T")
RUNS_IN = ("*/run.json", "*/*/run.json", "*/runs/*/run.json")
"""Patterns of runs below a folder: first, runs/first, study-…/runs/m1-…."""
REPEATABLE = ("score.json", "findings.json", "judgement.json", "ensemble.json", "record.json")
"""Records that `resume` writes again, from predictions, checkpoints and logs."""
MAX_RUNS_NAMED = 3  # in an error message
MAX_OWNER_BYTES = 4096
LOCK_RETRY_SECONDS = 0.02
NO_CHECKOUT = Checkout(None, None)


class MemberFolder:
    """Paths of one member's files."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.task = path / "task.json"
        self.events = path / "events.jsonl"
        self.log = path / "log.txt"
        self.checkpoint = path / "checkpoint.pt"
        self.array_checkpoint = path / "checkpoint.npz"  # of a framework other than PyTorch
        self.progress = path / "progress.json"
        self.lock = path / ".lock"
        self.rendezvous = path / "rendezvous.json"
        self.record = path / "record.json"
        self.graph = path / "graph.json"
        self.history = path / "history.jsonl"
        self.validation = path / "validation.npy"
        self.out_of_bag = path / "out_of_bag.npy"
        self.script = path / "script"

    @property
    def of_running(self) -> tuple[Path, Path]:
        """Files of a running member; the controller removes them when it has ended."""
        return self.progress, self.lock

    @property
    def checkpoints(self) -> tuple[Path, Path]:
        """Files of checkpoints, PyTorch's and another framework's: a member has one of them."""
        return self.checkpoint, self.array_checkpoint

    def node_log(self, node: int) -> Path:
        """Return the log of one of its nodes in a gang: two nodes would tear each other's lines."""
        return self.log if node == 0 else self.path / f"log-{node:03d}.txt"

    def logs(self) -> list[Path]:
        """Return the logs of all its nodes, the first node's first."""
        return [self.log, *sorted(self.path.glob("log-*.txt"))]

    def exit(self, node: int) -> Path:
        """Return the file in which the agent of one of its nodes records how its worker ended."""
        return self.path / f"exit-{node:03d}.json"

    def exits(self) -> list[Path]:
        """Return the files that the agents of its nodes have written."""
        return sorted(self.path.glob("exit-*.json"))


class TrialFolder:
    """Paths of one trial's files."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.trial = path / "trial.json"
        self.bootstraps = path / "bootstraps.json"
        self.placement = path / "placement.json"
        self.jobs = path / "jobs.json"
        self.barrier = path / "barrier.json"
        self.reports = path / "reports"
        self.ensemble = path / "ensemble.json"
        self.score = path / "score.json"
        self.meters = path / "meters"
        self.systems = path / "systems"
        self.members = path / "members"
        self.finish_request = path / ".finish"
        self.pictures = path / "pictures"
        self.pictures_record = self.pictures / "pictures.json"

    def node_placement(self, node: str, member: int) -> Path:
        """Return the path of the member's placement on one node, which that node writes."""
        return self.path / "placements" / f"{node}-{member:03d}.json"

    def node_description(self, host: str, member: int) -> Path:
        """Return the path of the member's view of a node: it may see only a part of it."""
        return self.systems / f"{host}-{member:03d}.json"

    def hosts_of_members(self) -> dict[int, list[str]]:
        """Return the nodes that trained each member, by the names of their descriptions."""
        hosts: dict[int, list[str]] = {}
        for file in sorted(self.systems.glob("*-*.json")):
            host, _, member = file.stem.rpartition("-")
            if member.isdigit():
                hosts.setdefault(int(member), []).append(host)
        return hosts

    def bootstrap(self, member: int) -> Path:
        """Return the path of the member's repeat counts."""
        return self.path / "bootstraps" / f"{member:03d}.bootstrap"

    def member(self, member: int) -> MemberFolder:
        """Return the member's folder."""
        return MemberFolder(self.path / "members" / f"{member:03d}")


class RunFolder:
    """Paths of a run's files."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.state = path / "run.json"
        self.config = path / "config.toml"
        self.plan = path / "plan.json"
        self.system = path / "system.json"
        self.events = path / "events.jsonl"
        self.data_files = path / "data_files.json"
        self.score = path / "score.json"
        self.findings = path / "findings.json"
        self.judgement = path / "judgement.json"
        self.report = path / "report.html"
        self.roofline = path / "roofline.json"
        self.profile = path / "profile" / "profile.json"
        self.sections = path / "sections"
        self.lock_file = path / ".lock"
        self.cancel_request = path / ".cancel"

    def section(self, name: str) -> Path:
        """Return the file of a section that an instrument adds to the report."""
        return self.sections / f"{name}.json"

    def trial(self, trial: int) -> TrialFolder:
        """Return the folder of a trial; trials are numbered from 1."""
        return TrialFolder(self.path / "trials" / f"{trial:02d}")

    @classmethod
    @contextlib.contextmanager
    def creating(
        cls,
        path: Path,
        *,
        version: str,
        source_sha256: str | None = None,
        checkout: Checkout = NO_CHECKOUT,
    ) -> Iterator[RunFolder]:
        """Fill a new run folder, which appears at `path` when it is complete, or not at all.

        The body writes what `resume` needs into the folder that it gets.
        """
        _require_new(path)
        target = path.resolve()
        unfinished = target.with_name(_unfinished_name(target, os.getpid()))
        made = [parent for parent in target.parents if not parent.exists()]
        try:
            with atomic.explaining_write_errors(path):
                _make_parents(target)
                remove_unfinished(target)
                unfinished.mkdir()
            run = cls(unfinished)
            yield run
            state = RunState(
                version=version,
                name=target.name,
                source_sha256=source_sha256,
                commit=checkout.commit,
                dirty=checkout.dirty,
            )
            write(run.state, state)
            with atomic.explaining_write_errors(path):
                unfinished.rename(target)  # replaces an empty folder
                atomic.sync_folder(target.parent)
        except BaseException as error:
            shutil.rmtree(unfinished, ignore_errors=True)
            for parent in made:
                with contextlib.suppress(OSError):
                    parent.rmdir()
            if isinstance(error, EnvironmentLacksError):
                # The user knows the run folder, not the one that was to become it.
                message = str(error).replace(str(unfinished), str(path))
                raise EnvironmentLacksError(message, path=path) from error
            raise

    @classmethod
    def open(cls, path: Path) -> RunFolder:
        """Open an existing run folder."""
        run = cls(path)
        if not run.state.exists():
            reason, remedy = _not_a_run_folder(path)
            raise RunFolderError(
                f"{path} is not a run folder ({reason}).", path=path, remedy=remedy
            )
        read(RunState, run.state)
        return run

    def locked(self) -> contextlib.AbstractContextManager[None]:
        """Hold the run's lock: one process at a time works in a run folder."""
        path = quoted(self.path)
        return locked(
            self.lock_file,
            remedy=f"`ai500 status {path}` shows it, `ai500 cancel {path}` ends it.",
        )

    def owner(self) -> str | None:
        """Describe the process that holds the lock; None without one."""
        return owner_of(self.lock_file)

    def holder(self) -> tuple[str, int] | None:
        """Return host and process id of the run's controller; None without one."""
        return holder_of(self.lock_file)


def _make_parents(target: Path) -> None:
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError) as error:
        raise RunFolderError(
            f"{target.parent} is a file, or lies in one: no run folder can be made there.",
            path=target.parent,
            remedy="Remove the file, or choose another --out.",
        ) from error


def _require_new(path: Path) -> None:
    """Refuse a path that holds a run, or anything else, or that records can't name."""
    try:
        str(path).encode()
    except UnicodeEncodeError as error:
        raise RunFolderError(
            f"{os.fsencode(path)!r} is not UTF-8: records and scripts can't name the folder.",
            path=path,
            value=str(path),
            remedy="Choose another --out.",
        ) from error
    if RunFolder(path).state.exists():
        raise RunFolderError(
            f"{path} already holds a run.",
            path=path,
            remedy=f"`ai500 resume {quoted(path)}` continues it; "
            "choose another --out for a new run.",
        )
    is_circle = path.is_symlink() and not path.exists()
    if is_circle or (path.exists() and (not path.is_dir() or any(path.iterdir()))):
        raise RunFolderError(
            f"{path} exists and is not an empty folder.",
            path=path,
            remedy="Choose another --out.",
        )


UNFINISHED = ".unfinished"


def _unfinished_name(target: Path, process: int | str) -> str:
    """Name the folder in which a process fills a run folder; of any length the target's has."""
    digest = hashlib.sha256(os.fsencode(target)).hexdigest()[:12]
    return f".ai500-{digest}-{socket.gethostname()}-{process}{UNFINISHED}"


def remove_unfinished(target: Path) -> None:
    """Remove what processes of this host that died while they filled this run folder left."""
    prefix = _unfinished_name(target, "").removesuffix(UNFINISHED)
    for folder in target.parent.iterdir():
        number = folder.name.removeprefix(prefix).removesuffix(UNFINISHED)
        if folder.name == f"{prefix}{number}{UNFINISHED}" and not is_running(number):
            shutil.rmtree(folder, ignore_errors=True)


def _not_a_run_folder(path: Path) -> tuple[str, str]:
    """Return why a path is not a run folder, and a remedy."""
    if path.is_file():
        return "it is a file", "For a submission use `ai500 check` or `ai500 verify`."
    create = "`ai500 run --out FOLDER` creates one."
    if not path.is_dir():
        return "there is no such folder", create
    inside = {file.parent for pattern in RUNS_IN for file in path.glob(pattern)}
    if not inside:
        return "it has no run.json", create
    named = ", ".join(map(str, sorted(inside)[:MAX_RUNS_NAMED]))
    more = f", and {len(inside) - MAX_RUNS_NAMED} more" if len(inside) > MAX_RUNS_NAMED else ""
    return "it has no run.json", f"It contains run folders: {named}{more}. Name one of them."


@contextlib.contextmanager
def locked(lock_file: Path, *, remedy: str) -> Iterator[None]:
    """Hold the lock of a folder: one process at a time works in it."""
    folder = lock_file.parent
    require_regular(lock_file)
    try:
        file = lock_file.open("a+", encoding="utf-8")
    except OSError as error:
        raise EnvironmentLacksError(
            f"cannot write in {folder}: {error.strerror}.",
            path=folder,
            remedy="Check the folder's permissions.",
        ) from error
    with file:
        if not lock_within(file, seconds=1.0):
            owner = owner_of(lock_file) or "another process"
            raise RunFolderError(f"{folder} is in use by {owner}.", path=folder, remedy=remedy)
        with atomic.explaining_write_errors(lock_file):
            file.truncate(0)
            owner = json.dumps({"host": socket.gethostname(), "pid": os.getpid()})
            os.write(file.fileno(), owner.encode())  # a buffer would fail again when it is closed
        try:
            yield
        finally:
            with contextlib.suppress(OSError):  # a deleted folder, a file system that is gone
                file.truncate(0)


def owner_of(lock_file: Path) -> str | None:
    """Describe the process that holds the lock; None without one."""
    holder = holder_of(lock_file)
    return f"process {holder[1]} on {holder[0]}" if holder else None


def holder_of(lock_file: Path) -> tuple[str, int] | None:
    """Return host and process id of the lock's holder; None if it is free."""
    try:
        with open_regular(lock_file) as file:
            with contextlib.suppress(BlockingIOError):
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
                return None
            entry = json.loads(file.read(MAX_OWNER_BYTES))
            return str(entry["host"]), int(entry["pid"])
    except (OSError, ValueError, TypeError, KeyError):
        return None


def lock_within(file: TextIO, *, seconds: float) -> bool:
    """Acquire the lock; retry, because `holder_of` holds it for a moment, too."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if time.monotonic() > deadline:
                return False
            time.sleep(LOCK_RETRY_SECONDS)


def read(kind: type[T], path: Path) -> T:
    """Read a record."""
    value, intact = _read_sealed(path)
    record = _decode(kind, value, path)  # first: an error that names the key says more
    _require_intact(path, intact)
    return record


def read_all(kind: type[T], path: Path) -> list[T]:
    """Read a list of records."""
    items, intact = _read_sealed(path)
    if not isinstance(items, list):
        raise RunFolderError(f"{path}: expected a list of records.", path=path, value=items)
    records = [
        _decode(kind, item, path, at=f"{path.name}[{index}]") for index, item in enumerate(items)
    ]
    _require_intact(path, intact)
    return records


def _decode(kind: type[T], value: object, path: Path, *, at: str | None = None) -> T:
    try:
        return schema.decode(kind, value, at=at or path.name)
    except schema.SchemaError as error:
        error.path = path
        raise


def read_json(path: Path) -> Any:
    """Read JSON without its digest; an error names the file."""
    value, intact = _read_sealed(path)
    _require_intact(path, intact)
    return value


def _read_sealed(path: Path) -> tuple[Any, bool]:
    """Read JSON; return it without its digest, and False if the digest does not fit."""
    try:
        return sealed_json.unseal(reading.read_json(path))
    except (FileNotFoundError, NotADirectoryError) as error:
        raise RunFolderError(f"{path} is missing.", path=path, remedy=_remedy(path)) from error
    except OSError as error:
        raise RunFolderError(f"{path} can't be read: {error.strerror}.", path=path) from error
    except InputError as error:
        raise RunFolderError(str(error), path=path, remedy=_remedy(path)) from error


def _require_intact(path: Path, intact: bool) -> None:
    if not intact:
        raise RunFolderError(
            f"{path} was changed after it was written: its SHA-256 is another.",
            key=sealed_json.KEY,
            path=path,
            remedy=_remedy(path),
        )


def _remedy(path: Path) -> str:
    """Return what mends a missing or damaged record: `resume` repeats what follows from others."""
    run = next((folder for folder in path.parents if (folder / "run.json").exists()), None)
    if run is not None and path.name in REPEATABLE:
        removal = f"rm {quoted(path)} && " if path.exists() else ""
        return f"To write it again: {removal}ai500 resume {quoted(run)}"
    return "Restore the file from a backup, or start a new run."


def known_member(member: object, members: Collection[int], *, path: Path) -> int:
    """Return the member that a record names; refuse one that the plan does not have."""
    if isinstance(member, int) and member in members:
        return member
    raise RunFolderError(
        f"{path}: member {member!r}: the plan has {len(members)} members, numbered from 0.",
        key="member",
        value=member,
        path=path,
        remedy="Restore the file from a backup, or start a new run.",
    )


def read_jobs(trial: TrialFolder, members: Collection[int]) -> list[JobRecord]:
    """Read the jobs of a trial's members; there are none before the first is submitted."""
    jobs = read_all(JobRecord, trial.jobs) if trial.jobs.exists() else []
    for job in jobs:
        known_member(job.member, members, path=trial.jobs)
    return jobs


@contextlib.contextmanager
def explaining_contradictions(path: Path) -> Iterator[None]:
    """Raise RunFolderError where records that are valid each by itself contradict each other."""
    try:
        yield
    except (ArithmeticError, AssertionError, AttributeError, LookupError, TypeError, ValueError,
            RecursionError) as error:  # fmt: skip
        raise RunFolderError(
            f"{path}: its records contradict each other ({type(error).__name__}: {error}).",
            path=path,
            value=error,
            remedy="Restore the folder from a backup, or start a new run.",
        ) from error


def write(path: Path, record: object) -> None:
    """Write a record, or a list of records, atomically."""
    with atomic.explaining_write_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
    atomic.write_json(path, sealed_json.seal(schema.encode(record)))


def state_of(run: RunFolder, plan: Plan) -> Literal["running", "finished", "stopped"]:
    """Return the run's state; it is finished when every planned trial is scored and complete."""
    if run.holder() is not None:
        return "running"
    files = [run.trial(number).score for number in range(1, plan.trials + 1)]
    complete = all(file.exists() and read(TrialScore, file).complete for file in files)
    return "finished" if complete and run.score.exists() else "stopped"
