"""Frameworks that may live in an interpreter of their own: what can be planned, and the worker.

Their pins conflict with each other's and with PyTorch's, so `framework.python` names an interpreter
that has the framework and NumPy. The running source reaches it by its path (`start_worker.py`).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from ai500.config import Config, GridEngineConfig, SlurmConfig
from ai500.core.errors import ConfigError, EnvironmentLacksError
from ai500.core.source import PACKAGE
from ai500.frameworks.class_models import WORKLOADS
from ai500.frameworks.protocol import (
    Capabilities,
    NodePlace,
    WorkerCommand,
    free_port,
    refuse_unused,
    rendezvous,
)
from ai500.records import Task
from ai500.records.run_folder import MemberFolder

START = PACKAGE / "frameworks" / "start_worker.py"
OLDEST_PYTHON = (3, 11)
_PROBE = """
import json, sys
from importlib.metadata import PackageNotFoundError, version
found = {}
for name in sys.argv[1:]:
    try: found[name] = version(name)
    except PackageNotFoundError: found[name] = None
print(json.dumps({"python": sys.version_info[:3], "versions": found}))
"""


def installed_interpreter(name: str) -> str | None:
    """Return the interpreter of a framework that is set up beside this one; None: this one.

    The variable AI500_NAME_PYTHON names it, or it is `.venv-NAME` in the working folder.
    """
    beside = Path(f".venv-{name}", "bin", "python").absolute()
    return os.environ.get(f"AI500_{name.upper()}_PYTHON") or (
        str(beside) if beside.exists() else None
    )


@dataclass(frozen=True, slots=True)
class Interpreted:
    """A framework whose worker is `array_member.py` with the backend `NAME_backend.py`."""

    name: str
    """Name in configurations: `framework.kind = "…"`."""
    title: str
    """The framework's own spelling, for reports."""
    distributions: tuple[str, ...]
    """Names of the packages that hold it, on a package index; one of them has to be installed."""
    oldest: str
    """Oldest version that its backend was tested with."""
    capabilities: Capabilities
    workloads: tuple[str, ...] = WORKLOADS
    optimizers: tuple[str, ...] = ("sgd",)
    reads_staged_data: bool = True

    def check(self, config: Config) -> None:
        """Refuse what the backend can't train, and an interpreter without the framework."""
        reason = f"framework.kind = {self.name!r} trains by ai500's own worker"
        unused = {f"framework.{key}": reason for key in ("command", "operations")}
        code = "code of one's own is PyTorch's"
        unused |= {f"free_level.{part}": code for part in ("model", "optimizer", "loss")}
        refuse_unused(config, unused)
        self._check_model(config)
        interpreter = _interpreter_here(config)
        if interpreter is not None:
            self.check_interpreter(interpreter)

    def command(self, task: Task, *, folder: MemberFolder, place: NodePlace) -> WorkerCommand:
        """Build one process for one rank, and one that starts this node's ranks for several."""
        worker = (task.framework.python or sys.executable, str(START), str(folder.task))
        if task.parallel_degree == 1:
            return WorkerCommand(worker)
        host, port = "127.0.0.1", 0
        if place.count > 1:
            address = rendezvous(folder, place)
            host, port = address.host, address.port
        ranks = place.local_ranks(task)
        words = (
            *worker, f"--ranks={ranks}", f"--first={place.first_rank(task)}",
            f"--world-size={task.parallel_degree}", f"--address={host}:{port or free_port()}",
        )  # fmt: skip
        return WorkerCommand(words, starts_ranks=True)

    def check_interpreter(self, interpreter: str) -> str:
        """Return the framework's version in that interpreter; EnvironmentLacksError: it lacks."""
        install = f"{interpreter} -m pip install '{self.distributions[0]}>={self.oldest}' numpy"
        versions = _probe(interpreter, (*self.distributions, "numpy"))
        version = next((versions[name] for name in self.distributions if versions[name]), None)
        lacking = [self.distributions[0]] if version is None else []
        lacking += [] if versions["numpy"] else ["numpy"]
        if lacking:
            raise EnvironmentLacksError(
                f"framework.kind = {self.name!r}: {interpreter} has no {' and no '.join(lacking)}.",
                key="framework.python",
                value=interpreter,
                remedy=f"Run `{install}`, or name another interpreter in framework.python.",
            )
        assert version is not None
        if _numbers(version) < _numbers(self.oldest):
            raise EnvironmentLacksError(
                f"framework.kind = {self.name!r}: {interpreter} has version {version}; "
                f"{self.oldest} or later is needed.",
                key="framework.python",
                value=version,
                remedy=f"Run `{install}`.",
            )
        return version

    def _check_model(self, config: Config) -> None:
        if config.workload not in self.workloads:
            raise ConfigError(
                f"workload = {config.workload!r}: framework.kind = {self.name!r} has no model for "
                f"it; it has {', '.join(self.workloads)}.",
                key="framework.kind",
                value=self.name,
                remedy="Set framework.kind = 'pytorch', or another workload.",
            )
        refused = {
            "train.optimizer": (config.train.optimizer, self.optimizers),
            "communication.mode": (config.communication.mode, ("all_reduce",)),
            "communication.precision": (config.communication.precision, ("fp32",)),
            "parallel.batch_norm": (config.parallel.batch_norm, ("replica",)),
            "parallel.sharded": (config.parallel.sharded, (False,)),
            "train.accumulation": (config.train.accumulation, (1,)),
        }
        for key, (value, choices) in refused.items():
            if value is not None and value not in choices:
                raise ConfigError(
                    f"{key} = {value!r}: framework.kind = {self.name!r} can do "
                    f"{', '.join(map(str, choices))}.",
                    key=key,
                    value=value,
                    remedy="Leave it out, or set framework.kind = 'pytorch'.",
                )


def _interpreter_here(config: Config) -> str | None:
    """Return the jobs' interpreter if this machine can check it; None: only the nodes can.

    A cluster's interpreter is checked where this machine has it under the same path, unless setup
    lines of the jobs may add packages to it.
    """
    if config.scheduler.launcher != "bare":
        return None
    if config.scheduler.kind == "local":
        return config.framework.python or sys.executable
    sites: dict[str, SlurmConfig | GridEngineConfig] = {
        "slurm": config.slurm,
        "grid_engine": config.grid_engine,
    }
    site = sites.get(config.scheduler.kind)
    if site is None or site.setup:
        return None
    interpreter = config.framework.python or site.python or sys.executable
    return interpreter if "/" in interpreter and Path(interpreter).exists() else None


@cache
def _probe(interpreter: str, names: tuple[str, ...]) -> dict[str, str | None]:
    """Return the versions of packages in an interpreter, without importing them."""
    try:
        done = subprocess.run(
            [interpreter, "-c", _PROBE, *names],
            capture_output=True, text=True, timeout=60, check=True,
        )  # fmt: skip
        answer = json.loads(done.stdout)
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        raise EnvironmentLacksError(
            f"framework.python = {interpreter!r} is no Python interpreter on this machine: "
            f"{str(error)[:200]}",
            key="framework.python",
            value=interpreter,
            path=Path(interpreter),
            remedy="Name the interpreter that has the framework, such as .venv-jax/bin/python.",
        ) from error
    if tuple(answer["python"]) < OLDEST_PYTHON:
        raise EnvironmentLacksError(
            f"framework.python = {interpreter!r} is Python {'.'.join(map(str, answer['python']))}; "
            f"ai500's worker needs {'.'.join(map(str, OLDEST_PYTHON))} or later.",
            key="framework.python",
            value=interpreter,
            remedy="Make an interpreter of a later Python.",
        )
    versions: dict[str, str | None] = answer["versions"]
    return versions


def _numbers(version: str) -> tuple[int, ...]:
    """Return the leading numbers of a version: 2.21.0rc1 → (2, 21, 0)."""
    numbers = []
    for part in version.split("."):
        digits = "".join(c for c in part if c.isdigit()) if part[:1].isdigit() else ""
        if not digits:
            break
        numbers.append(int(digits))
    return tuple(numbers)
