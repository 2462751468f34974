"""The ranks of a member in MindSpore: its scheduler process, and collectives between processes.

MCCL, MindSpore's communication library for CPUs, needs a scheduler beside the ranks, at which they
register. Rank 0 starts it, at the address that the ranks' environment names.
"""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
from typing import Any

import mindspore
import numpy as np
from mindspore import communication, nn, ops
from numpy.typing import NDArray

from ai500.train.worker import Rank

LIBRARY = "mccl"
HEARTBEAT_SECONDS = 300
"""Silence after which MindSpore gives a rank up; its default of 30 s ends members of busy nodes."""
CLOSE_SECONDS = 20.0
"""For the scheduler to notice that all ranks left."""
# The scheduler ends with rank 0, whatever ended that.
_SCHEDULER = f"""
import ctypes, signal, sys
if sys.platform == "linux":
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)
import mindspore
mindspore.set_device("CPU")
mindspore.communication.init("{LIBRARY}")
"""


class Gather(nn.Cell):
    """The rows of all ranks."""

    def __init__(self) -> None:
        super().__init__()
        self.gather = ops.AllGather()

    def construct(self, rows: Any) -> Any:
        """Concatenate the rows."""
        return self.gather(rows)


class Ranks:
    """The communication of one rank; nothing is started for a single one."""

    def __init__(self, rank: Rank) -> None:
        self.several = rank.world_size > 1
        self._scheduler: subprocess.Popen[bytes] | None = None
        if not self.several:
            return
        address = {
            "MS_WORKER_NUM": str(rank.world_size),
            "MS_SCHED_HOST": socket.gethostbyname(os.environ["MASTER_ADDR"]),
            "MS_SCHED_PORT": os.environ["MASTER_PORT"],
            "MS_NODE_TIMEOUT": os.environ.get("MS_NODE_TIMEOUT", str(HEARTBEAT_SECONDS)),
        }
        if rank.rank == 0:
            self._scheduler = subprocess.Popen(
                [sys.executable, "-c", _SCHEDULER],
                env=os.environ | address | {"MS_ROLE": "MS_SCHED"},
                start_new_session=True,  # a signal to the ranks is not for it
            )
        os.environ |= address | {"MS_ROLE": "MS_WORKER", "MS_NODE_ID": str(rank.rank)}
        communication.init(LIBRARY)
        assert communication.get_rank() == rank.rank, "MindSpore numbered the ranks otherwise"
        self._gather = Gather()

    def gather(self, rows: NDArray[Any]) -> NDArray[Any]:
        """Concatenate the equally many rows of all ranks."""
        if not self.several:
            return rows
        # MCCL copies bytes: any type of 4 or 8 bytes travels as FP32.
        own = np.ascontiguousarray(rows)
        flat = own.reshape(len(own), -1).view(np.float32)
        gathered = self._gather(mindspore.Tensor(flat)).asnumpy()
        return np.ascontiguousarray(gathered).view(own.dtype).reshape(-1, *own.shape[1:])

    def close(self) -> None:
        """Leave the group; rank 0 waits for the scheduler."""
        if self.several:
            communication.release()
        if self._scheduler is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._scheduler.wait(timeout=CLOSE_SECONDS)
            self._scheduler.kill()
            self._scheduler.wait()
