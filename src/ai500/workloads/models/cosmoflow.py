"""CosmoFlow (Mathuriya et al. 2018; MLPerf HPC): 3-D convolutions that regress parameters.

Each block is a convolution of 3×3×3, a leaky ReLU and a max pooling that halves every edge, until
the volume has an edge of 4; three linear layers follow. MLPerf's dropout is left out: a step then
draws no random numbers, so that it can be captured in a CUDA graph.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from ai500.workloads.models.cosmoflow_plan import HIDDEN, LAST_EDGE, block_count

SLOPE = 0.3
"""Slope of the leaky ReLUs below zero, as in MLPerf HPC."""


class Block(nn.Module):
    """Convolution, leaky ReLU, and a max pooling that halves the edge."""

    def __init__(self, channels_in: int, channels_out: int) -> None:
        super().__init__()
        self.convolution = nn.Conv3d(channels_in, channels_out, 3, padding=1)
        self.activation = nn.LeakyReLU(SLOPE)
        self.pool = nn.MaxPool3d(2)

    def forward(self, x: Tensor) -> Tensor:
        outputs: Tensor = self.pool(self.activation(self.convolution(x)))
        return outputs


class Regression(nn.Module):
    """Linear layers from the last block's volumes to the parameters."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Flatten(),
            nn.Linear(inputs, HIDDEN[0]),
            nn.LeakyReLU(SLOPE),
            nn.Linear(HIDDEN[0], HIDDEN[1]),
            nn.LeakyReLU(SLOPE),
            nn.Linear(HIDDEN[1], outputs),
        )

    def forward(self, x: Tensor) -> Tensor:
        outputs: Tensor = self.layers(x)
        return outputs


class CosmoFlow(nn.Module):
    """CosmoFlow for volumes of a power of two; the first block has `width` channels."""

    fixed_shapes = True

    def __init__(self, *, channels: int, edge: int, width: int, parameters: int) -> None:
        super().__init__()
        widths = [channels, *(width << level for level in range(block_count(edge)))]
        self.blocks = nn.ModuleList(map(Block, widths[:-1], widths[1:]))
        self.regression = Regression(widths[-1] * LAST_EDGE**3, parameters)
        self._compiled: Callable[[Tensor], Tensor] | None = None

    def forward(self, volumes: Tensor) -> Tensor:
        """Return the parameters of each volume."""
        if self.training and self._compiled is not None:
            return self._compiled(volumes)
        return self._estimate(volumes)

    def compile_training(self) -> None:
        """Compile the training pass; evaluations, whose batches differ in size, stay eager."""
        self._compiled = torch.compile(self._estimate, dynamic=False)

    def _estimate(self, volumes: Tensor) -> Tensor:
        x = volumes
        for block in self.blocks:
            x = block(x)
        outputs: Tensor = self.regression(x)
        return outputs


def cosmoflow(input_shape: tuple[int, ...], *, width: int, parameters: int = 4) -> nn.Module:
    """Build CosmoFlow for volumes [channels, edge, edge, edge], with channels last in memory."""
    channels, edge, *_ = input_shape
    model = CosmoFlow(channels=channels, edge=edge, width=width, parameters=parameters)
    return model.to(memory_format=torch.channels_last_3d)  # type: ignore[call-overload,no-any-return]
