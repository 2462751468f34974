"""Checkpoints of frameworks other than PyTorch: NumPy's arrays in one file, written atomically.

Names and shapes are the reference's in every framework, but a checkpoint is read only by the
framework that wrote it: a run has one framework.
"""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ai500.core import atomic
from ai500.core.errors import DataError
from ai500.frameworks.backend import MOMENTUM, Backend, State
from ai500.records.run_folder import MemberFolder
from ai500.train.position import Position

HEADER = "header.json"
"""Name of the entry with framework and position."""


class ArrayWriter:
    """Asynchronous writer of rank 0: the state is copied at once, a thread writes the file.

    An error of the thread is raised by the next `save` or `wait`.
    """

    def __init__(self, framework: str, *, writes: bool) -> None:
        self._framework = framework
        self._writes = writes
        self._thread = ThreadPoolExecutor(1, "checkpoint")
        self._writing: Future[None] | None = None

    def save(self, path: Path, trained: Any, position: Position) -> None:
        """Copy the state and start writing it on rank 0."""
        if not self._writes:
            return
        self.wait()
        backend: Backend = trained.backend
        header = {"framework": self._framework, "position": asdict(position)}
        self._writing = self._thread.submit(_write, path, backend.state(), header)

    def wait(self) -> None:
        """Wait until the last file is written."""
        if self._writing is not None:
            writing, self._writing = self._writing, None
            writing.result()


def _write(path: Path, state: State, header: Mapping[str, Any]) -> None:
    buffer = io.BytesIO()
    encoded = np.frombuffer(json.dumps(header).encode(), dtype=np.uint8)
    np.savez(buffer, allow_pickle=False, **{HEADER: encoded}, **state)
    atomic.write_bytes(path, buffer.getbuffer())


def restore(path: Path, backend: Backend, *, framework: str, seed: int) -> Position | None:
    """Load a checkpoint into the backend; return None if there is none yet."""
    if not path.exists():
        return None
    header, state = read(path)
    if header.get("framework") != framework:
        raise _of_another(path, header.get("framework"), framework)
    position = Position(**header["position"])
    if position.seed != seed:
        raise DataError(
            f"{path} belongs to seed {position.seed}, this run has {seed}.",
            path=path,
            value=position.seed,
        )
    backend.load_state(state)
    return position


def check_framework(folder: MemberFolder, *, framework: str) -> None:
    """Raise DataError where a member has a checkpoint of another framework."""
    if framework != "pytorch" and folder.checkpoint.exists():
        raise _of_another(folder.checkpoint, "pytorch", framework)
    if folder.array_checkpoint.exists():
        header, _ = read(folder.array_checkpoint, arrays=False)
        if header.get("framework") != framework:
            raise _of_another(folder.array_checkpoint, header.get("framework"), framework)


def _of_another(path: Path, other: object, framework: str) -> DataError:
    return DataError(
        f"{path} is a checkpoint of framework {other!r}, this run has {framework!r}.",
        key="framework.kind",
        value=other,
        path=path,
        remedy="Start a new run: a member is trained by one framework.",
    )


def read(path: Path, *, arrays: bool = True) -> tuple[dict[str, Any], State]:
    """Read header and arrays of a checkpoint; a file that is none is a DataError."""
    try:
        with np.load(path, allow_pickle=False) as file:
            header = json.loads(file[HEADER].tobytes())
            names = [name for name in file.files if name != HEADER] if arrays else []
            state = {name: file[name] for name in names}
    except (ValueError, KeyError, EOFError, OSError, zipfile.BadZipFile) as error:
        reason = str(error).partition("\n")[0][:200]
        raise DataError(
            f"{path} is not a checkpoint of this framework: {reason}.",
            path=path,
            remedy="Delete it, or start a new run.",
        ) from error
    return header, state


def weights_sha256(state: Mapping[str, NDArray[Any]]) -> str:
    """Hash all parameters and buffers, names included, bit by bit."""
    digest = hashlib.sha256()
    for name, array in sorted(state.items()):
        if not name.startswith(MOMENTUM):
            digest.update(name.encode())
            digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()
