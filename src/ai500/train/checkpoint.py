"""Checkpoints: whole or absent, and enough to go on bit by bit as if nothing had happened.

Every random stream is a pure function of (seed, member, epoch, step), so the position is the
random state. Only rank 0 writes: ranks differ in batch norm's running statistics alone, and those
are rank 0's at every evaluation.
"""

from __future__ import annotations

import hashlib
import io
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from ai500 import atomic
from ai500.errors import DataError


@dataclass
class Position:
    """Where training stands, and the running sums of the epoch in progress."""

    seed: int
    epoch: int = 0
    step: int = 0
    images: int = 0
    loss_sum: float = 0.0


def save(
    path: Path, *, model: nn.Module, optimizer: torch.optim.Optimizer, position: Position
) -> None:
    """Through memory: torch's own writer hides the disk's errors behind its own."""
    state = {
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "position": asdict(position),
    }
    buffer = io.BytesIO()
    torch.save(state, buffer)
    atomic.write_bytes(path, buffer.getbuffer())


def restore(
    path: Path, *, model: nn.Module, optimizer: torch.optim.Optimizer, seed: int
) -> Position | None:
    """Load into model and optimizer; None when there is no checkpoint yet."""
    if not path.exists():
        return None
    device = next(model.parameters()).device
    try:
        state: dict[str, Any] = torch.load(path, map_location=device, weights_only=True)
        position = Position(**state["position"])
        if position.seed != seed:
            raise DataError(f"{path} belongs to seed {position.seed}, this run has {seed}.")
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
    except (KeyError, TypeError, RuntimeError, ValueError, EOFError) as error:
        raise DataError(f"{path} is not a checkpoint of this run: {error}. Delete it.") from error
    return position


def weights_sha256(model: nn.Module) -> str:
    """A fingerprint of all parameters and buffers, bit by bit."""
    digest = hashlib.sha256()
    for name, tensor in sorted(model.state_dict().items()):
        digest.update(name.encode())
        raw = tensor.detach().cpu().contiguous().flatten().view(torch.uint8)
        digest.update(raw.numpy().tobytes())
    return digest.hexdigest()
