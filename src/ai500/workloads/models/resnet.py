"""ResNet in plain torch: v1 (stride on the 1×1), v1.5 (stride on the 3×3) and a small one."""

from __future__ import annotations

from typing import Literal

from torch import Tensor, nn

Version = Literal["v1", "v1.5"]


def _convolution(channels_in: int, channels_out: int, *, kernel: int, stride: int = 1) -> nn.Conv2d:
    return nn.Conv2d(
        channels_in, channels_out, kernel, stride=stride, padding=kernel // 2, bias=False
    )


class Bottleneck(nn.Module):
    """1×1, 3×3, 1×1 with a skip; the stride is on the 3×3 in v1.5, on the first 1×1 in v1."""

    expansion = 4

    def __init__(self, channels_in: int, width: int, *, stride: int, version: Version) -> None:
        super().__init__()
        channels_out = width * self.expansion
        first, second = (stride, 1) if version == "v1" else (1, stride)
        self.conv1 = _convolution(channels_in, width, kernel=1, stride=first)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = _convolution(width, width, kernel=3, stride=second)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = _convolution(width, channels_out, kernel=1)
        self.bn3 = nn.BatchNorm2d(channels_out)
        self.relu = nn.ReLU(inplace=True)
        self.shortcut = _shortcut(channels_in, channels_out, stride=stride)

    def forward(self, x: Tensor) -> Tensor:
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.relu(self.bn2(self.conv2(out)))
        out = self.bn3(self.conv3(out))
        total: Tensor = self.relu(out + self.shortcut(x))
        return total


class BasicBlock(nn.Module):
    """Two 3×3 convolutions with a skip (ResNet-18, ResNet-34 and small ones)."""

    expansion = 1

    def __init__(self, channels_in: int, width: int, *, stride: int, version: Version) -> None:
        super().__init__()
        del version  # v1 and v1.5 differ in the bottleneck only
        self.conv1 = _convolution(channels_in, width, kernel=3, stride=stride)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = _convolution(width, width, kernel=3)
        self.bn2 = nn.BatchNorm2d(width)
        self.relu = nn.ReLU(inplace=True)
        self.shortcut = _shortcut(channels_in, width, stride=stride)

    def forward(self, x: Tensor) -> Tensor:
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        total: Tensor = self.relu(out + self.shortcut(x))
        return total


def _shortcut(channels_in: int, channels_out: int, *, stride: int) -> nn.Module:
    if stride == 1 and channels_in == channels_out:
        return nn.Identity()
    return nn.Sequential(
        _convolution(channels_in, channels_out, kernel=1, stride=stride),
        nn.BatchNorm2d(channels_out),
    )


class ResNet(nn.Module):
    """He et al., "Deep residual learning for image recognition"; a stage per entry of `depths`."""

    def __init__(
        self,
        block: type[Bottleneck] | type[BasicBlock],
        depths: tuple[int, ...],
        *,
        width: int = 64,
        classes: int = 1000,
        channels: int = 3,
        version: Version = "v1.5",
        stem: Literal["imagenet", "small"] = "imagenet",
    ) -> None:
        super().__init__()
        kernel, stride = (7, 2) if stem == "imagenet" else (3, 1)
        convolution = _convolution(channels, width, kernel=kernel, stride=stride)
        self.stem = nn.Sequential(convolution, nn.BatchNorm2d(width), nn.ReLU(inplace=True))
        if stem == "imagenet":
            self.stem.append(nn.MaxPool2d(3, stride=2, padding=1))
        stages: list[nn.Module] = []
        channels_in = width
        for index, depth in enumerate(depths):
            stage_width = width * 2**index
            blocks: list[nn.Module] = []
            for position in range(depth):
                stride = 2 if index > 0 and position == 0 else 1
                blocks.append(block(channels_in, stage_width, stride=stride, version=version))
                channels_in = stage_width * block.expansion
            stages.append(nn.Sequential(*blocks))
        self.stages = nn.Sequential(*stages)
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.flatten = nn.Flatten()
        self.classifier = nn.Linear(channels_in, classes)
        self._initialize()

    def _initialize(self) -> None:
        """Initialize convolutions by He's method; batch norms start at γ = 1, as published."""
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
            elif isinstance(module, nn.Linear):
                nn.init.normal_(module.weight, std=0.01)
                nn.init.zeros_(module.bias)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stages(self.stem(x))
        logits: Tensor = self.classifier(self.flatten(self.pool(x)))
        return logits


def resnet50(*, version: Version = "v1.5", classes: int = 1000, channels: int = 3) -> ResNet:
    """Build ResNet-50: 25 557 032 parameters at 1000 classes and 3 channels."""
    return ResNet(Bottleneck, (3, 4, 6, 3), classes=classes, channels=channels, version=version)


def small_resnet(*, classes: int, width: int = 16, depths: tuple[int, ...] = (1, 1, 1)) -> ResNet:
    """Build a ResNet for images of about 32×32 pixels, small enough for a laptop's CPU."""
    return ResNet(BasicBlock, depths, width=width, classes=classes, stem="small")
