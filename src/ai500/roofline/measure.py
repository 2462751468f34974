"""Measure a machine into a RooflineRecord: kernels in a worker, then links.

The record is on disk after every result, marked as partial until everything is measured; the same
command continues with what is missing. On Slurm one job measures the kernels of one node and the
links of several. Imports no torch.
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
from typing import Any

from ai500.config import Config
from ai500.core import __version__, schema
from ai500.core.errors import ConfigError, EnvironmentLacksError, InputError
from ai500.core.schema import check_known
from ai500.core.source import DIE_WITH_PARENT
from ai500.inventory import machine as system
from ai500.jobs.schedulers.slurm import SLURM
from ai500.jobs.trial_jobs import python_of
from ai500.pipeline.stages import Observer
from ai500.records import run_folder
from ai500.roofline import link_jobs
from ai500.roofline.records import (
    KERNEL_PRECISIONS,
    KERNELS,
    KernelTime,
    LinkTime,
    MemoryTime,
    Peak,
    RooflineRecord,
)

# Fraction of the time budget for links.
LINKS_FRACTION = 0.2
# Field of the record → kind of the results that a worker reports for it.
RESULTS: dict[str, Any] = {
    "kernels": KernelTime,
    "memory": MemoryTime,
    "unavailable": tuple[str, str],
}


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
    """Return the precisions to measure, by default all; raise InputError for an unknown name."""
    for name in names:
        check_known(name, KERNEL_PRECISIONS, key="--precision")
    return tuple(name for name in KERNEL_PRECISIONS if not names or name in names)


def measure_node(
    path: Path,
    *,
    device: str | None,
    precisions: Sequence[str],
    seconds: float,
    ranks: int | None,
    observer: Observer,
) -> RooflineRecord:
    """Measure this node into `path`, or continue an interrupted measurement."""
    machine = system.describe()
    chosen = device or machine.accelerator or "cpu"
    measurement = open_measurement(path, chosen, seconds=seconds)
    # Ordered by precision: a worker fills its pool of random values once for each.
    jobs = [f"{kernel}:{name}" for name in precisions for kernel in KERNELS]
    _measure_kernels(measurement, [*jobs, "memory"], observer)
    _measure_links(measurement, ranks=ranks, observer=observer)
    measurement.set(complete=True)
    return measurement.record


def open_measurement(path: Path, device: str, *, seconds: float) -> Measurement:
    """Return a new measurement, or the partial one of this machine in `path`."""
    machine = system.describe()
    fresh = RooflineRecord(
        format=RooflineRecord.FORMAT,
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
    existing = run_folder.read(RooflineRecord, path)
    if existing.complete:
        raise InputError(
            f"{path} is a finished roofline.",
            key="complete",
            value=True,
            path=path,
            remedy="Name another file with --out.",
        )
    if (existing.system, existing.device) != (machine, device):
        raise InputError(
            f"{path} was started on {existing.system.hostname} ({existing.device}), or with other "
            "software, and cannot be continued here.",
            key="system",
            value=existing.system.hostname,
            path=path,
            remedy="Name another file with --out.",
        )
    return Measurement(path, existing)


def find_partial(folder: Path, *, host: str) -> Path | None:
    """Return the newest partial roofline of this host in a folder."""
    files = sorted(folder.glob(f"{host}-*.json"), key=lambda file: file.stat().st_mtime)
    for file in reversed(files):
        try:
            record = run_folder.read(RooflineRecord, file)
        except InputError:
            continue  # another program's, or another version's
        return None if record.complete or record.system != system.describe() else file
    return None


def _measure_kernels(measurement: Measurement, jobs: Sequence[str], observer: Observer) -> None:
    """Run a worker for all jobs; if a job kills it, start another worker for the rest."""
    pending = [job for job in jobs if job not in _finished_jobs(measurement.record)]
    total = len(pending)
    while pending:
        observer.stage(f"kernels on {measurement.record.device}: GEMM, CONV, memory")
        share = measurement.record.seconds * (1 - LINKS_FRACTION) * len(pending) / max(1, total)
        code, running, finished = _run_worker(
            measurement, pending, seconds=share, observer=observer
        )
        pending = [job for job in pending if job not in finished]
        if code == 0:
            return
        if running is None and not finished:
            raise EnvironmentLacksError(
                "The kernel worker exited before its first job; its output is above.",
                remedy=f"Check that torch is installed and can use {measurement.record.device}.",
            )
        if running is not None:
            measurement.add(unavailable=((running, _exit_reason(code)),))
            pending = [job for job in pending if job != running]


def _finished_jobs(record: RooflineRecord) -> set[str]:
    """Return the jobs that are measured or known to fail."""
    done = {f"{time.kernel}:{time.precision}" for time in record.kernels}
    done |= {job for job, _ in record.unavailable}
    return done | ({"memory"} if record.memory else set())


def _run_worker(
    measurement: Measurement, jobs: Sequence[str], *, seconds: float, observer: Observer
) -> tuple[int, str | None, set[str]]:
    """Return the exit code, the job that was running, and the finished jobs.

    Results of a job are recorded once it has finished.
    """
    command = [
        sys.executable,
        "-m",
        "ai500.roofline.kernel_worker",
        measurement.record.device,
        str(seconds),
    ]
    process = subprocess.Popen(
        [sys.executable, "-S", DIE_WITH_PARENT, str(os.getpid()), *command, *jobs],
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,  # Ctrl-C reaches this process only, which kills the worker
    )
    running, finished = None, set()
    results: dict[str, list[Any]] = {}
    try:
        assert process.stdout is not None
        for line in process.stdout:
            message: dict[str, Any] = json.loads(line)
            if "refused" in message:
                raise InputError(
                    f"--device {measurement.record.device}: {message['refused']}.",
                    key="--device",
                    value=measurement.record.device,
                    remedy=f"Devices that torch can use here: {', '.join(message['devices'])}.",
                )
            if "device" in message:
                _set_device(measurement, message["device"])
            elif "begin" in message:
                running, results = message["begin"], {}
            elif "end" in message:
                finished.add(message["end"])
                measurement.add(**results)
                running = None
                observer.progress(len(finished), len(jobs))
            else:
                [(field, result)] = message.items()
                results.setdefault(field, []).append(schema.decode(RESULTS[field], result))
        return process.wait(), running, finished
    finally:
        process.kill()
        process.wait()


def _set_device(measurement: Measurement, description: dict[str, Any]) -> None:
    measurement.set(
        device_name=description.get("name", measurement.record.device_name),
        unit=description["unit"],
        units=description["units"],
        peaks=tuple(schema.decode(Peak, peak) for peak in description["peaks"]),
    )


def _exit_reason(code: int) -> str:
    if code < 0:
        return f"the process was killed by {signal.Signals(-code).name}"
    return f"the process exited with code {code}"


def _measure_links(measurement: Measurement, *, ranks: int | None, observer: Observer) -> None:
    if measurement.record.links or "links" in _finished_jobs(measurement.record):
        return
    count = ranks or _default_ranks(measurement.record)
    if count < 2:
        measurement.add(unavailable=(("links", "a single process has no links"),))
        return
    observer.stage(f"links between {count} processes of this node")
    seconds = measurement.record.seconds * LINKS_FRACTION
    device_type = measurement.record.device.partition(":")[
        0
    ]  # each process has an accelerator of its own
    times = link_jobs.measure_node_links(device=device_type, ranks=count, seconds=seconds)
    measurement.add(links=tuple(times))


def _default_ranks(record: RooflineRecord) -> int:
    """Return one rank per accelerator, or CPU slots [D8]."""
    if record.device == "cpu":
        return system.default_cpu_slots(None)
    return len(record.system.accelerators)


def measure_cluster(
    path: Path,
    *,
    config: Config,
    precisions: tuple[str, ...],
    seconds: float,
    observer: Observer,
) -> RooflineRecord:
    """Measure a Slurm cluster in one job, and merge its parts into `path`."""
    if path.exists():
        raise InputError(f"{path} exists.", path=path, remedy="Name another file with --out.")
    if config.container.image is not None:
        raise ConfigError(
            "`ai500 roofline --scheduler slurm` measures without a container.",
            key="container.image",
            value=config.container.image,
            remedy="Leave container.image out.",
        )
    cluster = SLURM.survey(config)
    assert cluster is not None  # Slurm always returns one
    nodes = config.system.nodes or len(cluster.nodes)
    if nodes > len(cluster.nodes):
        raise ConfigError(
            f"system.nodes = {nodes}, but partition {cluster.partition!r} has only "
            f"{len(cluster.nodes)} usable nodes.",
            key="system.nodes",
            value=nodes,
        )
    device = config.system.device or ("cuda" if cluster.accelerators_per_node else "cpu")
    ranks, cpus = link_jobs.ranks_and_cpus(
        config,
        cpus_per_node=cluster.cpus_per_node,
        accelerators=0 if device == "cpu" else cluster.accelerators_per_node,
    )
    folder = path.resolve().with_suffix(".job")
    folder.mkdir(parents=True, exist_ok=True)
    python = python_of(config)
    node = folder / "node.json"
    kernels = [
        python, "-m", "ai500", "roofline", "--out", str(node), "--ranks", "1",
        "--seconds", str(seconds * (1 - LINKS_FRACTION)), "--device", device,
        *(argument for name in precisions for argument in ("--precision", name)),
    ]  # fmt: skip
    script = link_jobs.batch_script(
        folder=folder,
        nodes=nodes,
        ranks=ranks,
        cpus=cpus,
        device=device,
        kernels=kernels,
        seconds=seconds * LINKS_FRACTION,
        slurm=config.slurm,
        python=python,
    )
    (folder / "job.sh").write_text(script, encoding="utf-8")
    link_jobs.run_batch_script(
        script,
        folder=folder,
        patience_seconds=60 * config.scheduler.patience_minutes,
        on_state=observer.stage,
    )
    record = run_folder.read(RooflineRecord, node)
    links = run_folder.read_all(LinkTime, folder / "links.json")
    unavailable = tuple(entry for entry in record.unavailable if entry[0] != "links")
    record = replace(record, links=tuple(links), unavailable=unavailable)
    run_folder.write(path, record)
    return record
