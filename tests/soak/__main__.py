"""Disturb small runs of every workload at random, resume them, compare them with undisturbed ones.

`make soak MINUTES=60 SEED=1`. Every fault ends in one of three outcomes: the disturbed run gives
identical weights, predictions and scores; or a command refuses with an error that names the file
(only after a flipped byte: kills and full disks must be resumable); or it is WRONG: another result,
a traceback, a hang, a process that stays. The exit code is 1 if anything was wrong.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.soak import faults
from tests.soak.ensembles import ENSEMBLES, Ensemble
from tests.soak.faults import KINDS, Disk, Fault, Flip
from tests.support.commands import SOURCE, Command

DISK_MEGABYTES = 512
HANG_SECONDS = 600  # of one command on a machine that has other work
ENOUGH = 20  # faults of a kind
TRAINING_SHARE = 0.35  # of the scenarios; the others, on finished runs, take a fifth of the time
IDENTICAL, REFUSED, WRONG = "identical", "refused", "WRONG"
REFUSALS = (1, 2, 3)  # exit codes of an error with a message


class WrongError(Exception):
    """Something that must not happen."""


class Soak:
    """The ensembles, the random draws, and the outcomes so far."""

    def __init__(self, folder: Path, *, seed: int, source: Path, disk: Disk | None) -> None:
        self.folder = folder
        self.chance = random.Random(seed)
        self.disk = disk
        self.outcomes: dict[str, Counter[Fault]] = {
            name: Counter() for name in (IDENTICAL, REFUSED, WRONG)
        }
        self.injected: Counter[str] = Counter()
        self._references: dict[str, tuple[Path, Path, dict[str, Any], float]] = {}
        self._environment = {
            "PYTHONPATH": str(source), "TMPDIR": str(folder), "AI500_CACHE": str(folder / "cache"),
            "NO_COLOR": "1", "COLUMNS": "1000",
        }  # fmt: skip

    def start(self, *words: str | Path) -> Command:
        """Start an `ai500` command of the source tree under test."""
        return Command(*words, cwd=self.folder, environment=self._environment)

    def end(self, command: Command, *, signalled: bool = False) -> int:
        """Return a command's exit code; WrongError if it hangs, or ends without a message."""
        try:
            code = self._wait(command)
        except subprocess.TimeoutExpired as error:
            command.kill()
            raise WrongError(f"a command hangs: {error}") from error
        except AssertionError as error:
            raise WrongError(f"a traceback: {error}") from error
        if not signalled and code not in (0, 130, *REFUSALS):
            raise WrongError(f"exit code {code}: {command.err}")
        if code in REFUSALS and not command.err.strip() and not command.out.strip():
            raise WrongError(f"exit code {code} without a word")
        return code

    def _wait(self, command: Command) -> int:
        """Return the exit code; of processes that wait for a core, wait longer."""
        while True:
            try:
                return command.wait(timeout=HANG_SECONDS)
            except subprocess.TimeoutExpired:
                if not faults.waits_for_a_core(self.folder, command.process.pid):
                    raise

    def reference(self, ensemble: Ensemble) -> tuple[Path, Path, dict[str, Any], float]:
        """Return store, folder, result and seconds of an undisturbed run, made once."""
        if ensemble.name not in self._references:
            store = ensemble.write_store(self.folder)
            run = self.folder / f"reference-{ensemble.name}"
            began = time.monotonic()
            command = self.start(*ensemble.arguments(store, run))
            if self.end(command) != 0:
                raise WrongError(f"undisturbed: {command.err}")
            seconds = time.monotonic() - began
            self._references[ensemble.name] = store, run, ensemble.result(run), seconds
        return self._references[ensemble.name]

    def draw(self, names: tuple[str, ...]) -> str:
        """Draw a kind of fault or a process's role; the rarer one so far, the likelier."""
        return self.chance.choices(names, [1 / (1 + self.injected[name]) for name in names])[0]


class Scenario:
    """One run, its faults, and its outcome."""

    def __init__(self, soak: Soak, ensemble: Ensemble) -> None:
        self.soak, self.ensemble = soak, ensemble
        self.store, self._reference, self._expected, self._seconds = soak.reference(ensemble)
        self.run = soak.folder / "disturbed"
        self.faults: list[Fault] = []
        self.flips: list[Flip] = []

    def play(self) -> tuple[str, str]:
        """Disturb, resume, compare; return the outcome and its reason."""
        shutil.rmtree(self.run, ignore_errors=True)
        try:
            if self.soak.chance.random() < TRAINING_SHARE:
                self._disturb_training()
            else:
                self._disturb_finished()
            return self.resume_and_compare()
        except WrongError as error:
            return WRONG, str(error)
        finally:
            for flip in self.flips:
                if self.store in flip.path.parents:
                    flip.undo()

    def _disturb_training(self) -> None:
        """Disturb a run, then up to two resumptions of it, and its files between them."""
        for _ in range(self.soak.chance.randint(1, 3)):
            command = self.begin()
            if self.soak.chance.random() < 0.6:  # otherwise most signals hit a lone controller
                faults.wait_for_worker(self.run, command.process, seconds=HANG_SECONDS)
            signalled = self._disturb(command, faults=self.soak.chance.randint(3, 6))
            code = self.soak.end(command, signalled=signalled)
            if self.soak.disk is not None:
                self.soak.disk.empty()
            if not faults.wait_until_gone(self.run):
                raise WrongError("a process of the run stays")
            if code == 0:
                return
            if self.soak.chance.random() < 0.3:
                self._flip()

    def _disturb_finished(self) -> None:
        """Let a finished run be aggregated and scored again, with damaged files."""
        shutil.copytree(self._reference, self.run)
        results = ["score.json", "trials/01/score.json", "trials/01/ensemble.json"]
        if self.soak.chance.random() < 0.3 and not self.ensemble.is_search:
            results.append("trials/01/members/000/record.json")  # predicts from its checkpoint
        for name in results:
            (self.run / name).unlink(missing_ok=True)
        if self.soak.chance.random() < 0.4:
            self._flip()  # one: an error about the first of two would hide the second
        for _ in range(self.soak.chance.randint(1, 3)):
            command = self.begin()
            signalled = self._disturb(command, faults=self.soak.chance.randint(1, 2))
            self.soak.end(command, signalled=signalled)
            if self.soak.disk is not None:
                self.soak.disk.empty()

    def begin(self) -> Command:
        """Resume the run, or begin it."""
        if (self.run / "run.json").exists():
            return self.soak.start("resume", self.run)
        return self.soak.start(*self.ensemble.arguments(self.store, self.run))

    def _disturb(self, command: Command, *, faults: int) -> bool:
        """Inject faults while a command runs; return True if its own process got a signal."""
        signalled = False
        for _ in range(faults):
            time.sleep(self.soak.chance.uniform(0.05, 0.6) * self._seconds / faults)
            if command.process.poll() is not None:
                break
            signalled |= self._inject(command)
        return signalled

    def _inject(self, command: Command) -> bool:
        chance = self.soak.chance
        kinds = tuple(kind for kind in KINDS if kind != faults.FLIPPED_BYTE)
        kind = self.soak.draw(kinds)
        if kind == faults.FULL_DISK and self.soak.disk is not None:
            self._note(self.soak.disk.fill(chance))
        elif kind == faults.CONCURRENT_COMMAND:
            words = chance.sample(faults.COMMANDS, k=2)
            for word in words:
                self._note(Fault(kind, word))
            for command_beside in [self.soak.start(word, self.run) for word in words]:
                self.soak.end(command_beside)
        elif kind in signal.Signals.__members__:
            try:
                processes = faults.processes_by_role(self.run, command.process.pid)
                role = self.soak.draw(tuple(sorted(processes)))
                process = chance.choice(sorted(processes[role]))
                fault = faults.send_signal(process, role, signal.Signals[kind])
            except (LookupError, ProcessLookupError):
                return False  # it was faster
            self._note(fault)
            self.soak.injected[role] += 1
            return fault.target == "controller"
        return False

    def _flip(self) -> None:
        if self.run.exists():
            flip = faults.flip_byte(self.run, self.store, self.soak.chance)
            self.flips.append(flip)
            self._note(flip.fault)

    def _note(self, fault: Fault) -> None:
        self.faults.append(fault)
        self.soak.injected[fault.kind] += 1

    def resume_and_compare(self) -> tuple[str, str]:
        """Resume the run undisturbed; return IDENTICAL or REFUSED with its reason."""
        command = self.begin()
        code = self.soak.end(command)
        if code in REFUSALS and self.flips:
            return REFUSED, command.err.strip()
        if code != 0:
            raise WrongError(f"can't be resumed, exit code {code}: {command.err}")
        try:
            actual = self.ensemble.result(self.run)
        except Exception as error:
            raise WrongError(f"exit code 0, but no result: {error!r}") from error
        if actual != self._expected:
            raise WrongError(f"another result: {actual}, expected {self._expected}")
        return IDENTICAL, ""


def play(soak: Soak, ensembles: list[Ensemble], *, minutes: float) -> None:
    """Play scenarios, each ensemble in turn, for so many minutes."""
    deadline = time.monotonic() + 60 * minutes
    for number, ensemble in enumerate(_in_turn(ensembles), start=1):
        if time.monotonic() > deadline:
            break
        scenario = Scenario(soak, ensemble)
        outcome, reason = scenario.play()
        for fault in scenario.faults:
            soak.outcomes[outcome][fault] += 1
        flipped = ", ".join(str(flip.path.relative_to(soak.folder)) for flip in scenario.flips)
        print(
            f"{number}: {ensemble.name}: {'; '.join(map(str, scenario.faults))}: {outcome}"
            f"{f' [{flipped}]' if flipped else ''}{f': {reason}' if reason else ''}",
            flush=True,
        )
        if outcome == WRONG:
            kept = Path(tempfile.mkdtemp(prefix="ai500-soak-wrong-"))
            shutil.copytree(scenario.run, kept / "run", dirs_exist_ok=True)
            print(f"    the folder is kept: {kept}", flush=True)


def _in_turn(ensembles: list[Ensemble]) -> Iterator[Ensemble]:
    while True:
        yield from ensembles


def figures(soak: Soak) -> str:
    """Return the table of faults by kind and target, and their outcomes."""
    rows = [("fault", "injected", IDENTICAL, REFUSED, WRONG)]
    every = sum(soak.outcomes.values(), Counter())
    for kind in KINDS:
        targets = sorted({fault.target for fault in every if fault.kind == kind})
        for target in [None, *targets]:
            counts = [
                sum(n for fault, n in counter.items()
                    if fault.kind == kind and target in (None, fault.target))
                for counter in soak.outcomes.values()
            ]  # fmt: skip
            name = kind if target is None else f"  {target}"
            rows.append((name, *map(str, (sum(counts), *counts))))
    counts = [sum(counter.values()) for counter in soak.outcomes.values()]
    rows.append(("all", *map(str, (sum(counts), *counts))))
    return "\n".join(f"{row[0]:24}" + "".join(f"{each:>10}" for each in row[1:]) for row in rows)


def _on_own_disk(folder: Path) -> Disk | None:
    """Mount a small file system of this process's own; None where that is not permitted."""
    mount = ["mount", "-t", "tmpfs", "-o", f"size={DISK_MEGABYTES}m", "none", str(folder)]
    done = subprocess.run(mount, capture_output=True)
    return Disk(folder) if done.returncode == 0 else None


def main() -> int:
    """Run the soak and print its figures."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--source", type=Path, default=SOURCE, help="the tree to be tested")
    parser.add_argument("--workloads", nargs="*", help="only these")
    arguments = parser.parse_args()
    if os.environ.get("AI500_SOAK") is None:  # a mount namespace of our own, for the full disks
        again = [sys.executable, "-m", "tests.soak", *sys.argv[1:]]
        for unshare in (["unshare", "-m"], ["unshare", "-rm"]):
            if subprocess.run([*unshare, "true"], capture_output=True).returncode == 0:
                return subprocess.run(
                    [*unshare, *again], env={**os.environ, "AI500_SOAK": "own namespace"}
                ).returncode
    ensembles = [
        each
        for each in ENSEMBLES
        if not arguments.workloads or each.workload in arguments.workloads
    ]
    with tempfile.TemporaryDirectory(prefix="ai500-soak-") as name:
        disk = _on_own_disk(Path(name)) if os.environ.get("AI500_SOAK") else None
        soak = Soak(Path(name), seed=arguments.seed, source=arguments.source.resolve(), disk=disk)
        began = time.monotonic()
        try:
            play(soak, ensembles, minutes=arguments.minutes)
        finally:
            print(figures(soak))
            rare = [kind for kind in KINDS if soak.injected[kind] < ENOUGH]
            if rare:
                print(f"fewer than {ENOUGH}: {', '.join(rare)}")
            if disk is None:
                print("full disks: none, no namespace can be made here")
            print(f"seed {arguments.seed}, {(time.monotonic() - began) / 60:.1f} minutes")
            if disk is not None:
                subprocess.run(["umount", "-l", name], check=False)
    return 1 if soak.outcomes[WRONG] else 0


if __name__ == "__main__":
    sys.exit(main())
