"""DeepCAM (Kurth et al. 2018; MLPerf HPC): DeepLabv3+ with a class for every pixel.

A residual encoder, an atrous pyramid on its output, and a decoder that joins the pyramid with the
encoder's first stage. The encoder is a ResNet in place of DeepCAM's Xception. Two steps differ from
DeepLabv3+, so that every step of a training has the same bits: the pyramid's output is enlarged by
repetition and not bilinearly, whose gradient on a GPU is a sum in random order; and the last
enlargement is a sub-pixel convolution (Shi et al. 2016), which equals a transposed one whose stride
is its kernel.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

from ai500.workloads.models.deepcam_plan import Design
from ai500.workloads.models.resnet import BasicBlock, Bottleneck

PRIOR = 0.98
"""Probability of the background before training; 98.6 % of DeepCAM's pixels are background."""
DILATION = 2
"""Dilation of a stage that keeps the resolution instead of halving it."""


def _normalized(channels_in: int, channels_out: int, *, rate: int = 0) -> nn.Sequential:
    """Return a convolution (3×3 with dilation `rate`; 0: 1×1), a batch norm and a ReLU."""
    kernel, dilation = (3, rate) if rate else (1, 1)
    return nn.Sequential(
        nn.Conv2d(channels_in, channels_out, kernel, padding=rate, dilation=dilation, bias=False),
        nn.BatchNorm2d(channels_out),
        nn.ReLU(inplace=True),
    )


class AtrousPyramid(nn.Module):
    """Convolutions of several dilations side by side, and the frame's mean (DeepLabv3)."""

    def __init__(self, channels_in: int, channels_out: int, *, rates: tuple[int, ...]) -> None:
        super().__init__()
        self.branches = nn.ModuleList(
            _normalized(channels_in, channels_out, rate=rate) for rate in (0, *rates)
        )
        # Without a batch norm: the mean is one pixel, too few for statistics of small batches.
        self.context = nn.Conv2d(channels_in, channels_out, 1)
        self.project = _normalized(channels_out * (len(rates) + 2), channels_out)

    def forward(self, x: Tensor) -> Tensor:
        context = self.context(x.mean((2, 3), keepdim=True)).relu().expand(-1, -1, *x.shape[2:])
        joined = torch.cat([*(branch(x) for branch in self.branches), context], dim=1)
        outputs: Tensor = self.project(joined)
        return outputs


class Decoder(nn.Module):
    """Logits of every pixel from the pyramid's output and the first stage's."""

    def __init__(self, design: Design, *, first_stage: int, classes: int) -> None:
        super().__init__()
        channels = design.pyramid
        self.skip = _normalized(first_stage, design.skip)
        self.enlarge = nn.UpsamplingNearest2d(scale_factor=design.reduction)
        self.conv1 = nn.Conv2d(channels + design.skip, channels, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels)
        self.relu = nn.ReLU(inplace=True)
        self.classify = nn.Conv2d(channels, classes * design.stem_stride**2, 1)
        self._classes, self._stride = classes, design.stem_stride

    def expect_background(self) -> None:
        """Start with a probability of `PRIOR` for the first class in every pixel: the first epochs
        would otherwise learn nothing else (Lin et al. 2017)."""
        nn.init.normal_(self.classify.weight, std=0.01)
        assert self.classify.bias is not None
        event_classes = self._classes - 1
        with torch.no_grad():
            self.classify.bias.zero_()
            odds = PRIOR / (1 - PRIOR) * event_classes
            self.classify.bias.view(self._classes, -1)[0] = math.log(odds)

    def forward(self, first: Tensor, pyramid: Tensor) -> Tensor:
        joined = torch.cat([self.enlarge(pyramid), self.skip(first)], dim=1)
        x = self.relu(self.bn1(self.conv1(joined)))
        x = self.relu(self.bn2(self.conv2(x)))
        return functional.pixel_shuffle(self.classify(x), self._stride)


class DeepCAM(nn.Module):
    """Logits [N, classes, H, W] of frames [N, channels, H, W]."""

    fixed_shapes = True

    def __init__(self, design: Design, *, channels: int, classes: int) -> None:
        super().__init__()
        self.stem = _stem(channels, design)
        block = BasicBlock if design.block == "basic" else Bottleneck
        stages, channels_in = [], design.width
        for index, depth in enumerate(design.depths):
            width = design.width << index
            blocks = []
            for position in range(depth):
                stride = 2 if index > 0 and position == 0 else 1
                blocks.append(block(channels_in, width, stride=stride, version="v1.5"))
                channels_in = width * block.expansion
            stages.append(nn.Sequential(*blocks))
        self.stages = nn.Sequential(*stages)
        if design.dilated:
            _dilate(self.stages[-1])
        self.pyramid = AtrousPyramid(design.encoded, design.pyramid, rates=design.rates)
        first_stage = design.width * block.expansion
        self.decoder = Decoder(design, first_stage=first_stage, classes=classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
        self.decoder.expect_background()
        self._compiled: Callable[[Tensor], Tensor] | None = None

    def forward(self, frames: Tensor) -> Tensor:
        """Return the logits of every pixel."""
        if self.training and self._compiled is not None:
            return self._compiled(frames)
        return self._segment(frames)

    def compile_training(self) -> None:
        """Compile the training pass; evaluations, whose batches differ in size, stay eager."""
        self._compiled = torch.compile(self._segment, dynamic=False)

    def _segment(self, frames: Tensor) -> Tensor:
        first_stage, *stages = self.stages
        first: Tensor = first_stage(self.stem(frames))
        encoded = first
        for stage in stages:
            encoded = stage(encoded)
        logits: Tensor = self.decoder(first, self.pyramid(encoded))
        return logits

    def forward_unit(self, name: str, carried: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """Apply one pipeline unit to the latest tensor; the first stage's output is carried on."""
        module = self.get_submodule(name)
        if name == "decoder":
            return (module(*carried),)
        kept = carried if name == "stages.1.0" else carried[:-1]
        return (*kept, module(carried[-1]))


def _stem(channels: int, design: Design) -> nn.Sequential:
    kernel = 3 if design.stem_stride == 2 else 7
    convolution = nn.Conv2d(
        channels, design.width, kernel, stride=2, padding=kernel // 2, bias=False
    )
    layers = [convolution, nn.BatchNorm2d(design.width), nn.ReLU(inplace=True)]
    if design.stem_stride == 4:
        layers.append(nn.MaxPool2d(3, stride=2, padding=1))
    return nn.Sequential(*layers)


def _dilate(stage: nn.Module) -> None:
    """Keep the resolution of a stage: strides become dilations of its convolutions of 3×3."""
    for module in stage.modules():
        if isinstance(module, nn.Conv2d):
            module.stride = (1, 1)
            if module.kernel_size == (3, 3):
                module.dilation = module.padding = (DILATION, DILATION)


def deepcam(design: Design, *, channels: int, classes: int) -> nn.Module:
    """Build a DeepCAM with channels last in memory."""
    model = DeepCAM(design, channels=channels, classes=classes)
    return model.to(memory_format=torch.channels_last)  # type: ignore[call-overload,no-any-return]
