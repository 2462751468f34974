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
from ai500.pipeline import scoring
from ai500.records import Plan, Score, System, TrainRecord, run_folder
from ai500.records.run_folder import RunFolder
from ai500.study.records import FORMAT, Conditions, StudyPlan, StudyResult

_NOT_OF_THE_WORK = {
    "estimated_seconds", "estimated_node_hours", "estimate_basis", "bytes_per_node", "nodes",
    "mapping", "cluster",
}  # fmt: skip
"""Of a plan: guesses, and names of nodes, of which a scheduler gives others each time."""
_NOT_OF_THE_JOBS = {
    "account", "qos", "time_limit", "checkpoint_signal_seconds", "barrier_seconds", "partition",
}  # fmt: skip
"""Of [slurm]: who pays, and limits; the partition is told by the cluster, stated or not."""
LOCK = ".lock"


class StudyFolder:
    """A study's files."""

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
        """An existing study folder."""
        folder = cls(path)
        if not folder.plan.exists():
            raise RunFolderError(
                f"{path} is not a study's folder (it has no study.json). "
                "`ai500 study scaling --dry-run` shows how one begins."
            )
        return folder

    def read_plan(self) -> StudyPlan:
        """The plan, of a layout this version knows."""
        plan = run_folder.read(StudyPlan, self.plan)
        if plan.format != FORMAT:
            raise RunFolderError(
                f"{self.path} has layout {plan.format}, this version reads {FORMAT}. "
                f"It was made by ai500 {plan.version}."
            )
        return plan

    def read_result(self) -> StudyResult | None:
        """What was collected last; None: nothing yet."""
        return run_folder.read(StudyResult, self.result) if self.result.exists() else None

    def run_path(self, run: str) -> Path:
        """The folder of a point's run."""
        return self.path / run  # an absolute path stays as it is

    def locked(self) -> contextlib.AbstractContextManager[None]:
        """Only one process at a time carries the study out."""
        return run_folder.locked(
            self.path / LOCK, remedy="Wait for it, or choose another --out for another study."
        )

    def named(self, run: Path) -> str:
        """How study.json names a run's folder: a study and its neighbours may move together."""
        near = run.absolute().is_relative_to(self.path.absolute().parent)
        return os.path.relpath(run, self.path) if near else str(run.absolute())


def conditions_file(run: Path) -> Path:
    """Where a study notes what else the machine did; of a run outside of studies: nowhere."""
    return run.parent.parent / "conditions" / f"{run.name}.json"


def read_conditions(run: Path) -> Conditions | None:
    """The machine just before the run; None: nobody looked."""
    file = conditions_file(run)
    return run_folder.read(Conditions, file) if file.exists() else None


def digest(config: Config, plan: Plan, machine: System, *, source: str) -> str:
    """Of all that a result depends on: plan, data, jobs, machine, and the source's own digest."""
    return _sha256({**_identity(config, plan, machine), "source": source})


def family(config: Config, plan: Plan, machine: System) -> str:
    """The same without source, seed and number of trials: such runs cost about the same."""
    known = _identity(config, plan, machine)
    return _sha256({**known, "plan": {**known["plan"], "seed": None, "trials": None}})


def _identity(config: Config, plan: Plan, machine: System) -> dict[str, Any]:
    # As it comes from disk: there 2 has become 2.0 where a number may have a fraction.
    # The map of a large ensemble, which is no part of it, would take seconds.
    work = decode(Plan, encode(replace(plan, nodes=(), mapping=(), cluster=None)))
    planned = {key: value for key, value in encode(work).items() if key not in _NOT_OF_THE_WORK}
    return {
        "plan": planned,
        "slots": [len(slot.cores) for slot in plan.nodes[0].slots],
        "nodes": len({share.node for one in plan.mapping for share in one.shares}),
        "data": [config.data.path, config.data.scratch],
        "container": None if plan.launcher == "bare" else encode(config.container),
        "jobs": _jobs(config, plan),
        "machine": [machine.cpu, machine.cores, *machine.accelerators],
        "libraries": machine.libraries,
    }


def _jobs(config: Config, plan: Plan) -> dict[str, Any] | None:
    """On which cluster, and how its jobs are asked for; None: processes of this machine."""
    if plan.cluster is None:
        return None
    asked = {k: v for k, v in encode(config.slurm).items() if k not in _NOT_OF_THE_JOBS}
    return {**asked, "cluster": plan.cluster.name, "partition": plan.cluster.partition}


def recorded_source(run: RunFolder) -> str:
    """The source that the run's workers told; of several, all: no other run is the same."""
    records = run.path.glob("trials/*/members/*/record.json")
    told = {str(run_folder.read(TrainRecord, path).versions.get("source")) for path in records}
    return " ".join(sorted(told))


def _sha256(value: Any) -> str:
    text = json.dumps(value, sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()


@dataclass(frozen=True)
class Finished:
    """A run that is done, and what it is the same as."""

    run: RunFolder
    digest: str
    family: str
    score: Score


def finished_runs(folders: Iterable[Path]) -> list[Finished]:
    """All whole runs in these folders and in the studies in them; what can't be read is passed."""
    found = []
    for path in sorted({path.absolute() for folder in folders for path in _runs_in(folder)}):
        with contextlib.suppress(AI500Error, OSError):
            run = RunFolder.open(path)
            config = configuration.load(run.config)
            plan, machine = run_folder.read(Plan, run.plan), run_folder.read(System, run.system)
            if scoring.state_of(run, plan) == "finished":
                key = digest(config, plan, machine, source=recorded_source(run))
                same = family(config, plan, machine)
                found.append(Finished(run, key, same, run_folder.read(Score, run.score)))
    return found


def _runs_in(folder: Path) -> Iterator[Path]:
    for pattern in ("*/run.json", "*/runs/*/run.json"):
        yield from (file.parent for file in folder.glob(pattern))
