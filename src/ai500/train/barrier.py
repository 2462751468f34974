"""A member among the others of its ensemble: clocks compared, and in a gang a common start [D6]."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch.distributed as dist

from ai500.core import schema
from ai500.core.barrier import BarrierClient, connect
from ai500.records import Task
from ai500.records.run_folder import RunFolder
from ai500.train.worker import Rank

GANG_PATIENCE_SECONDS = 120.0
"""A gang's barrier starts beside its members; an array's may be gone for good."""


@dataclass(frozen=True)
class TrialBarrier:
    """Rank 0 speaks for the member; where there is nobody to meet, nothing happens."""

    task: Task
    rank: Rank
    emit: Callable[..., None]

    def begin(self) -> None:
        """Just before the first batch: everything else is ready."""
        patience = GANG_PATIENCE_SECONDS if "AI500_BARRIER" in os.environ else 0.0
        if self.rank.rank == 0 and (visitor := self._visit(patience)) is not None:
            self._tell_clock(visitor)
            if "AI500_BARRIER" in os.environ:
                self.emit("barrier", missing=visitor.wait())
            visitor.close()
        if self.rank.world_size > 1:
            dist.barrier()

    def end(self) -> None:
        """After the window: clocks drift."""
        if self.rank.rank == 0 and (visitor := self._visit(0.0)) is not None:
            self._tell_clock(visitor)
            visitor.close()

    def _visit(self, patience_seconds: float) -> BarrierClient | None:
        return connect(
            RunFolder(Path(self.task.run)).trial(self.task.trial).barrier,
            name=os.environ.get("AI500_BARRIER"),
            timeout_seconds=patience_seconds,
        )

    def _tell_clock(self, visitor: BarrierClient) -> None:
        if (offset := visitor.clock()) is not None:
            self.emit("clock", **schema.encode(offset))
