"""Optimizers by name. Weight decay is on every parameter, batch norm's included (V2 §5.4)."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import nn

from ai500.workloads.protocol import Hyperparameters


def sgd(parameters: Iterable[nn.Parameter], hyperparameters: Hyperparameters) -> torch.optim.SGD:
    """SGD with momentum: the papers' default. The rate is set at each step by the policy."""
    return torch.optim.SGD(
        parameters,
        lr=hyperparameters.base_learning_rate,
        momentum=hyperparameters.momentum,
        weight_decay=hyperparameters.weight_decay,
    )
