"""CosmoFlow (Mathuriya et al. 2018; MLPerf HPC): 3-D convolutions that regress parameters.

Each block is a convolution of 3×3×3, a leaky ReLU and a max pooling that halves every edge, until
the volume has an edge of 4; three linear layers follow. MLPerf's dropout is left out: a step then
draws no random numbers, so that it can be captured in a CUDA graph.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from ai500.workloads.models.cosmoflow_plan import HIDDEN, LAST_EDGE, block_count
from ai500.workloads.protocol import Optimized
from ai500.workloads.volume_kernels import kernels_work, pool

SLOPE = 0.3
"""Slope of the leaky ReLUs below zero, as in MLPerf HPC."""
FUSED_PRECISIONS = ("fp32", "tf32", "mixed-bf16", "mixed-fp16")
"""Precisions whose convolutions are torch's own."""


class Block(nn.Module):
    """Convolution, leaky ReLU, and a max pooling that halves the edge."""

    def __init__(self, channels_in: int, channels_out: int) -> None:
        super().__init__()
        self.fused = False
        self.convolution = nn.Conv3d(channels_in, channels_out, 3, padding=1)
        self.activation = nn.LeakyReLU(SLOPE)
        self.pool = nn.MaxPool3d(2)

    def forward(self, x: Tensor) -> Tensor:
        bias = self.convolution.bias
        if self.fused and bias is not None:
            products = functional.conv3d(x, self.convolution.weight, padding=1)
            return pool(products, bias, slope=SLOPE)
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

    def forward(self, volumes: Tensor) -> Tensor:
        """Return the parameters of each volume."""
        x = volumes
        for block in self.blocks:
            x = block(x)
        outputs: Tensor = self.regression(x)
        return outputs


def use_fused_pooling(
    model: nn.Module, *, precision: str, device: torch.device
) -> Optimized | None:
    """Fuse bias, activation and pooling of each block where Triton runs; None elsewhere."""
    if precision not in FUSED_PRECISIONS or device.type != "cuda" or not kernels_work(device):
        return None
    for block in model.modules():
        if isinstance(block, Block):
            block.fused = True
    return Optimized(model, "fused bias, activation and pooling")


def cosmoflow(input_shape: tuple[int, ...], *, width: int, parameters: int = 4) -> CosmoFlow:
    """Build CosmoFlow for volumes [channels, edge, edge, edge], with channels last in memory."""
    channels, edge, *_ = input_shape
    model = CosmoFlow(channels=channels, edge=edge, width=width, parameters=parameters)
    return model.to(memory_format=torch.channels_last_3d)  # type: ignore[call-overload,no-any-return]
