"""DeepCAM's sizes, and its division among accelerators. Imports no torch."""

from __future__ import annotations

from dataclasses import dataclass

from ai500.records import ParallelPlan, Split
from ai500.workloads.models.resnet_plan import EXPANSION, Block, residual_splits


@dataclass(frozen=True)
class Design:
    """Sizes of a DeepCAM."""

    block: Block
    depths: tuple[int, ...]
    """Residual blocks of each stage of the encoder."""
    width: int
    """Channels of the first stage; each further one has twice as many."""
    stem_stride: int
    """2: a convolution of 3×3; 4: ResNet's convolution of 7×7 and pooling."""
    dilated: bool
    """True where the last stage keeps the resolution and dilates its convolutions instead."""
    rates: tuple[int, ...]
    """Dilations of the atrous pyramid's convolutions of 3×3."""
    pyramid: int
    """Channels of the pyramid's output and of the decoder."""
    skip: int
    """Channels of the first stage's output that reach the decoder."""

    @property
    def encoded(self) -> int:
        """Channels of the encoder's output."""
        return (self.width << (len(self.depths) - 1)) * EXPANSION[self.block]

    @property
    def reduction(self) -> int:
        """Ratio of the first stage's resolution to the encoder's output."""
        return 1 << (len(self.depths) - 1 - self.dilated)


SMALL = Design("basic", (1, 1, 1), 16, 2, dilated=False, rates=(2, 4), pyramid=32, skip=8)
# DeepLabv3+ on ResNet-50 at an output stride of 16, with DeepLab's rates.
LARGE = Design(
    "bottleneck", (3, 4, 6, 3), 64, 4, dilated=True, rates=(6, 12, 18), pyramid=256, skip=48
)


def deepcam_plan(design: Design) -> ParallelPlan:
    """Split every large convolution; stages of a pipeline may end after any residual block.

    The first stage's output is carried to the decoder along the pipeline.
    """
    depths = enumerate(design.depths)
    blocks = [f"stages.{stage}.{block}" for stage, depth in depths for block in range(depth)]
    channels = design.pyramid
    return ParallelPlan(
        splits=(
            *residual_splits(design.block, len(design.depths), width=design.width),
            Split("pyramid.branches.*.0", "columns_gathered", channels),
            Split("pyramid.context", "columns_gathered", channels),
            Split("pyramid.project.0", "columns_gathered", channels),
            Split("decoder.skip.0", "columns_gathered", design.skip),
            Split("decoder.conv1", "columns", channels),
            Split("decoder.bn1", "channels", channels),
            Split("decoder.conv2", "rows", channels),
        ),
        stages=(("stem",), *((block,) for block in blocks), ("pyramid",), ("decoder",)),
    )
