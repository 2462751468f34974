"""The run folder: its layout, its lock, its records.

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
        meters/HOST-000.jsonl
        pictures/pictures.json  pictures/*.png          (of workloads that have some to show)
        members/000/
          task.json  events.jsonl  log.txt  progress.json  checkpoint.pt  record.json
          validation.npy  out_of_bag.npy
          history.jsonl                                 (of a search: what the worker trained)

A stage whose record is there is finished; a stage whose record is missing is run (again).
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TextIO, TypeVar

from ai500.core import atomic, schema
from ai500.core.errors import EnvironmentLacksError, RunFolderError
from ai500.records import RunState

T = TypeVar("T")
FORMAT = 1
RUNS_IN = ("*/run.json", "*/*/run.json", "*/runs/*/run.json")
"""Where runs are below a folder: first, runs/first, study-…/runs/m1-…."""
RUNS_NAMED = 3


class MemberFolder:
    """One member's files."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.task = path / "task.json"
        self.events = path / "events.jsonl"
        self.log = path / "log.txt"
        self.checkpoint = path / "checkpoint.pt"
        self.progress = path / "progress.json"
        self.rendezvous = path / "rendezvous.json"
        self.record = path / "record.json"
        self.history = path / "history.jsonl"
        self.validation = path / "validation.npy"
        self.out_of_bag = path / "out_of_bag.npy"


class TrialFolder:
    """One trial's files."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.trial = path / "trial.json"
        self.bootstraps = path / "bootstraps.json"
        self.placement = path / "placement.json"
        self.jobs = path / "jobs.json"
        self.barrier = path / "barrier.json"
        self.ensemble = path / "ensemble.json"
        self.score = path / "score.json"
        self.meters = path / "meters"
        self.members = path / "members"
        self.pictures = path / "pictures"
        self.pictures_record = self.pictures / "pictures.json"

    def placed(self, node: str, member: int) -> Path:
        """What a job of the member placed on one node, told by that node."""
        return self.path / "placements" / f"{node}-{member:03d}.json"

    def system_of(self, host: str, member: int) -> Path:
        """One node, described before and after training by a member: it may see only a part."""
        return self.path / "systems" / f"{host}-{member:03d}.json"

    def bootstrap(self, member: int) -> Path:
        """The member's repeat counts."""
        return self.path / "bootstraps" / f"{member:03d}.bootstrap"

    def member(self, member: int) -> MemberFolder:
        """The member's own folder."""
        return MemberFolder(self.path / "members" / f"{member:03d}")


class RunFolder:
    """A run's files."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.state = path / "run.json"
        self.config = path / "config.toml"
        self.plan = path / "plan.json"
        self.system = path / "system.json"
        self.events = path / "events.jsonl"
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
        """Trials are numbered from 1."""
        return TrialFolder(self.path / "trials" / f"{trial:02d}")

    @classmethod
    def create(cls, path: Path) -> RunFolder:
        """A new folder; one that holds a run already is refused. `begin` makes it a run folder."""
        run = cls(path)
        if run.state.exists():
            raise RunFolderError(
                f"{path} already holds a run. `ai500 resume {path}` continues it; "
                "choose another folder with --out for a new one."
            )
        if path.exists() and (not path.is_dir() or any(path.iterdir())):
            raise RunFolderError(f"{path} exists and is not an empty folder. Choose another --out.")
        with atomic.explaining_write_errors(path):
            path.mkdir(parents=True, exist_ok=True)
        return run

    def begin(self, *, version: str) -> None:
        """Mark the folder as a run's, now that all a resume needs is in it."""
        state = RunState(format=FORMAT, version=version, name=self.path.name)
        atomic.write_json(self.state, schema.encode(state))

    @classmethod
    def open(cls, path: Path) -> RunFolder:
        """An existing run folder."""
        run = cls(path)
        if not run.state.exists():
            raise RunFolderError(f"{path} is not a run folder ({_what_instead(path)}")
        state = read(RunState, run.state)
        if state.format != FORMAT:
            raise RunFolderError(
                f"{path} has layout {state.format}, this version reads {FORMAT}. "
                f"It was made by ai500 {state.version}."
            )
        return run

    def locked(self) -> contextlib.AbstractContextManager[None]:
        """Only one process at a time works in a run folder."""
        return locked(
            self.lock_file,
            advice=f"`ai500 status {self.path}` shows it, `ai500 cancel {self.path}` ends it.",
        )

    def owner(self) -> str | None:
        """Who holds the lock, in words."""
        return owner_of(self.lock_file)

    def holder(self) -> tuple[str, int] | None:
        """Host and process id of the controller at work, None when there is none."""
        return holder_of(self.lock_file)


def _what_instead(path: Path) -> str:
    """Why a path is no run folder, and what to do; ends the sentence in the parenthesis."""
    if path.is_file():
        return "it is a file). Of a submission there are `ai500 check` and `ai500 verify`."
    if not path.is_dir():
        return "there is no such folder). `ai500 run --out FOLDER` makes one."
    inside = {file.parent for pattern in RUNS_IN for file in path.glob(pattern)}
    if not inside:
        return "it has no run.json). `ai500 run --out FOLDER` makes one."
    named = ", ".join(map(str, sorted(inside)[:RUNS_NAMED]))
    more = f", and {len(inside) - RUNS_NAMED} more" if len(inside) > RUNS_NAMED else ""
    return f"it has no run.json), but there are run folders in it: {named}{more}. Name one."


@contextlib.contextmanager
def locked(lock_file: Path, *, advice: str) -> Iterator[None]:
    """Only one process at a time works in the folder of that file."""
    folder = lock_file.parent
    try:
        file = lock_file.open("a+", encoding="utf-8")
    except OSError as error:
        raise EnvironmentLacksError(
            f"cannot write in {folder}: {error.strerror}. Check the folder's permissions."
        ) from error
    with file:
        if not lock_within(file, seconds=1.0):
            owner = owner_of(lock_file) or "another process"
            raise RunFolderError(f"{folder} is in use by {owner}. {advice}")
        file.truncate(0)
        file.write(json.dumps({"host": socket.gethostname(), "pid": os.getpid()}))
        file.flush()
        try:
            yield
        finally:
            file.truncate(0)


def owner_of(lock_file: Path) -> str | None:
    """Who holds the lock, in words."""
    holder = holder_of(lock_file)
    return f"process {holder[1]} on {holder[0]}" if holder else None


def holder_of(lock_file: Path) -> tuple[str, int] | None:
    """Host and process id of who holds it, None when nobody does."""
    try:
        with lock_file.open(encoding="utf-8") as file:
            with contextlib.suppress(BlockingIOError):
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
                return None
            entry = json.loads(file.read())
    except (OSError, ValueError):
        return None
    return str(entry["host"]), int(entry["pid"])


def lock_within(file: TextIO, *, seconds: float) -> bool:
    """Take the lock; someone who only looks who holds it has it for a moment, too."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if time.monotonic() > deadline:
                return False
            time.sleep(0.02)


def read(kind: type[T], path: Path) -> T:
    """A record from disk."""
    return schema.decode(kind, read_json(path), at=path.name)


def read_all(kind: type[T], path: Path) -> list[T]:
    """A list of records from disk."""
    return [schema.decode(kind, item, at=path.name) for item in read_json(path)]


def read_json(path: Path) -> Any:
    """Plain JSON from the run folder, or an error that names the file."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise RunFolderError(f"{path} is missing.") from error
    except (ValueError, OSError) as error:
        raise RunFolderError(f"{path} can't be read: {error}") from error


def write(path: Path, record: object) -> None:
    """A record, or a list of them, to disk: whole or not at all."""
    with atomic.explaining_write_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
    atomic.write_json(path, schema.encode(record))
