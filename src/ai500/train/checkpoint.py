"""Checkpoints: whole or absent, and enough to go on bit by bit as if nothing had happened.

Every random stream is a pure function of (seed, member, epoch, step), so the position is the
random state. Only rank 0 writes, one file with the names and shapes of the whole model: it is
whole or absent whatever the parallel mode, and says nothing of it. Replicas differ in batch norm's
running statistics alone, and those are rank 0's at every evaluation.
"""

from __future__ import annotations

import copy
import hashlib
import io
import pickle
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ai500.core import atomic
from ai500.core.errors import DataError
from ai500.parallel.engines import Engine
from ai500.parallel.engines.state import (
    gather_objects,
    gather_optimizer,
    gather_weights,
    load_optimizer,
    load_weights,
)
from ai500.train.precision.numerics import Numerics

ONE_AT_A_TIME = ThreadPoolExecutor(1, "checkpoint")
"""Of all members that share a process; it ends after the last file."""


@dataclass
class Position:
    """Where training stands, and the running sums of the epoch in progress."""

    seed: int
    epoch: int = 0
    step: int = 0
    images: int = 0
    loss_sum: float = 0.0


class Writer:
    """Writes beside the training: the state is copied at once, the file follows in a thread.

    Whole or absent. What goes wrong is raised by whoever comes next.
    """

    def __init__(self) -> None:
        self._writing: Future[None] | None = None

    def save(
        self,
        path: Path,
        *,
        engine: Engine,
        optimizer: torch.optim.Optimizer,
        numerics: Numerics,
        position: Position,
    ) -> None:
        """Rank 0 writes, every rank brings its part."""
        if engine.mesh.rank == 0:
            self.wait()
        mine = copy.deepcopy({"engine": engine.state_dict(), "numerics": numerics.state_dict()})
        state = {
            "model": gather_weights(engine.module, engine.layout),
            "optimizer": gather_optimizer(optimizer, engine.module, engine.layout),
            "ranks": _everyones(mine, engine),
            "position": asdict(position),
        }
        if engine.mesh.rank == 0:
            self._writing = ONE_AT_A_TIME.submit(_write, path, state)

    def wait(self) -> None:
        """Until the last file is written."""
        if self._writing is not None:
            writing, self._writing = self._writing, None
            writing.result()


def _write(path: Path, state: dict[str, Any]) -> None:
    """Through memory, because torch's own writer hides the disk's errors behind its own."""
    buffer = io.BytesIO()
    torch.save(state, buffer)
    atomic.write_bytes(path, buffer.getbuffer())


def restore(
    path: Path,
    *,
    engine: Engine,
    optimizer: torch.optim.Optimizer,
    numerics: Numerics,
    seed: int,
) -> Position | None:
    """Load this rank's part; None when there is no checkpoint yet."""
    if not path.exists():
        return None
    state = read(path)
    try:
        position = Position(**state["position"])
        if position.seed != seed:
            raise DataError(f"{path} belongs to seed {position.seed}, this run has {seed}.")
        load_weights(engine.module, state["model"], engine.layout)
        load_optimizer(optimizer, engine.module, state["optimizer"], engine.layout)
        mine = state["ranks"][engine.mesh.rank if len(state["ranks"]) > 1 else 0]
        engine.load_state_dict(mine["engine"])
        numerics.load_state_dict(mine["numerics"])
    except (KeyError, IndexError, TypeError, RuntimeError, ValueError) as error:
        raise DataError(f"{path} is not a checkpoint of this run: {error}. Delete it.") from error
    return position


def read(path: Path) -> dict[str, Any]:
    """All that a checkpoint has; whatever a broken disk made of it is told as such."""
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
    except (pickle.UnpicklingError, RuntimeError, EOFError, ValueError, LookupError) as error:
        why = str(error).partition("\n")[0][:200]
        raise DataError(f"{path} is not a checkpoint of this run: {why}. Delete it.") from error
    if not isinstance(state, dict):
        raise DataError(f"{path} is not a checkpoint of this run. Delete it.")
    return state


def _everyones(mine: dict[str, Any], engine: Engine) -> list[Any] | None:
    """What each rank remembers; rank 0's alone where it stands for all."""
    if engine.layout.scattered or any(mine["engine"].values()):
        return gather_objects(mine, size=engine.mesh.size)
    return [mine]


def weights_sha256(weights: Mapping[str, Tensor]) -> str:
    """A fingerprint of all parameters and buffers, bit by bit."""
    digest = hashlib.sha256()
    for name, tensor in sorted(weights.items()):
        digest.update(name.encode())
        raw = tensor.detach().cpu().contiguous().flatten().view(torch.uint8)
        digest.update(raw.numpy().tobytes())
    return digest.hexdigest()
