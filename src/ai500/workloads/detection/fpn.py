"""Feature pyramid on a residual network (Lin et al. 2017)."""

from __future__ import annotations

from collections.abc import Sequence

import torch.nn.functional as F
from torch import Tensor, nn

from ai500.workloads.models.resnet import ResNet


class FeaturePyramid(nn.Module):
    """One level per stage of the residual network, merged top-down, and one coarser level."""

    def __init__(self, body: ResNet, *, stage_channels: tuple[int, ...], channels: int) -> None:
        super().__init__()
        self.stem = body.stem
        self.stages = body.stages
        self.lateral = nn.ModuleList(nn.Conv2d(deep, channels, 1) for deep in stage_channels)
        self.smooth = nn.ModuleList(
            nn.Conv2d(channels, channels, 3, padding=1) for _ in stage_channels
        )
        for convolution in (*self.lateral, *self.smooth):
            assert isinstance(convolution, nn.Conv2d)
            nn.init.kaiming_uniform_(convolution.weight, a=1)
            assert convolution.bias is not None
            nn.init.zeros_(convolution.bias)

    def forward(self, images: Tensor) -> list[Tensor]:
        """Return the levels, finest first; the last, a subsampled copy, is for large proposals
        only."""
        x, features = self.stem(images), []
        for stage in self.stages:
            x = stage(x)
            features.append(x)
        return self.merge(features)

    def merge(self, features: Sequence[Tensor]) -> list[Tensor]:
        """Return the levels from the outputs of the residual network's stages."""
        laterals = [lateral(x) for lateral, x in zip(self.lateral, features, strict=True)]
        merge = [laterals.pop()]
        for finer in reversed(laterals):
            above = F.interpolate(merge[0], size=finer.shape[2:], mode="nearest")
            merge.insert(0, finer + above)
        levels = [smooth(level) for smooth, level in zip(self.smooth, merge, strict=True)]
        return [*levels, levels[-1][:, :, ::2, ::2]]
