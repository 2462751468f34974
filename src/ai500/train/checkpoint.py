"""Checkpoints: written atomically, and sufficient to continue bit for bit.

Every random stream is a pure function of (seed, member, epoch, step), so the position is the
random state. Only rank 0 writes, one file with the names and shapes of the unsharded model, so a
checkpoint does not depend on the parallel mode. Replicas differ in batch norm's running statistics
alone, and those are rank 0's at every evaluation. The file's digest and its two generations are
`records/checkpoint_file.py`'s.
"""

from __future__ import annotations

import copy
import hashlib
import io
import pickle
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Any, Protocol

import torch
import torch.distributed as dist
from torch import Tensor

from ai500.core.errors import DataError
from ai500.parallel.engines import Engine
from ai500.parallel.engines.state import (
    gather_objects,
    gather_optimizer,
    gather_weights,
    load_optimizer,
    load_weights,
)
from ai500.records import checkpoint_file
from ai500.records.checkpoint_file import Damaged, Owner
from ai500.train.position import Position
from ai500.train.precision.numerics import Numerics

# One thread for all members of a process: their files are written one after another, and the
# interpreter waits for it at exit.
WRITER_THREAD = ThreadPoolExecutor(1, "checkpoint")


class Trained(Protocol):
    """Objects whose state a checkpoint holds: a `Member` has them."""

    engine: Engine
    numerics: Numerics
    optimizer: torch.optim.Optimizer


class Writer:
    """Asynchronous writer: the state is copied at once, a thread writes the file atomically.

    An error of the thread is raised by the next `save` or `wait`.
    """

    def __init__(self, owner: Owner) -> None:
        self._owner = owner
        self._writing: Future[None] | None = None

    def save(self, path: Path, trained: Trained, position: Position) -> None:
        """Gather the state of all ranks and start writing it on rank 0."""
        engine, numerics = trained.engine, trained.numerics
        if engine.mesh.rank == 0:
            self.wait()
        own = copy.deepcopy({"engine": engine.state_dict(), "numerics": numerics.state_dict()})
        state = {
            "model": gather_weights(engine.module, engine.layout),
            "optimizer": gather_optimizer(trained.optimizer, engine.module, engine.layout),
            "ranks": _state_of_ranks(own, engine),
            "position": asdict(position),
        }
        if engine.mesh.rank == 0:
            self._writing = WRITER_THREAD.submit(_write, path, state, self._owner)

    def wait(self) -> None:
        """Wait until the last file is written."""
        if self._writing is not None:
            writing, self._writing = self._writing, None
            writing.result()


def _write(path: Path, state: dict[str, Any], owner: Owner) -> None:
    """Serialize to memory first: torch's file writer hides the disk's errors behind its own."""
    buffer = io.BytesIO()
    torch.save(state, buffer)
    epoch = state["position"]["epoch"]
    checkpoint_file.write(path, buffer.getbuffer(), owner=owner, epoch=epoch)


def restore(
    path: Path,
    trained: Trained,
    *,
    owner: Owner,
    on_damaged: Callable[[Damaged], None],
    accepts: Callable[[int], bool] = lambda _: True,
) -> Position | None:
    """Load this rank's part of the newest good checkpoint; return None if there is none.

    Damaged ones are reported on rank 0 and deleted. `accepts` decides on rank 0 whether to continue
    after so many epochs.
    """
    engine = trained.engine
    file = _chosen_file(path, engine, owner=owner, on_damaged=on_damaged, accepts=accepts)
    if file is None:
        return None
    state = read(file, owner=owner)
    try:
        position = Position(**state["position"])
        load_weights(engine.module, state["model"], engine.layout)
        load_optimizer(trained.optimizer, engine.module, state["optimizer"], engine.layout)
        own = state["ranks"][engine.mesh.rank if len(state["ranks"]) > 1 else 0]
        engine.load_state_dict(own["engine"])
        trained.numerics.load_state_dict(own["numerics"])
    except (KeyError, IndexError, TypeError, RuntimeError, ValueError) as error:
        raise _not_a_checkpoint(file, f": {error}") from error
    return position


def _chosen_file(
    path: Path,
    engine: Engine,
    *,
    owner: Owner,
    on_damaged: Callable[[Damaged], None],
    accepts: Callable[[int], bool],
) -> Path | None:
    """Return the file that rank 0 chooses: every rank has to continue from the same one."""
    chosen: list[Path | None] = [None]
    if engine.mesh.rank == 0:
        sealed, damaged = checkpoint_file.newest(path, owner=owner)
        chosen = [sealed.path if sealed is not None and accepts(sealed.epoch) else None]
        for each in damaged:
            on_damaged(each)
        checkpoint_file.discard(damaged)
    if engine.mesh.size > 1:
        dist.broadcast_object_list(chosen, src=0)
    return chosen[0]


def read(path: Path, *, owner: Owner) -> dict[str, Any]:
    """Read a checkpoint; a damaged file is a DataError."""
    payload = checkpoint_file.read(path, owner=owner).payload
    try:
        state = torch.load(io.BytesIO(payload), map_location="cpu", weights_only=True)
    except (pickle.UnpicklingError, RuntimeError, EOFError, ValueError, LookupError) as error:
        reason = str(error).partition("\n")[0][:200]
        raise _not_a_checkpoint(path, f": {reason}") from error
    if not isinstance(state, dict):
        raise _not_a_checkpoint(path, "")
    return state


def _not_a_checkpoint(path: Path, reason: str) -> DataError:
    return DataError(
        f"{path} is not a checkpoint of this run{reason}.", path=path, remedy="Delete it."
    )


def _state_of_ranks(own: dict[str, Any], engine: Engine) -> list[Any] | None:
    """Gather the ranks' states on rank 0, one where all are equal; None on other ranks."""
    if engine.layout.scattered or any(own["engine"].values()):
        return gather_objects(own, size=engine.mesh.size)
    return [own]


def weights_sha256(weights: Mapping[str, Tensor]) -> str:
    """Hash all parameters and buffers, names included, bit by bit."""
    digest = hashlib.sha256()
    for name, tensor in sorted(weights.items()):
        digest.update(name.encode())
        raw = tensor.detach().cpu().contiguous().flatten().view(torch.uint8)
        digest.update(raw.numpy().tobytes())
    return digest.hexdigest()
