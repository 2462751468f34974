"""Weights of trained models on the shared file system: one folder per worker, few files kept."""

from __future__ import annotations

import contextlib
import io
import zipfile
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ai500.automl.morphism import Weights
from ai500.core import atomic
from ai500.workloads.models.architecture import Architecture
from ai500.workloads.models.architecture_network import Network


class WeightStore:
    """Store of weights: a worker writes and deletes its own files, and reads those of all."""

    def __init__(self, trial: Path, worker: Path) -> None:
        self._trial = trial
        self._folder = worker / "weights"
        self.unreadable: dict[str, str] = {}
        """Unusable files with the reason; two threads add to it, one logs it."""

    def save(self, model: str, weights: Weights) -> str:
        """Write weights atomically. Return the file, relative to the trial's folder."""
        buffer = io.BytesIO()
        torch.save(weights, buffer)
        self._folder.mkdir(parents=True, exist_ok=True)
        path = self._path(model)
        atomic.write_bytes(path, buffer.getbuffer())
        return str(path.relative_to(self._trial))

    def load(self, relative: str, architecture: Architecture) -> Weights | None:
        """Read weights. Return None if they were deleted or do not fit the architecture."""
        try:
            loaded = _read_verified(self._trial / relative)
        except FileNotFoundError:
            return None
        except Exception as error:  # the unpickler may raise anything on a damaged file
            reason = str(error).partition("\n")[0][:200]
            self.unreadable[relative] = reason or type(error).__name__
            return None
        if _shapes(loaded) != _shapes(expected_weights(architecture)):
            self.unreadable[relative] = "it has the weights of another architecture"
            return None
        weights: Weights = loaded
        return weights

    def usable(self, relative: str) -> bool:
        """Return True if the file is there and no attempt to read it has failed."""
        return relative not in self.unreadable and (self._trial / relative).exists()

    def saved(self, model: str) -> str | None:
        """Return the file of this worker's model; None: it was not saved."""
        path = self._path(model)
        return str(path.relative_to(self._trial)) if path.exists() else None

    def keep(self, models: set[str]) -> None:
        """Delete this worker's files of all other models."""
        for path in self._folder.glob("*.pt"):
            if path.stem not in models:
                with contextlib.suppress(OSError):
                    path.unlink()

    def _path(self, model: str) -> Path:
        return self._folder / f"{model}.pt"


def _read_verified(path: Path) -> Any:
    """Read a file and verify its checksums, which torch does not."""
    with zipfile.ZipFile(path) as archive:
        if (damaged := archive.testzip()) is not None:
            raise zipfile.BadZipFile(f"the checksum of {damaged} is wrong")
    return torch.load(path, map_location="cpu", weights_only=True)


def expected_weights(architecture: Architecture) -> Weights:
    """Return the weights' names and shapes without values; draw no random number."""
    with torch.device("meta"):
        return dict(Network(architecture).state_dict())


def _shapes(weights: object) -> dict[str, tuple[int, ...]] | None:
    if not isinstance(weights, dict):
        return None
    return {
        str(name): tuple(value.shape)
        for name, value in weights.items()
        if isinstance(value, Tensor)
    }
