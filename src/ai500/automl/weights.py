"""Weights of trained models on the shared file system: one folder per worker, few files kept."""

from __future__ import annotations

import contextlib
import io
from pathlib import Path

import torch

from ai500 import atomic
from ai500.automl.morphism import Weights


class WeightStore:
    """A worker writes and deletes its own files; everybody reads everybody's."""

    def __init__(self, trial: Path, worker: Path) -> None:
        self._trial = trial
        self._folder = worker / "weights"

    def save(self, model: str, weights: Weights) -> str:
        """Whole or not at all; where, relative to the trial's folder."""
        buffer = io.BytesIO()
        torch.save(weights, buffer)
        self._folder.mkdir(parents=True, exist_ok=True)
        path = self._path(model)
        atomic.write_bytes(path, buffer.getbuffer())
        return str(path.relative_to(self._trial))

    def load(self, relative: str) -> Weights | None:
        """None: its worker has deleted it meanwhile, or it can't be read."""
        try:
            found: Weights = torch.load(
                self._trial / relative, map_location="cpu", weights_only=True
            )
        except Exception:  # the unpickler of a torn file raises anything
            return None
        return found

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
