"""Buffer of architectures on the shared file system (AIPerf §IV-C): searched ahead by CPU threads.

    members/007/buffer/000012.json     an architecture that waits for training
    members/007/buffer/current.json    the architecture of the present round

Only its worker writes and deletes the files (ADR 0006). A worker that restarts finds the waiting
architectures there, and that of the round in which it stopped.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ai500.automl.moves import Move
from ai500.core.errors import AI500Error
from ai500.records import run_folder
from ai500.workloads.models.architecture import Architecture, Layer


@dataclass(frozen=True, slots=True, kw_only=True)
class BufferedArchitecture:
    """Child of a model of the history; its weights follow from the parent's, `moves` and `seed`."""

    parent: str
    round: int
    """Round for which it was searched."""
    seed: int
    moves: tuple[Move, ...]
    architecture: tuple[Layer, ...]

    @property
    def digest(self) -> str:
        """Digest of the structure."""
        return Architecture(self.architecture).digest


class ArchitectureBuffer:
    """Architectures of one worker that wait for training; several threads may add to it."""

    def __init__(self, folder: Path, *, size: int) -> None:
        self._folder, self._size = folder, size
        self._adding = threading.Lock()
        self._waiting: dict[Path, BufferedArchitecture] = dict(self._stored())
        self._serial = max((int(path.stem) for path in self._waiting), default=0)

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, buffered: BufferedArchitecture) -> None:
        """Write an architecture; the oldest is dropped beyond the size, and an equal one is."""
        with self._adding:
            self._remove(buffered.digest)
            self._serial += 1
            path = self._folder / f"{self._serial:06d}.json"
            run_folder.write(path, buffered)
            self._waiting[path] = buffered
            for oldest in list(self._waiting)[: -self._size]:
                self._drop(oldest)

    def newest_first(self) -> list[BufferedArchitecture]:
        """Return the waiting architectures; later ones were searched in a longer history."""
        with self._adding:
            return list(self._waiting.values())[::-1]

    def take(self, buffered: BufferedArchitecture) -> None:
        """Make an architecture that of the present round."""
        with self._adding:
            run_folder.write(self._folder / "current.json", buffered)
            self._remove(buffered.digest)

    def discard(self, buffered: BufferedArchitecture) -> None:
        """Delete an architecture that is not to be trained."""
        with self._adding:
            self._remove(buffered.digest)

    def current(self) -> BufferedArchitecture | None:
        """Return the architecture of the present round; None: there is none, or it is damaged."""
        return _read(self._folder / "current.json")

    def _stored(self) -> Iterator[tuple[Path, BufferedArchitecture]]:
        """Yield the files of an earlier attempt in their order; delete damaged ones."""
        for path in sorted(self._folder.glob("[0-9]*.json")):
            buffered = _read(path) if path.stem.isdecimal() else None
            if buffered is None:
                path.unlink(missing_ok=True)
            else:
                yield path, buffered

    def _remove(self, digest: str) -> None:
        for path in [p for p, waiting in self._waiting.items() if waiting.digest == digest]:
            self._drop(path)

    def _drop(self, path: Path) -> None:
        del self._waiting[path]
        path.unlink(missing_ok=True)


def _read(path: Path) -> BufferedArchitecture | None:
    try:
        return run_folder.read(BufferedArchitecture, path)
    except AI500Error:
        return None
