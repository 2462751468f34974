"""Disturb small runs of every workload at random, resume them, compare them with undisturbed ones.

`make soak FAULTS=200 MINUTES=60 SEED=1`. Every fault ends in one of three outcomes: the disturbed
run gives identical weights, predictions and scores; or a command refuses with an error that names
the file (only after a flipped byte: kills and full disks must be resumable); or it is WRONG:
another result, a traceback, a hang, a process that stays. The exit code is 1 if anything was wrong,
and 3 if the time ended before there were FAULTS faults, a tenth of them of each kind.
"""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from itertools import count
from pathlib import Path

from tests.soak.ensembles import ENSEMBLES, Ensemble
from tests.soak.faults import FULL_DISK, KINDS, Disk
from tests.soak.scenario import WRONG, Scenario, Site, Tally, figures
from tests.support.commands import SOURCE

DISK_MEGABYTES = 64  # of each ensemble's file system


class Soak:
    """Scenarios of all ensembles, some at the same time, until there are enough faults."""

    def __init__(self, sites: Sequence[Site], *, seed: int, faults: int, deadline: float) -> None:
        self.tally = Tally()
        self._sites, self._seed, self._faults, self._deadline = sites, seed, faults, deadline
        self._numbers = count()
        self._kinds = [k for k in KINDS if k != FULL_DISK or all(site.disk for site in sites)]

    def is_complete(self) -> bool:
        """Return True if there are so many faults, and a tenth of them of each kind."""
        counts = [self.tally.of_kind(kind) for kind in self._kinds]
        return sum(counts) >= self._faults and min(counts) >= self._faults / 10

    def play(self) -> None:
        """Play scenarios, each ensemble in turn, until there are enough faults or time is up."""
        while time.monotonic() < self._deadline and not self.is_complete():
            number = next(self._numbers)
            site = self._sites[number % len(self._sites)]
            with site.free:
                self._play(number, site)

    def _play(self, number: int, site: Site) -> None:
        scenario = Scenario(site, self.tally, random.Random(f"{self._seed} {number}"))
        began = time.monotonic()
        outcome, reason = scenario.play()
        self.tally.close(scenario.outcomes(outcome))
        flipped = ", ".join(str(flip.path.relative_to(site.folder)) for flip in scenario.flips)
        print(
            f"{number}: {site.ensemble.name}: {'; '.join(map(str, scenario.faults))}: {outcome}"
            f"{f' [{flipped}]' if flipped else ''}{f': {reason}' if reason else ''}"
            f" ({time.monotonic() - began:.0f} s)",
            flush=True,
        )
        if outcome == WRONG:
            kept = Path(tempfile.mkdtemp(prefix="ai500-soak-wrong-"))
            # As it is: a damaged run may have dangling links, or no folder at all.
            subprocess.run(["cp", "-a", scenario.run, kept / "run"], check=False)
            print(f"    the folder is kept: {kept}", flush=True)


def _own_disk(folder: Path) -> Disk | None:
    """Mount a small file system of this process's own; None where that is not permitted."""
    folder.mkdir()
    if os.environ.get("AI500_SOAK") is None:
        return None
    mount = ["mount", "-t", "tmpfs", "-o", f"size={DISK_MEGABYTES}m", "none", str(folder)]
    done = subprocess.run(mount, capture_output=True)
    return Disk(folder) if done.returncode == 0 else None


def _in_own_namespace() -> int | None:
    """Run this command in a mount namespace of its own, for the full disks; None: it has one."""
    if os.environ.get("AI500_SOAK") is None:
        again = [sys.executable, "-m", "tests.soak", *sys.argv[1:]]
        for unshare in (["unshare", "-m"], ["unshare", "-rm"]):
            if subprocess.run([*unshare, "true"], capture_output=True).returncode == 0:
                environment = {**os.environ, "AI500_SOAK": "own namespace"}
                return subprocess.run([*unshare, *again], env=environment).returncode
    return None


def _soak(folder: Path, arguments: argparse.Namespace, ensembles: Sequence[Ensemble]) -> int:
    deadline = time.monotonic() + 60 * arguments.minutes
    disks = [_own_disk(folder / ensemble.name) for ensemble in ensembles]

    def site(ensemble: Ensemble, disk: Disk | None) -> Site:
        return Site(folder / ensemble.name, ensemble, source=arguments.source, disk=disk)

    try:
        with ThreadPoolExecutor(arguments.lanes) as lanes:
            sites = list(lanes.map(site, ensembles, disks))
            print(f"{len(sites)} undisturbed runs", flush=True)
            soak = Soak(sites, seed=arguments.seed, faults=arguments.faults, deadline=deadline)
            started = [lanes.submit(soak.play) for _ in range(arguments.lanes)]
            wait(started)  # a defect of the soak itself in one lane does not hide the figures
    finally:
        for ensemble, disk in zip(ensembles, disks, strict=True):
            if disk is not None:
                subprocess.run(["umount", "-l", str(folder / ensemble.name)], check=False)
    print(figures(soak.tally))
    for lane in started:
        lane.result()
    if not all(disks):
        print("full disks: none, no file system can be mounted here")
    if soak.tally.outcomes[WRONG]:
        return 1
    return 0 if soak.is_complete() else 3


def main() -> int:
    """Run the soak and print its figures."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--faults", type=int, default=200, help="end after so many")
    parser.add_argument("--minutes", type=float, default=60.0, help="end after so many at the most")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--lanes", type=int, default=2, help="scenarios at the same time")
    parser.add_argument("--source", type=Path, default=SOURCE, help="the tree to be tested")
    parser.add_argument("--workloads", nargs="*", help="only these")
    arguments = parser.parse_args()
    arguments.source = arguments.source.resolve()
    if (code := _in_own_namespace()) is not None:
        return code
    chosen = arguments.workloads
    ensembles = [each for each in ENSEMBLES if not chosen or each.workload in chosen]
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="ai500-soak-") as name:
        code = _soak(Path(name), arguments, ensembles)
    print(f"seed {arguments.seed}, {(time.monotonic() - began) / 60:.1f} minutes")
    return code


if __name__ == "__main__":
    sys.exit(main())
