"""Judge many files: several at once, each within limits, and each only once.

A file that crashes, hangs or exceeds a limit is rejected with that reason; the others are judged.
Judgements are cached by the SHA-256 of the file and of everything that decides about it.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import distributions
from pathlib import Path

from ai500.core import schema
from ai500.core.atomic import replace_bytes
from ai500.core.errors import AI500Error, EnvironmentLacksError, InputError
from ai500.core.source import PACKAGE, source_sha256
from ai500.core.units import human_bytes
from ai500.data.resumable_work import available_cores
from ai500.data.store import cache_folder
from ai500.ranking.entries import Judged, Rejected
from ai500.ranking.judge_server import OUT_OF_MEMORY, Answer, Limits, Request
from ai500.ranking.read import archive_sha256
from ai500.submission import manifest, signing
from ai500.submission.archive import printable

# Files that are judged ahead of the one whose turn it is: a slow one keeps no core idle.
AHEAD = 64
# A judgement is an entry, its page and its findings; a page of a large run has a few megabytes.
MAX_JUDGEMENT_BYTES = 256 << 20


@dataclass(frozen=True, slots=True)
class File:
    """File to judge."""

    path: Path
    name: str
    """Path below the folder of submissions, as pages show it."""


def find_submissions(folder: Path) -> list[File]:
    """Find all submissions below a folder, in the order of their names."""
    if not folder.is_dir():
        remedy = "Name the folder that contains the submissions."
        raise InputError(f"{folder} is not a folder.", path=folder, remedy=remedy)
    paths = sorted(path for path in folder.rglob(f"*{manifest.SUFFIX}") if not path.is_dir())
    return [File(path, printable(path.relative_to(folder).as_posix())) for path in paths]


@dataclass
class Judge:
    """Judges files by processes of their own, and remembers the judgements."""

    trusted_keys: Path | None = None
    limits: Limits = field(default_factory=Limits)
    workers: int = field(default_factory=available_cores)
    cache: Path | None = field(default_factory=lambda: cache_folder() / "judgements")
    """Folder of the cache; None: no cache."""

    def judge(self, files: Sequence[File]) -> Iterator[Judged]:
        """Yield the judgement of each file, in their order."""
        conditions = self._conditions()
        with _Servers(min(self.workers, len(files))) as servers:
            executor = ThreadPoolExecutor(max(1, servers.count))
            try:
                waiting = iter(files)
                turns: deque[Future[Judged]] = deque()
                for file in waiting:
                    turns.append(executor.submit(self._judge, file, servers, conditions))
                    if len(turns) >= AHEAD:
                        yield turns.popleft().result()
                while turns:
                    yield turns.popleft().result()
            finally:
                servers.close()  # a thread that waits for an answer reads the end of its pipe
                executor.shutdown(cancel_futures=True)

    def _conditions(self) -> str:
        """Return the digest of everything but the file that decides about a judgement."""
        trusted = None
        if self.trusted_keys is not None:
            # Bad keys are an error of the caller, not of a submission.
            trusted = signing.load_trusted_keys(self.trusted_keys)
        packages = sorted(f"{each.name} {each.version}" for each in distributions())
        text = json.dumps(
            [source_sha256(), sys.version, packages, trusted, schema.encode(self.limits)],
            sort_keys=True,
        )
        return hashlib.sha256(text.encode()).hexdigest()

    def _judge(self, file: File, servers: _Servers, conditions: str) -> Judged:
        sha256 = sha256_of(file.path)
        key = hashlib.sha256(json.dumps([sha256, file.name, conditions]).encode()).hexdigest()
        known = None if sha256 is None else self._recall(key)
        if known is not None:
            return known
        judged, lasting = self._ask(file, servers)
        if lasting and sha256 is not None and judged.sha256 == sha256:
            self._remember(key, judged)
        return judged

    def _ask(self, file: File, servers: _Servers) -> tuple[Judged, bool]:
        """Have the file judged; return False with a judgement that another attempt may change."""
        with tempfile.TemporaryDirectory(prefix="ai500-judge-", ignore_cleanup_errors=True) as name:
            folder = Path(name)
            (folder / "scratch").mkdir()
            result = folder / "judgement.json"
            request = Request(
                path=os.path.abspath(file.path),  # noqa: PTH100  (a link is not followed here)
                name=file.name,
                trusted_keys=None if self.trusted_keys is None else str(self.trusted_keys),
                result=str(result),
                scratch=str(folder / "scratch"),
                limits=self.limits,
            )
            answer = servers.ask(request)
            reason = "its judge was killed" if answer is None else failure(answer, self.limits)
            if not reason:
                try:
                    if result.stat().st_size <= MAX_JUDGEMENT_BYTES:
                        text = result.read_text(encoding="utf-8")
                        return schema.decode(Judged, json.loads(text)), True
                    reason = f"its page has more than {human_bytes(MAX_JUDGEMENT_BYTES)}"
                except (OSError, ValueError, AI500Error) as error:
                    reason = f"its judgement can't be read ({type(error).__name__})"
        return Judged(rejected=Rejected(file.name, "", "", "", (reason,))), False

    def _recall(self, key: str) -> Judged | None:
        """Return the cached judgement; a rejection counts on the day that it was made.

        A rule may compare dates with today's: what is refused today may be valid tomorrow.
        """
        if self.cache is None:
            return None
        try:
            known = json.loads((self.cache / f"{key}.json").read_text(encoding="utf-8"))
            judged = schema.decode(Judged, known["judged"])
            fresh = judged.ranked is not None or known["day"] == _today()
        except (OSError, ValueError, KeyError, TypeError, AI500Error):
            return None
        return judged if fresh else None

    def _remember(self, key: str, judged: Judged) -> None:
        if self.cache is None:
            return
        known = {"day": _today(), "judged": schema.encode(judged)}
        # Without a cache each file is judged again, which is slow and not wrong.
        with contextlib.suppress(OSError, EnvironmentLacksError):
            self.cache.mkdir(parents=True, exist_ok=True)
            replace_bytes(self.cache / f"{key}.json", json.dumps(known).encode())


def failure(answer: Answer, limits: Limits) -> str:
    """Return why a process did not judge its file; empty: it did."""
    status = answer.status
    if answer.timed_out or (os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGALRM):
        return f"judging it takes more than {limits.wall_seconds:g} s"
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        if number == signal.SIGXCPU or answer.cpu_seconds >= limits.cpu_seconds:
            return f"judging it takes more than {limits.cpu_seconds} s of processor time"
        return f"judging it crashed ({signal.Signals(number).name})"
    if os.WEXITSTATUS(status) == OUT_OF_MEMORY:
        return f"judging it takes more than {human_bytes(limits.memory_bytes)} of memory"
    if code := os.WEXITSTATUS(status):
        return f"judging it failed (exit code {code})"
    return ""


def sha256_of(path: Path) -> str | None:
    """Return the SHA-256 of a regular file; None: it can't be read, which its judge reports."""
    try:
        return archive_sha256(path)
    except (OSError, InputError):
        return None


def _today() -> str:
    return datetime.now(UTC).date().isoformat()


class _Servers:
    """Judge servers, each started when it is first needed."""

    def __init__(self, count: int) -> None:
        self.count = count
        self._idle: queue.SimpleQueue[_Server | None] = queue.SimpleQueue()
        self._started: list[_Server] = []
        self._closed = False
        for _ in range(count):
            self._idle.put(None)

    def __enter__(self) -> _Servers:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def ask(self, request: Request) -> Answer | None:
        """Have an idle server judge a file; None: the server was killed."""
        server = self._idle.get()
        try:
            if server is None:
                server = _Server()
                self._started.append(server)
                if self._closed:
                    server.close()
            answer = server.ask(request)
        except BaseException:
            self._idle.put(server)
            raise
        if answer is None:
            server.close()
        self._idle.put(None if answer is None else server)
        return answer

    def close(self) -> None:
        self._closed = True
        for server in self._started:
            server.close()


class _Server:
    """Process of `judge_server`."""

    def __init__(self) -> None:
        paths = filter(None, (str(PACKAGE.parent), os.environ.get("PYTHONPATH")))
        environment = os.environ | {
            "PYTHONPATH": os.pathsep.join(paths),
            # A judge computes sums of logs: threads would only take address space.
            "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1",
        }  # fmt: skip
        self._process = subprocess.Popen(
            # -P: a module in the current folder, which may be a stranger's, is not imported.
            [sys.executable, "-P", "-m", "ai500.ranking.judge_server"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment,
        )  # fmt: skip

    def ask(self, request: Request) -> Answer | None:
        """Have a file judged; None: the process has ended."""
        assert self._process.stdin is not None and self._process.stdout is not None
        try:
            self._process.stdin.write(json.dumps(schema.encode(request)).encode() + b"\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
            return schema.decode(Answer, json.loads(line)) if line else None
        except (OSError, ValueError):
            return None

    def close(self) -> None:
        """End the process and the child that it waits for."""
        with contextlib.suppress(OSError, ValueError):
            if self._process.stdin is not None:
                self._process.stdin.close()
        try:
            self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()
