"""A study's folder, and the finished runs that a study may use instead of running again.

runs/study-<name>-<workload>-<class>/
  study.json  config.toml  result.json  points.csv  report.html
  runs/<point>-<digest>/      an ordinary run folder
  conditions/<point>-<digest>.json
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ai500 import config as configuration
from ai500.config import Config
from ai500.core.errors import AI500Error, RunFolderError
from ai500.core.schema import decode, encode
from ai500.records import Plan, Score, System, TrainRecord, run_folder
from ai500.records.run_folder import RunFolder
from ai500.study.records import Conditions, StudyPlan, StudyResult

# Estimates, and node names, which a scheduler assigns anew each time.
_IGNORED_PLAN_FIELDS = {
    "estimated_seconds", "estimated_node_hours", "estimate_basis", "bytes_per_node", "nodes",
    "mapping", "cluster",
}  # fmt: skip
# Accounting and limits; the partition is taken from the cluster, whether it is configured or not.
_IGNORED_SLURM_FIELDS = {
    "account", "qos", "time_limit", "checkpoint_signal_seconds", "barrier_seconds", "partition",
}  # fmt: skip
LOCK = ".lock"


class StudyFolder:
    """Paths of a study's files."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.plan = path / "study.json"
        self.config = path / "config.toml"
        self.result = path / "result.json"
        self.csv = path / "points.csv"
        self.report = path / "report.html"
        self.runs = path / "runs"

    @classmethod
    def open(cls, path: Path) -> StudyFolder:
        """Open an existing study folder."""
        folder = cls(path)
        if not folder.plan.exists():
            raise RunFolderError(
                f"{path} is not a study folder: it has no study.json.",
                key=folder.plan.name,
                path=path,
                remedy="Start one with `ai500 study scaling`.",
            )
        return folder

    def read_plan(self) -> StudyPlan:
        """Read the plan."""
        return run_folder.read(StudyPlan, self.plan)

    def read_result(self) -> StudyResult | None:
        """Read the last result; None: there is none yet."""
        return run_folder.read(StudyResult, self.result) if self.result.exists() else None

    def run_path(self, run: str) -> Path:
        """Return the folder of a point's run."""
        return self.path / run  # an absolute path stays as it is

    def locked(self) -> contextlib.AbstractContextManager[None]:
        """Lock the study: one process at a time runs it."""
        return run_folder.locked(
            self.path / LOCK, remedy="Wait for it, or choose another --out for another study."
        )

    def relative_name(self, run: Path) -> str:
        """Return a run's name in study.json: relative where study and run may move together."""
        near = run.absolute().is_relative_to(self.path.absolute().parent)
        return os.path.relpath(run, self.path) if near else str(run.absolute())


def conditions_file(run: Path) -> Path:
    """Return the path of the conditions that a study records before a run."""
    return run.parent.parent / "conditions" / f"{run.name}.json"


def read_conditions(run: Path) -> Conditions | None:
    """Read the conditions before the run; None: not recorded."""
    file = conditions_file(run)
    return run_folder.read(Conditions, file) if file.exists() else None


def work_digest(config: Config, plan: Plan, machine: System, *, source: str) -> str:
    """Digest everything a result depends on: plan, data, jobs, machine, and the source's digest."""
    return _sha256({**_identity(config, plan, machine), "source": source})


def cost_family(config: Config, plan: Plan, machine: System) -> str:
    """Digest the same without source, seed and number of trials: such runs cost about the same."""
    identity = _identity(config, plan, machine)
    return _sha256({**identity, "plan": {**identity["plan"], "seed": None, "trials": None}})


def _identity(config: Config, plan: Plan, machine: System) -> dict[str, Any]:
    # Encoded and decoded as on disk, where 2 becomes 2.0 in a field that may have a fraction.
    # The map of a large ensemble, which is ignored, would take seconds.
    work = decode(Plan, encode(replace(plan, nodes=(), mapping=(), cluster=None)))
    planned = {key: value for key, value in encode(work).items() if key not in _IGNORED_PLAN_FIELDS}
    return {
        "plan": planned,
        "slots": [len(slot.cores) for slot in plan.nodes[0].slots],
        "nodes": len({share.node for member in plan.mapping for share in member.shares}),
        "data": [config.data.path, config.data.scratch],
        "container": None if plan.launcher == "bare" else encode(config.container),
        "jobs": _job_settings(config, plan),
        "machine": [machine.cpu, machine.cores, *machine.accelerators],
        "libraries": machine.libraries,
    }


def _job_settings(config: Config, plan: Plan) -> dict[str, Any] | None:
    """Return the cluster and the settings of its jobs; None: processes of this machine."""
    if plan.cluster is None:
        return None
    settings = {k: v for k, v in encode(config.slurm).items() if k not in _IGNORED_SLURM_FIELDS}
    return {**settings, "cluster": plan.cluster.name, "partition": plan.cluster.partition}


def recorded_source(run: RunFolder) -> str:
    """Return the workers' source digests; several, joined, match no other run."""
    records = run.path.glob("trials/*/members/*/record.json")
    sources = {str(run_folder.read(TrainRecord, path).versions.get("source")) for path in records}
    return " ".join(sorted(sources))


def _sha256(value: Any) -> str:
    text = json.dumps(value, sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()


@dataclass(frozen=True)
class FinishedRun:
    """A finished run and its digests."""

    run: RunFolder
    digest: str
    family: str
    score: Score


def finished_runs(folders: Iterable[Path]) -> list[FinishedRun]:
    """Return all finished runs in these folders and in studies within; skip unreadable ones."""
    runs = []
    for path in sorted({path.absolute() for folder in folders for path in _runs_in(folder)}):
        with contextlib.suppress(AI500Error, OSError):
            run = RunFolder.open(path)
            config = configuration.load(run.config)
            plan, machine = run_folder.read(Plan, run.plan), run_folder.read(System, run.system)
            if run_folder.state_of(run, plan) == "finished":
                key = work_digest(config, plan, machine, source=recorded_source(run))
                kin = cost_family(config, plan, machine)
                runs.append(FinishedRun(run, key, kin, run_folder.read(Score, run.score)))
    return runs


def _runs_in(folder: Path) -> Iterator[Path]:
    for pattern in ("*/run.json", "*/runs/*/run.json"):
        yield from (file.parent for file in folder.glob(pattern))
