"""Model, optimizer and loss of one's own for class `smoke` of image classification."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn
from torch.nn import functional

from ai500.api import Hyperparameters, ProblemClass


def narrow_network(problem_class: ProblemClass) -> nn.Module:
    """Three convolutions instead of the class's residual network."""
    channels = problem_class.input_shape[0]
    return nn.Sequential(
        nn.Conv2d(channels, 32, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(32), nn.ReLU(),
        nn.Conv2d(32, 64, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(64), nn.ReLU(),
        nn.Conv2d(64, 128, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(128), nn.ReLU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(128, problem_class.classes),
    )  # fmt: skip


def nesterov(
    parameters: Iterable[nn.Parameter], hyperparameters: Hyperparameters
) -> torch.optim.Optimizer:
    """SGD with Nesterov's momentum; the learning rate is set before each step."""
    return torch.optim.SGD(
        parameters,
        lr=0.0,
        momentum=hyperparameters.momentum,
        weight_decay=hyperparameters.weight_decay,
        nesterov=True,
    )


def focal_loss(outputs: Tensor, targets: Tensor, *, hyperparameters: Hyperparameters) -> Tensor:
    """Cross-entropy that weighs an image by how wrong it is (Lin et al., 2017)."""
    losses = functional.cross_entropy(
        outputs, targets, label_smoothing=hyperparameters.label_smoothing, reduction="none"
    )
    return ((1 - (-losses).exp()) * losses).mean()
