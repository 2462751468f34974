"""Compact architectures to count: each is small, and has what makes its family hard to count."""

from __future__ import annotations

from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ai500.workloads.models.resnet import BasicBlock, Bottleneck, ResNet, resnet50


def resnet18() -> nn.Module:
    return ResNet(BasicBlock, (2, 2, 2, 2))


def resnet152() -> nn.Module:
    return ResNet(Bottleneck, (3, 8, 36, 3))


def _depth_wise(channels_in: int, channels_out: int, stride: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(channels_in, channels_in, 3, stride, 1, groups=channels_in, bias=False),
        nn.BatchNorm2d(channels_in),
        nn.ReLU6(inplace=True),
        nn.Conv2d(channels_in, channels_out, 1, bias=False),
        nn.BatchNorm2d(channels_out),
        nn.ReLU6(inplace=True),
    )


def mobilenet() -> nn.Module:
    widths = [32, 64, 128, 128, 256]
    blocks = [_depth_wise(a, b, 1 + i % 2) for i, (a, b) in enumerate(pairwise(widths))]
    stem = nn.Sequential(nn.Conv2d(3, 32, 3, 2, 1, bias=False), nn.BatchNorm2d(32), nn.ReLU6())
    head = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(256, 100))
    return nn.Sequential(stem, *blocks, head)


def grouped() -> nn.Module:
    return nn.Sequential(nn.Conv2d(3, 32, 3, padding=1), nn.Conv2d(32, 64, 3, groups=8), nn.ReLU())


def vgg() -> nn.Module:
    layers: list[nn.Module] = []
    channels = 3
    for width in (16, 32, 64, 64):
        layers += [nn.Conv2d(channels, width, 3, padding=1), nn.ReLU(True), nn.MaxPool2d(2)]
        channels = width
    head = [nn.AdaptiveAvgPool2d(7), nn.Flatten(), nn.Linear(64 * 49, 256), nn.ReLU(), nn.Dropout()]
    return nn.Sequential(*layers, *head, nn.Linear(256, 100))


class _DenseLayer(nn.Module):
    def __init__(self, channels: int, growth: int) -> None:
        super().__init__()
        self.norm, self.conv = nn.BatchNorm2d(channels), nn.Conv2d(channels, growth, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([x, self.conv(F.relu(self.norm(x)))], 1)


def densenet() -> nn.Module:
    block = [_DenseLayer(16 + 8 * index, 8) for index in range(6)]
    transition = [nn.Conv2d(64, 32, 1), nn.AvgPool2d(2)]
    head = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10)]
    return nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), *block, *transition, *head)


class VisionTransformer(nn.Module):
    def __init__(self, width: int = 64, patches: int = 16, depth: int = 2) -> None:
        super().__init__()
        self.patch = nn.Conv2d(3, width, 8, 8)
        self.class_token = nn.Parameter(torch.zeros(1, 1, width))
        self.position = nn.Parameter(torch.zeros(1, patches + 1, width))
        layer = nn.TransformerEncoderLayer(
            width, 4, 2 * width, dropout=0.0, activation="gelu", batch_first=True, norm_first=True
        )
        self.encoder = nn.TransformerEncoder(layer, depth, enable_nested_tensor=False)
        self.head = nn.Linear(width, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = self.patch(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.class_token.expand(len(x), -1, -1), x], 1) + self.position
        return self.head(self.encoder(x)[:, 0])


class _Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention, self.project = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )

    def forward(self, x: Tensor) -> Tensor:
        parts = self.attention(self.norm1(x)).chunk(3, -1)
        q, k, v = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in parts)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.project(mixed.transpose(1, 2).flatten(2))
        return x + self.mlp(self.norm2(x))


class GPT(nn.Module):
    """Tied embeddings; positions are made on the way, on the default device."""

    def __init__(self, vocabulary: int = 97, width: int = 32, context: int = 24) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(vocabulary, width), nn.Embedding(context, width)
        self.blocks = nn.Sequential(_Block(width, 4), _Block(width, 4))
        self.head = nn.Linear(width, vocabulary, bias=False)
        self.head.weight = self.tokens.weight

    def forward(self, tokens: Tensor) -> Tensor:
        where = torch.arange(tokens.shape[1], device=tokens.device)
        return self.head(self.blocks(self.tokens(tokens) + self.positions(where)))


class UNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.down1, self.down2 = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 16, 3, padding=1)
        self.up = nn.ConvTranspose2d(16, 8, 2, stride=2)
        self.out = nn.Conv2d(16, 4, 1)

    def forward(self, x: Tensor) -> Tensor:
        first = F.relu(self.down1(x))
        second = F.relu(self.down2(F.max_pool2d(first, 2)))
        joined = torch.cat([first, self.up(second)], 1)
        return F.interpolate(self.out(joined), scale_factor=2, mode="bilinear")


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(12, 16, num_layers=2, bidirectional=True, batch_first=True)
        self.head = nn.Linear(32, 5)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.lstm(x)[0][:, -1])


class Einsum(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.left, self.right = nn.Linear(16, 16), nn.Linear(16, 16)

    def forward(self, x: Tensor) -> Tensor:
        return torch.einsum("bij,bkj->bik", self.left(x), self.right(x)).softmax(-1)


IMAGES = (2, 3, 32, 32)

#: Name → factory, shape of a batch, type of the input.
ARCHITECTURES = {
    "resnet18": (resnet18, (2, 3, 64, 64), torch.float32),
    "resnet50": (resnet50, (2, 3, 64, 64), torch.float32),
    "resnet152": (resnet152, (1, 3, 64, 64), torch.float32),
    "mobilenet": (mobilenet, IMAGES, torch.float32),
    "grouped": (grouped, IMAGES, torch.float32),
    "vgg": (vgg, IMAGES, torch.float32),
    "densenet": (densenet, IMAGES, torch.float32),
    "vision_transformer": (VisionTransformer, IMAGES, torch.float32),
    "gpt": (GPT, (2, 24), torch.int64),
    "unet": (UNet, IMAGES, torch.float32),
    "recurrent": (Recurrent, (2, 7, 12), torch.float32),
    "einsum": (Einsum, (2, 6, 16), torch.float32),
}
GROUPED = {"mobilenet", "grouped"}
