"""Run the tests that execute a mutated function, in a process forked for each mutant.

A package's tests are collected once. A child of that process replaces the code of the function and
runs the tests. A mutant outside of functions is imported: its process has imported pytest and
torch, but nothing of `ai500`.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import pickle
import resource
import signal
import sys
import threading
import time
import traceback
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FrameType, FunctionType
from typing import Any

import pytest

from tests.mutation.mutants import MODULE, REPOSITORY, SOURCE, Mutant, Package
from tests.support.own_time import OwnTime

PRELOADED = ("numpy", "torch", "torch._dynamo", "jinja2", "typer", "rich.console")
OPTIONS = (
    "-x", "-q", "--no-header", "--tb=line", "-p", "no:cacheprovider", "-p", "no:xdist",
    "-p", "no:faulthandler", "-m", "not long and not serial and not slow",
)  # fmt: skip
SLACK_SECONDS = 60.0
"""Time of a mutant beyond ten times that of its tests: then it computes, or waits, without end."""
WATCH_SECONDS = 5.0

Function = tuple[str, int]
"""A file below the source folder and the line where a function begins."""


@dataclass(frozen=True)
class Verdict:
    """Verdict of the tests on a mutant."""

    mutant: Mutant
    detected: bool
    reason: str
    """The test that fails, or why none does."""


class Executions:
    """The tests of a package, their processor seconds, and the functions that each executes."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self.tests: dict[Function, set[str]] = defaultdict(set)
        self.failed: list[str] = []

    def tests_of(self, function: Function) -> list[str]:
        """Return the tests that execute a function, the quickest first."""
        tests = self.seconds if function[1] == MODULE else self.tests.get(function, ())
        return sorted(tests, key=lambda test: self.seconds[test])


class Recorder:
    """Records the functions which each test and each of its fixtures executes."""

    def __init__(self, tree: Path) -> None:
        self._tree = f"{tree}{os.sep}"
        self._seen: set[Function] = set()
        self._of_fixture: dict[str, set[Function]] = defaultdict(set)
        self.executions = Executions()

    def _trace(self, frame: FrameType, event: str, argument: object) -> None:
        code = frame.f_code
        if code.co_filename.startswith(self._tree):
            self._seen.add((code.co_filename.removeprefix(self._tree), code.co_firstlineno))

    @contextlib.contextmanager
    def _recording(self) -> Iterator[set[Function]]:
        outer, self._seen = self._seen, set()
        try:
            yield self._seen
        finally:
            outer |= self._seen
            self._seen = outer

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(
        self, fixturedef: pytest.FixtureDef[Any], request: pytest.FixtureRequest
    ) -> Any:
        """Record a fixture: tests that share it execute it too."""
        with self._recording() as seen:
            result = yield
        self._of_fixture[fixturedef.argname] |= seen
        return result

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Any:
        """Record a test."""
        began = time.process_time()
        threading.settrace(self._trace)  # type: ignore[arg-type]
        with self._recording() as seen:
            sys.settrace(self._trace)  # type: ignore[arg-type]
            try:
                result = yield
            finally:
                sys.settrace(None)
        for name in getattr(item, "fixturenames", ()):
            seen |= self._of_fixture[name]
        for function in seen:
            self.executions.tests[function].add(item.nodeid)
        self.executions.seconds[item.nodeid] = time.process_time() - began
        return result


class Failures:
    """Records the tests that fail."""

    def __init__(self) -> None:
        self.tests: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Record a failed setup, call or teardown."""
        if report.failed:
            self.tests.append(report.nodeid)


class Loop:
    """Replaces pytest's loop over the collected tests: forks a process for each mutant."""

    def __init__(self, mutants: Sequence[Mutant], tree: Path, *, work: Path) -> None:
        self._mutants, self._tree, self._work = mutants, tree, work
        self.executions = Executions()
        self.verdicts: list[Verdict] = []

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Run all tests without a mutant, then those of each mutant that is in a function."""
        items = {item.nodeid: item for item in session.items}
        recorded = _in_child(lambda: _record(session, items.values(), self._tree), self._work)
        self.executions = recorded if isinstance(recorded, Executions) else Executions()
        if not self.executions.seconds or self.executions.failed:
            return True
        for mutant in self._mutants:
            if mutant.function_line != MODULE:
                self.verdicts.append(self._try(mutant, session, items))
        return True

    def _try(
        self, mutant: Mutant, session: pytest.Session, items: dict[str, pytest.Item]
    ) -> Verdict:
        tests = self.executions.tests_of(
            (str(mutant.path.relative_to(SOURCE)), mutant.function_line)
        )
        if not tests:
            return Verdict(mutant, False, "no test executes it")

        def run() -> list[str]:
            if not replace_code(mutant, self._tree):
                return ["no function has this code"]
            return _run(session, [items[test] for test in tests])

        limit = 10 * sum(self.executions.seconds[test] for test in tests) + SLACK_SECONDS
        failed = _in_child(run, self._work, seconds=limit)
        return _verdict(mutant, failed, count=len(tests), limit=limit)


def _verdict(mutant: Mutant, failed: object, *, count: int, limit: float) -> Verdict:
    if isinstance(failed, list):
        return Verdict(mutant, bool(failed), failed[0] if failed else f"{count} tests pass")
    return Verdict(mutant, True, f"not ended within {limit:.0f} s")


def _record(session: pytest.Session, items: Any, tree: Path) -> Executions:
    recorder = Recorder(tree)
    session.config.pluginmanager.register(recorder)
    recorder.executions.failed = _run(session, list(items))
    return recorder.executions


def _run(session: pytest.Session, items: Sequence[pytest.Item]) -> list[str]:
    """Run tests until one fails; return the failed ones."""
    failures = Failures()
    session.config.pluginmanager.register(failures)
    following = [*items[1:], None]
    for item, next_item in zip(items, following, strict=True):
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=next_item)
        if failures.tests:
            break
    return failures.tests


def replace_code(mutant: Mutant, tree: Path) -> int:
    """Replace the code of all functions that the mutant changes; return how many there are."""
    path = str(tree / mutant.path.relative_to(SOURCE))
    present = _codes(compile(mutant.path.read_text(encoding="utf-8"), path, "exec"))
    mutated = _codes(compile(mutant.source, path, "exec"))
    changed = {place for place, code in mutated.items() if code != present[place]}
    count = 0
    for function in gc.get_objects():
        # Not isinstance: a proxy of a lazy module would import it.
        if type(function) is FunctionType and function.__code__.co_filename == path:
            place = _place(function.__code__)
            if place in changed:
                function.__code__ = mutated[place]
                count += 1
    return count


def _place(code: CodeType) -> tuple[int, str]:
    return code.co_firstlineno, code.co_qualname


def _codes(module: CodeType) -> dict[tuple[int, str], CodeType]:
    """Map the places of all functions of a module, nested ones too, to their code."""
    codes = {}
    pending = [module]
    while pending:
        code = pending.pop()
        codes[_place(code)] = code
        pending += [constant for constant in code.co_consts if isinstance(constant, CodeType)]
    return codes


def preload() -> None:
    """Import what every child needs and no mutant changes."""
    for name in PRELOADED:
        importlib.import_module(name)


def judge(
    package: Package, mutants: Sequence[Mutant], tree: Path, *, work: Path
) -> Iterator[Verdict]:
    """Yield the verdict on each mutant; RuntimeError if the tests fail without one."""

    def collect() -> tuple[Executions, list[Verdict]]:
        loop = Loop(mutants, tree, work=work)
        _import_from(tree)
        pytest.main([*OPTIONS, f"--basetemp={work / 'tests'}", *package.tests], plugins=[loop])
        return loop.executions, loop.verdicts

    result = _in_child(collect, work, seconds=float("inf"), log="collection.log")
    log = (work / "collection.log").read_text(errors="replace")[-3000:]
    if not isinstance(result, tuple) or not result[0].seconds:
        raise RuntimeError(f"{package.name}: the tests do not run without a mutant\n{log}")
    executions, verdicts = result
    if executions.failed:
        raise RuntimeError(f"{package.name}: {executions.failed[0]} fails without a mutant\n{log}")
    yield from verdicts
    for mutant in mutants:
        if mutant.function_line == MODULE:
            yield _judge_imported(mutant, executions, tree, work=work)


def _judge_imported(mutant: Mutant, executions: Executions, tree: Path, *, work: Path) -> Verdict:
    """Return the verdict on a mutant outside of functions: its process imports the changed file."""
    tests = executions.tests_of(("", MODULE))
    path = tree / mutant.path.relative_to(SOURCE)
    path.write_text(mutant.source, encoding="utf-8")

    def run() -> list[str]:
        failures = Failures()
        _import_from(tree)
        code = pytest.main([*OPTIONS, f"--basetemp={work / 'tests'}", *tests], plugins=[failures])
        return failures.tests or ([f"pytest ends with {code}"] if code else [])

    limit = 10 * sum(executions.seconds.values()) + SLACK_SECONDS
    try:
        failed = _in_child(run, work, seconds=limit)
    finally:
        path.write_text(mutant.path.read_text(encoding="utf-8"), encoding="utf-8")
    return _verdict(mutant, failed, count=len(tests), limit=limit)


def _import_from(tree: Path) -> None:
    """Import `ai500`, here and in processes of the tests, from a copy of the source."""
    sys.path.insert(0, str(tree))
    sys.dont_write_bytecode = True
    os.environ["PYTHONPATH"] = str(tree)
    os.chdir(REPOSITORY)


def _in_child(
    run: Callable[[], object], work: Path, *, seconds: float = 3600.0, log: str = "log"
) -> object:
    """Return a function's result from a forked process; None if it took too long.

    RuntimeError if the process raised or crashed: that says nothing of a mutant.
    """
    result = work / f"result-{os.getpid()}"
    result.unlink(missing_ok=True)
    sys.stdout.flush()
    sys.stderr.flush()
    child = os.fork()
    if child == 0:
        _become(run, result, work / log, seconds=seconds)
    own_time, check = OwnTime(child, result), time.monotonic() + WATCH_SECONDS
    while not (ended := os.waitpid(child, os.WNOHANG))[0]:
        if time.monotonic() > check:
            check = time.monotonic() + WATCH_SECONDS
            if own_time.update() > seconds:
                os.killpg(child, signal.SIGKILL)
                os.waitpid(child, 0)
                return None
        time.sleep(0.05)
    if os.WIFSIGNALED(ended[1]) and os.WTERMSIG(ended[1]) in (signal.SIGXCPU, signal.SIGKILL):
        return None
    if not result.exists():
        raise RuntimeError(f"{ended[1]}: {(work / log).read_text(errors='replace')[-3000:]}")
    with result.open("rb") as file:
        return pickle.load(file)


def _become(run: Callable[[], object], result: Path, log: Path, *, seconds: float) -> None:
    """Run the function in this process, which ends with it; its output goes to a file."""
    try:
        os.setsid()
        if seconds < float("inf"):
            resource.setrlimit(resource.RLIMIT_CPU, (int(seconds), int(seconds) + 10))
        output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(output, 1)
        os.dup2(output, 2)
        value = pickle.dumps(run())
        result.write_bytes(value)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)
