"""From nothing to a RooflineRecord: kernels in a worker, then links, each kept as it comes.

The record is on disk after every result, marked as partial until all is measured; the same command
goes on with what is missing. Needs no torch itself.
"""

from __future__ import annotations

import datetime
import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

from ai500.core import __version__, schema
from ai500.core.errors import EnvironmentLacksError, InputError
from ai500.core.schema import nearest
from ai500.inventory import machine as system
from ai500.jobs.node_agent import DIE_WITH_PARENT
from ai500.records import run_folder
from ai500.roofline import link_jobs
from ai500.roofline.records import (
    FORMAT,
    KERNEL_PRECISIONS,
    KERNELS,
    KernelTime,
    MemoryTime,
    Peak,
    RooflineRecord,
)

LINKS_SHARE = 0.2
"""Of the time, for links."""


class Observer(Protocol):
    """Who watches."""

    def stage(self, text: str) -> None:
        """Something begins."""

    def progress(self, done: int, total: int) -> None:
        """So much of it is done."""


class Measurement:
    """A record that grows on disk."""

    def __init__(self, path: Path, record: RooflineRecord) -> None:
        self.path = path
        self.record = record

    def add(self, **new: Any) -> None:
        """Append to fields of the record, and write it."""
        self.set(**{name: (*getattr(self.record, name), *values) for name, values in new.items()})

    def set(self, **values: Any) -> None:
        """Replace fields of the record, and write it."""
        self.record = replace(self.record, **values)
        run_folder.write(self.path, self.record)


def check_precisions(names: Sequence[str]) -> tuple[str, ...]:
    """The precisions to measure, all of them by default; an InputError with the nearest name."""
    for name in names:
        if name not in KERNEL_PRECISIONS:
            known = list(KERNEL_PRECISIONS)
            raise InputError(f"--precision {name!r}: no such precision; {nearest(name, known)}")
    return tuple(name for name in KERNEL_PRECISIONS if not names or name in names)


def this_node(
    path: Path,
    *,
    device: str | None,
    precisions: Sequence[str],
    seconds: float,
    ranks: int | None,
    observer: Observer,
) -> RooflineRecord:
    """Measure this node into `path`, or go on where an earlier measurement was interrupted."""
    machine = system.describe()
    chosen = device or machine.accelerator or "cpu"
    found = begin(path, chosen, seconds=seconds)
    # By precision: a worker fills its pool of random values once for each.
    jobs = [f"{kernel}:{name}" for name in precisions for kernel in KERNELS]
    _kernels(found, [*jobs, "memory"], observer)
    _links(found, ranks=ranks, observer=observer)
    found.set(complete=True)
    return found.record


def begin(path: Path, device: str, *, seconds: float) -> Measurement:
    """A new record, or the partial one of this machine that is there."""
    machine = system.describe()
    fresh = RooflineRecord(
        format=FORMAT,
        version=__version__,
        measured_at=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        complete=False,
        system=machine,
        device=device,
        device_name=machine.cpu,
        unit="core" if device == "cpu" else "accelerator",
        units=machine.cores if device == "cpu" else 1,
        seconds=seconds,
    )
    if not path.exists():
        return Measurement(path, fresh)
    there = run_folder.read(RooflineRecord, path)
    if there.complete:
        raise InputError(f"{path} is a finished roofline. Name another file with --out.")
    if (there.system, there.device) != (machine, device):
        raise InputError(
            f"{path} was begun on {there.system.hostname} ({there.device}), or with other "
            "software: it can't go on here. Name another file with --out."
        )
    return Measurement(path, there)


def interrupted(folder: Path, *, host: str) -> Path | None:
    """The newest partial roofline of this host in a folder, that the same command goes on with."""
    files = sorted(folder.glob(f"{host}-*.json"), key=lambda file: file.stat().st_mtime)
    for file in reversed(files):
        try:
            there = run_folder.read(RooflineRecord, file)
        except InputError:
            continue  # another program's, or another version's
        return None if there.complete or there.system != system.describe() else file
    return None


def _kernels(found: Measurement, jobs: Sequence[str], observer: Observer) -> None:
    """A worker for all of them; if one kills it, another worker for the rest."""
    left = [job for job in jobs if job not in _done(found.record)]
    total = len(left)
    while left:
        observer.stage(f"kernels on {found.record.device}: GEMM, CONV, memory")
        share = found.record.seconds * (1 - LINKS_SHARE) * len(left) / max(1, total)
        code, running, finished = _worker(found, left, seconds=share, observer=observer)
        left = [job for job in left if job not in finished]
        if code == 0:
            return
        if running is None and not finished:
            raise EnvironmentLacksError(
                "the process that measures kernels ended before it began: is torch installed here, "
                f"and can it use {found.record.device}? What it said stands above."
            )
        if running is not None:
            found.add(unavailable=((running, _death(code)),))
            left = [job for job in left if job != running]


def _done(record: RooflineRecord) -> set[str]:
    """Jobs that are measured, or known not to work."""
    done = {f"{one.kernel}:{one.precision}" for one in record.kernels}
    done |= {what for what, _ in record.unavailable}
    return done | ({"memory"} if record.memory else set())


def _worker(
    found: Measurement, jobs: Sequence[str], *, seconds: float, observer: Observer
) -> tuple[int, str | None, set[str]]:
    """Exit code, the job it was at, and the jobs it finished; results of a job count whole."""
    command = [sys.executable, "-m", "ai500.roofline.worker", found.record.device, str(seconds)]
    process = subprocess.Popen(
        [sys.executable, "-S", DIE_WITH_PARENT, str(os.getpid()), *command, *jobs],
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,  # Ctrl-C is for this process, which then kills the worker
    )
    running, finished, results = None, set(), _Results()
    try:
        assert process.stdout is not None
        for line in process.stdout:
            told: dict[str, Any] = json.loads(line)
            if "refused" in told:
                raise InputError(
                    f"--device {found.record.device}: {told['refused']}. Devices that torch can "
                    f"use here: {', '.join(told['devices'])}."
                )
            if "device" in told:
                _describe(found, told["device"])
            elif "begin" in told:
                running, results = told["begin"], _Results()
            elif "end" in told:
                finished.add(told["end"])
                found.add(**results.fields())
                running = None
                observer.progress(len(finished), len(jobs))
            else:
                results.take(told)
        return process.wait(), running, finished
    finally:
        process.kill()
        process.wait()


class _Results:
    """What a worker told of one job."""

    def __init__(self) -> None:
        self._kernels: list[KernelTime] = []
        self._memory: list[MemoryTime] = []
        self._unavailable: list[tuple[str, str]] = []

    def take(self, told: dict[str, Any]) -> None:
        """One line."""
        if "kernel" in told:
            self._kernels.append(schema.decode(KernelTime, told["kernel"]))
        elif "memory" in told:
            self._memory.append(schema.decode(MemoryTime, told["memory"]))
        else:
            what, why = told["unavailable"]
            self._unavailable.append((what, why))

    def fields(self) -> dict[str, Any]:
        """For the record."""
        return {
            "kernels": self._kernels,
            "memory": self._memory,
            "unavailable": self._unavailable,
        }


def _describe(found: Measurement, told: dict[str, Any]) -> None:
    found.set(
        device_name=told.get("name", found.record.device_name),
        unit=told["unit"],
        units=told["units"],
        peaks=tuple(schema.decode(Peak, one) for one in told["peaks"]),
    )


def _death(code: int) -> str:
    if code < 0:
        return f"the kernel killed its process ({signal.Signals(-code).name})"
    return f"the kernel ended its process with exit code {code}"


def _links(found: Measurement, *, ranks: int | None, observer: Observer) -> None:
    if found.record.links or "links" in _done(found.record):
        return
    count = ranks or _default_ranks(found.record)
    if count < 2:
        found.add(unavailable=(("links", "one process talks to nobody"),))
        return
    observer.stage(f"links between {count} processes of this node")
    seconds = found.record.seconds * LINKS_SHARE
    kind = found.record.device.partition(":")[0]  # each process has an accelerator of its own
    times = link_jobs.inside_node(device=kind, ranks=count, seconds=seconds)
    found.add(links=tuple(times))


def _default_ranks(record: RooflineRecord) -> int:
    """One for each accelerator, or CPU slots [D8]."""
    if record.device == "cpu":
        return system.default_cpu_slots(None)
    return len(record.system.accelerators)
