"""A disturbed run: its faults, its resumption, its outcome."""

from __future__ import annotations

import random
import shutil
import signal
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.soak import faults, processes
from tests.soak.ensembles import Ensemble
from tests.soak.faults import (
    CONCURRENT_COMMAND,
    FULL_DISK,
    KINDS,
    SIGNALS,
    Disk,
    Fault,
    Flip,
)
from tests.support.commands import Command

HANG_SECONDS = 300.0  # of a command's own time, which other work does not lengthen
STAY_SECONDS = 40.0  # torchrun waits 30 s for a rank before it kills it
TRAINING_SHARE = 0.5  # of the scenarios; those on finished runs take a fifth of their time
SECONDS_TO_SCORE = 0.2  # of a run's time, to aggregate and score it again
IDENTICAL, REFUSED, WRONG = "identical", "refused", "WRONG"
OUTCOMES = (IDENTICAL, REFUSED, WRONG)
RESULTS = ("score.json", "trials/01/score.json", "trials/01/ensemble.json")
"""Records that are computed again where they are missing."""
REFUSALS = (1, 2, 3)  # exit codes of an error with a message


class WrongError(Exception):
    """Something that must not happen."""


class Tally:
    """The faults so far, and their outcomes; several scenarios write to it."""

    def __init__(self) -> None:
        self.injected: Counter[str] = Counter()
        """Number of faults by kind, and by the role of the process that got a signal."""
        self.outcomes: dict[str, Counter[Fault]] = {name: Counter() for name in OUTCOMES}
        self._lock = threading.Lock()

    def inject(self, *names: str) -> None:
        """Count a fault by its names."""
        with self._lock:
            self.injected.update(names)

    def close(self, outcomes: Sequence[tuple[Fault, str]]) -> None:
        """Count a scenario's faults by their outcomes."""
        with self._lock:
            for fault, outcome in outcomes:
                self.outcomes[outcome][fault] += 1

    def of_kind(self, kind: str) -> int:
        """Return how many faults of a kind have an outcome."""
        with self._lock:
            return sum(
                count
                for counter in self.outcomes.values()
                for fault, count in counter.items()
                if fault.kind == kind
            )

    def draw(self, chance: random.Random, names: Sequence[str]) -> str:
        """Draw a kind of fault or a process's role; the rarer one so far, the likelier."""
        with self._lock:
            weights = [1 / (1 + self.injected[name]) for name in names]
        return chance.choices(names, weights)[0]


class Site:
    """An ensemble's folder: its store, its undisturbed run, and one disturbed run at a time."""

    def __init__(
        self, folder: Path, ensemble: Ensemble, *, source: Path, disk: Disk | None = None
    ) -> None:
        self.folder, self.ensemble, self.disk = folder, ensemble, disk
        self.free = threading.Lock()
        self.store = ensemble.write_store(folder)
        self.reference = folder / "undisturbed"
        self._environment = {
            "PYTHONPATH": str(source), "TMPDIR": str(folder), "AI500_CACHE": str(folder / "cache"),
            "NO_COLOR": "1", "COLUMNS": "1000",
        }  # fmt: skip
        began = time.monotonic()
        command = self.start(*ensemble.arguments(self.store, self.reference))
        if self.end(command) != 0:
            raise WrongError(f"undisturbed: {command.err}")
        self.seconds = time.monotonic() - began
        self.expected: dict[str, Any] = ensemble.result(self.reference)

    def start(self, *words: str | Path) -> Command:
        """Start an `ai500` command of the source tree under test."""
        return Command(*words, cwd=self.folder, environment=self._environment)

    def end(self, command: Command, *, signalled: bool = False) -> int:
        """Return a command's exit code; WrongError if it hangs, or ends without a message."""
        try:
            code = self._wait(command)
        except AssertionError as error:
            raise WrongError(f"a traceback: {error}") from error
        if not signalled and code not in (0, 130, *REFUSALS):
            raise WrongError(f"exit code {code}: {command.err}")
        if code in REFUSALS and not command.err.strip() and not command.out.strip():
            raise WrongError(f"exit code {code} without a message")
        return code

    def _wait(self, command: Command) -> int:
        own_time = processes.OwnTime(command.process.pid, self.folder)
        while True:
            try:
                return command.wait(timeout=processes.WATCH_SECONDS)
            except subprocess.TimeoutExpired as error:
                if own_time.update() > HANG_SECONDS:
                    listing = subprocess.run(["ps", "-ef"], capture_output=True, text=True).stdout
                    own = [line for line in listing.splitlines() if str(self.folder) in line]
                    command.kill()
                    raise WrongError("\n".join(["a command hangs:", *own])) from error


class Scenario:
    """One run, its faults, and their outcomes."""

    def __init__(self, site: Site, tally: Tally, chance: random.Random) -> None:
        self.site, self._tally, self._chance = site, tally, chance
        self.run = site.folder / "disturbed"
        self.faults: list[Fault] = []
        self.flips: list[Flip] = []
        self.restored: list[Flip] = []
        """Flips that a command refused, and that were undone then."""

    def play(self) -> tuple[str, str]:
        """Disturb, resume, compare; return the outcome and its reason."""
        shutil.rmtree(self.run, ignore_errors=True)
        try:
            if self._chance.random() < TRAINING_SHARE:
                self._disturb_training()
            else:
                self._disturb_finished()
            outcome = self.resume_and_compare()
            self._require_no_process()
            return outcome
        except WrongError as error:
            return WRONG, str(error)
        finally:
            processes.kill_all(self.run)  # those of a wrong scenario would disturb the next one
            if self.site.disk is not None:
                self.site.disk.empty()
            for flip in self.flips:
                if self.site.store in flip.path.parents:
                    flip.undo()

    def outcomes(self, outcome: str) -> list[tuple[Fault, str]]:
        """Return each fault's outcome: a refused flip does not hide that the others were mended."""
        refused = Counter(flip.fault for flip in self.restored)
        each = []
        for fault in self.faults:
            is_refused = outcome == IDENTICAL and refused[fault] > 0
            refused[fault] -= is_refused
            each.append((fault, REFUSED if is_refused else outcome))
        return each

    def _disturb_training(self) -> None:
        """Disturb a run, then up to two resumptions of it, and its files between them."""
        for _ in range(self._chance.randint(1, 3)):
            command = self.begin()
            if self._chance.random() < 0.8:  # otherwise most signals hit a lone controller
                processes.wait_for_training(self.run, command.process)
            signalled = self._disturb(
                command, kinds=self._kinds(self._chance.randint(0, 2)), seconds=self.site.seconds
            )
            code = self._end(command, signalled=signalled)
            self._require_no_process()
            if code == 0:
                return
            if self._chance.random() < 0.4:
                self._flip()

    def _require_no_process(self) -> None:
        if stay := processes.wait_until_gone(self.run, seconds=STAY_SECONDS):
            raise WrongError(f"processes of the run stay: {stay}")

    def _disturb_finished(self) -> None:
        """Let a finished run be aggregated and scored again, with damaged files."""
        shutil.copytree(self.site.reference, self.run)
        results = list(RESULTS)
        if self._chance.random() < 0.3 and not self.site.ensemble.is_search:
            results.append("trials/01/members/000/record.json")  # predicts from its checkpoint
        for name in results:
            (self.run / name).unlink(missing_ok=True)
        if self._chance.random() < 0.5:
            self._flip()  # one: an error about the first of two would hide the second
        for _ in range(self._chance.randint(1, 2)):
            command = self.begin()
            seconds = SECONDS_TO_SCORE * self.site.seconds
            signalled = self._disturb(
                command, kinds=self._kinds(self._chance.randint(0, 1)), seconds=seconds
            )
            self._end(command, signalled=signalled)

    def begin(self) -> Command:
        """Resume the run, or begin it."""
        if (self.run / "run.json").exists():
            return self.site.start("resume", self.run)
        return self.site.start(*self.site.ensemble.arguments(self.site.store, self.run))

    def _end(self, command: Command, *, signalled: bool) -> int:
        code = self.site.end(command, signalled=signalled)
        if self.site.disk is not None:
            self.site.disk.empty()
        return code

    def _kinds(self, count: int) -> list[str]:
        """Draw faults that a command may survive, then one or two signals, which save time."""
        survivable = [CONCURRENT_COMMAND] + [FULL_DISK] * (self.site.disk is not None)
        signals = [each.name for each in SIGNALS]
        names = [survivable] * count + [signals] * self._chance.randint(1, 2)
        return [self._tally.draw(self._chance, each) for each in names]

    def _disturb(self, command: Command, *, kinds: Sequence[str], seconds: float) -> bool:
        """Inject faults while a command runs; return True if its own process got a signal."""
        signalled = False
        for kind in kinds:
            time.sleep(self._chance.uniform(0.02, 0.6) * seconds / len(kinds))
            if command.process.poll() is not None:
                break
            signalled |= self._inject(kind, command)
        return signalled

    def _inject(self, kind: str, command: Command) -> bool:
        if kind == FULL_DISK and self.site.disk is not None:
            self._note(self.site.disk.fill(self._chance))
        elif kind == CONCURRENT_COMMAND:
            word = self._chance.choice(faults.COMMANDS)
            self._note(Fault(kind, word))
            self.site.end(self.site.start(word, self.run))
        elif kind in signal.Signals.__members__:
            by_role = processes.roles(self.run, command.process.pid)
            role = self._tally.draw(self._chance, sorted(by_role))
            try:
                process = self._chance.choice(sorted(by_role[role]))
                fault = faults.send_signal(process, role, signal.Signals[kind])
            except ProcessLookupError:
                return False  # it has ended
            self._note(fault, role)
            return role == processes.CONTROLLER
        return False

    def _flip(self) -> None:
        if self.run.exists():
            flip = faults.flip_byte(self.run, self.site.store, self._chance)
            self.flips.append(flip)
            self._note(flip.fault)

    def _note(self, fault: Fault, *names: str) -> None:
        self.faults.append(fault)
        self._tally.inject(fault.kind, *names)

    def resume_and_compare(self) -> tuple[str, str]:
        """Resume the run undisturbed; return IDENTICAL or REFUSED with its reason.

        A run that refuses a flipped byte is resumed again with the file as it was.
        """
        command = self.begin()
        code, reason = self.site.end(command), command.err.strip()
        if code == 0 and self._result() != self.site.expected and any(map(Flip.stands, self.flips)):
            # The run was scored before the flip. Whatever reads the file from now on refuses it.
            for name in RESULTS:
                (self.run / name).unlink()
            command = self.begin()
            code, reason = self.site.end(command), command.err.strip()
        if code in REFUSALS and self.flips:
            self.restored = [flip for flip in reversed(self.flips) if flip.undo()]
            if not self.restored:
                return REFUSED, reason
            command = self.begin()
            code = self.site.end(command)
            if code in REFUSALS and len(self.restored) < len(self.flips):
                return REFUSED, command.err.strip()
        if code != 0:
            raise WrongError(f"can't be resumed, exit code {code}: {command.err}")
        if (actual := self._result()) != self.site.expected:
            raise WrongError(f"another result: {actual}, expected {self.site.expected}")
        return IDENTICAL, reason if self.restored else ""

    def _result(self) -> dict[str, Any]:
        try:
            return self.site.ensemble.result(self.run)
        except Exception as error:
            raise WrongError(f"exit code 0, but no result: {error!r}") from error


def figures(tally: Tally) -> str:
    """Return the table of faults by kind and target, and their outcomes."""
    rows = [("fault", "injected", IDENTICAL, REFUSED, WRONG)]
    every = sum(tally.outcomes.values(), Counter())
    for kind in KINDS:
        targets = sorted({fault.target for fault in every if fault.kind == kind})
        for target in [None, *targets]:
            counts = [
                sum(n for fault, n in counter.items()
                    if fault.kind == kind and target in (None, fault.target))
                for counter in tally.outcomes.values()
            ]  # fmt: skip
            name = kind if target is None else f"  {target}"
            rows.append((name, *map(str, (sum(counts), *counts))))
    counts = [sum(counter.values()) for counter in tally.outcomes.values()]
    rows.append(("all", *map(str, (sum(counts), *counts))))
    return "\n".join(f"{row[0]:24}" + "".join(f"{each:>10}" for each in row[1:]) for row in rows)
