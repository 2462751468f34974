"""Checkpoints of frameworks other than PyTorch: NumPy's arrays in one file, written atomically.

Names and shapes are the reference's in every framework, but a checkpoint is read only by the
framework that wrote it: a run has one framework, and the seal names it. The file's digest and its
two generations are `records/checkpoint_file.py`'s.
"""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ai500.core.errors import DataError
from ai500.frameworks.backend import MOMENTUM, Backend, State
from ai500.records import Task, checkpoint_file
from ai500.records.checkpoint_file import Damaged, Owner
from ai500.records.run_folder import MemberFolder
from ai500.train.position import Position
from ai500.train.task_files import checkpoint_owner

POSITION = "position.json"
"""Name of the entry with the position, beside those of the state."""


def owner_of(task: Task) -> Owner:
    """Return the owner of a task's checkpoints, its framework included."""
    return {**checkpoint_owner(task), "framework": task.framework.kind}


class ArrayWriter:
    """Asynchronous writer of rank 0: the state is copied at once, a thread writes the file.

    An error of the thread is raised by the next `save` or `wait`.
    """

    def __init__(self, owner: Owner, *, writes: bool) -> None:
        self._owner = owner
        self._writes = writes
        self._thread = ThreadPoolExecutor(1, "checkpoint")
        self._writing: Future[None] | None = None

    def save(self, path: Path, trained: Any, position: Position) -> None:
        """Copy the state and start writing it on rank 0."""
        if not self._writes:
            return
        self.wait()
        backend: Backend = trained.backend
        self._writing = self._thread.submit(_write, path, backend.state(), position, self._owner)

    def wait(self) -> None:
        """Wait until the last file is written."""
        if self._writing is not None:
            writing, self._writing = self._writing, None
            writing.result()


def _write(path: Path, state: State, position: Position, owner: Owner) -> None:
    buffer = io.BytesIO()
    encoded = np.frombuffer(json.dumps(asdict(position)).encode(), dtype=np.uint8)
    np.savez(buffer, allow_pickle=False, **{POSITION: encoded}, **state)
    checkpoint_file.write(path, buffer.getbuffer(), owner=owner, epoch=position.epoch)


def restore(
    path: Path,
    backend: Backend,
    *,
    owner: Owner,
    rank: int,
    world_size: int,
    on_damaged: Callable[[Damaged], None],
    accepts: Callable[[int], bool] = lambda _: True,
) -> Position | None:
    """Load the newest good checkpoint into the backend; return None if there is none.

    Damaged ones are reported on rank 0 and deleted. `accepts` decides on rank 0 whether to continue
    after so many epochs.
    """
    chosen = 0
    if rank == 0:
        sealed, damaged = checkpoint_file.newest(path, owner=owner)
        for each in damaged:
            on_damaged(each)
        checkpoint_file.discard(damaged)
        if sealed is not None and accepts(sealed.epoch):
            chosen = 1 + checkpoint_file.generations(path).index(sealed.path)
    if world_size > 1:  # every rank continues from the same file
        chosen = backend.broadcast(chosen)
    if chosen == 0:
        return None
    position, state = read(checkpoint_file.generations(path)[chosen - 1], owner=owner)
    backend.load_state(state)
    return position


def check_framework(folder: MemberFolder, *, framework: str) -> None:
    """Raise DataError where a member has a checkpoint of another framework.

    A file without a readable seal is left to the worker, which reports it as damaged.
    """
    for file in checkpoint_file.generations(folder.checkpoint):
        if framework != "pytorch" and file.exists():
            raise _foreign_checkpoint_error(file, "pytorch", framework)
    for file in checkpoint_file.generations(folder.array_checkpoint):
        owner = checkpoint_file.stated_owner(file)
        if owner is not None and owner.get("framework") != framework:
            raise _foreign_checkpoint_error(file, owner.get("framework"), framework)


def _foreign_checkpoint_error(path: Path, other: object, framework: str) -> DataError:
    return DataError(
        f"{path} is a checkpoint of framework {other!r}, this run has {framework!r}.",
        key="framework.kind",
        value=other,
        path=path,
        remedy="Start a new run: a member is trained by one framework.",
    )


def read(path: Path, *, owner: Owner) -> tuple[Position, State]:
    """Read position and arrays of a checkpoint; a damaged file is a DataError."""
    payload = checkpoint_file.read(path, owner=owner).payload
    try:
        with np.load(io.BytesIO(payload), allow_pickle=False) as file:
            position = Position(**json.loads(file[POSITION].tobytes()))
            state = {name: file[name] for name in file.files if name != POSITION}
    except (ValueError, TypeError, KeyError, EOFError, OSError, zipfile.BadZipFile) as error:
        reason = str(error).partition("\n")[0][:200]
        raise DataError(
            f"{path} is not a checkpoint of this run: {reason}.", path=path, remedy="Delete it."
        ) from error
    return position, state


def weights_sha256(state: Mapping[str, NDArray[Any]]) -> str:
    """Hash all parameters and buffers, names included, bit by bit."""
    digest = hashlib.sha256()
    for name, array in sorted(state.items()):
        if not name.startswith(MOMENTUM):
            digest.update(name.encode())
            digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()
