"""PyTorch, the reference framework [D2]: ai500's own worker, and torchrun for several ranks."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

from ai500.config import Config
from ai500.core.errors import ConfigError
from ai500.frameworks.protocol import (
    Capabilities,
    NodePlace,
    WorkerCommand,
    refuse_unused,
    rendezvous,
)
from ai500.records import Task
from ai500.records.run_folder import MemberFolder
from ai500.workloads.protocol import load_workload


class PyTorch:
    """Members trained by `ai500.train.worker`; every mode, precision and device of the plan."""

    name = "pytorch"
    capabilities = Capabilities()
    reads_staged_data = True

    def check(self, config: Config) -> None:
        """Refuse the keys of other frameworks, and a workload that has no model."""
        reason = "framework.kind = 'pytorch' trains by ai500's own worker"
        unused = ("command", "python", "operations")
        refuse_unused(config, {f"framework.{key}": reason for key in unused})
        if not load_workload(config.workload).problem_classes:
            raise ConfigError(
                f"workload = {config.workload!r} has no model for framework.kind = 'pytorch'.",
                key="framework.kind",
                value=self.name,
                remedy="Set framework.kind = 'script' and framework.command.",
            )

    def command(self, task: Task, *, folder: MemberFolder, place: NodePlace) -> WorkerCommand:
        """Build one process for one rank, one torchrun per node for several."""
        worker = (sys.executable, "-m", "ai500.train.worker", str(folder.task))
        if task.parallel_degree == 1:
            return WorkerCommand(worker)
        ranks = place.local_ranks(task)
        torchrun = (
            sys.executable, "-m", "torch.distributed.run", f"--nproc-per-node={ranks}",
            f"--log-dir={torchrun_folder()}",
        )  # fmt: skip
        if place.count == 1:
            alone = (*torchrun, "--standalone", "--no-python", *worker)
            return WorkerCommand(alone, starts_ranks=True, temporary=torchrun_folder())
        address = rendezvous(folder, place)
        # Static rendezvous: the node's index gives the order of the ranks, so that sums are rounded
        # in the same order at every start.
        words = (
            *torchrun, f"--nnodes={place.count}", f"--node-rank={place.index}",
            f"--master-addr={address.host}", f"--master-port={address.port}",
            "--no-python", *worker,
        )  # fmt: skip
        return WorkerCommand(words, starts_ranks=True, temporary=torchrun_folder())


def torchrun_folder() -> Path:
    """Return the folder of a torchrun that this process starts, and removes when it has ended."""
    return Path(tempfile.gettempdir()) / f"ai500-torchrun-{os.getpid()}"


PYTORCH = PyTorch()
