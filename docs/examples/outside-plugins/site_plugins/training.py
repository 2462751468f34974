"""An optimizer and a learning-rate policy."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch

from ai500.api import Hyperparameters


def nadam(
    parameters: Iterable[torch.nn.Parameter], hyperparameters: Hyperparameters
) -> torch.optim.NAdam:
    """Make NAdam; the learning-rate policy sets its rate at every step."""
    return torch.optim.NAdam(
        parameters,
        lr=hyperparameters.base_learning_rate,
        betas=hyperparameters.betas,
        weight_decay=hyperparameters.weight_decay,
    )


def linear(
    step: int,
    *,
    peak: float,
    total_steps: int,
    warmup_steps: int,
    decay_steps: Sequence[int],
    power: float,
) -> float:
    """Up to the peak, then down to zero, both along a line."""
    if step < warmup_steps:
        return peak * (step + 1) / warmup_steps
    return peak * (total_steps - step) / max(1, total_steps - warmup_steps)
