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
    """A worker writes and deletes its own files; everybody reads everybody's."""

    def __init__(self, trial: Path, worker: Path) -> None:
        self._trial = trial
        self._folder = worker / "weights"
        self.unreadable: dict[str, str] = {}
        """Files that are there and of no use, and why; two threads find them, one tells."""

    def save(self, model: str, weights: Weights) -> str:
        """Whole or not at all; where, relative to the trial's folder."""
        buffer = io.BytesIO()
        torch.save(weights, buffer)
        self._folder.mkdir(parents=True, exist_ok=True)
        path = self._path(model)
        atomic.write_bytes(path, buffer.getbuffer())
        return str(path.relative_to(self._trial))

    def load(self, relative: str, architecture: Architecture) -> Weights | None:
        """None: its worker has deleted it meanwhile, or it has not this architecture's weights."""
        try:
            found = _whole(self._trial / relative)
        except FileNotFoundError:
            return None
        except Exception as error:  # the unpickler of a torn file raises anything
            why = str(error).partition("\n")[0][:200]
            self.unreadable[relative] = why or type(error).__name__
            return None
        if _shapes(found) != _shapes(expected_weights(architecture)):
            self.unreadable[relative] = "it has the weights of another architecture"
            return None
        weights: Weights = found
        return weights

    def saved(self, model: str) -> str | None:
        """Where a model of this worker lies; None: it was not saved."""
        path = self._path(model)
        return str(path.relative_to(self._trial)) if path.exists() else None

    def keep(self, models: set[str]) -> None:
        """Delete this worker's other files."""
        for path in self._folder.glob("*.pt"):
            if path.stem not in models:
                with contextlib.suppress(OSError):
                    path.unlink()

    def _path(self, model: str) -> Path:
        return self._folder / f"{model}.pt"


def _whole(path: Path) -> Any:
    """What is saved there; torch itself does not compare the checksums of its archives."""
    with zipfile.ZipFile(path) as archive:
        if (spoiled := archive.testzip()) is not None:
            raise zipfile.BadZipFile(f"the checksum of {spoiled} is wrong")
    return torch.load(path, map_location="cpu", weights_only=True)


def expected_weights(architecture: Architecture) -> Weights:
    """Names and shapes without values; no random number is drawn."""
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
