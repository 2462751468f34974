"""The reference's ResNet as a sequence of layers, for frameworks other than PyTorch; no torch.

`ResNet.forward` calls the layers of a framework in the order of `resnet.py`, under the names of its
parameters, so that weights and graphs can be compared. Initial weights are the reference's: the
same draws from the same seed, in NumPy.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from ai500.core.reference_random import ReferenceGenerator
from ai500.records import ProblemClass

Tensor = Any
Weights = dict[str, NDArray[np.float32]]

BATCH_NORM_EPSILON = 1e-5
BATCH_NORM_MOMENTUM = 0.1
"""Weight of the batch in the running statistics: torch's convention. TensorFlow's and MindSpore's
`momentum` is 1 − this. The running variance is the unbiased one (n − 1), the batch's own is not."""
BOTTLENECK_EXPANSION = 4

Kind = Literal[
    "convolution weight",
    "batch norm weight",
    "batch norm bias",
    "batch norm running_mean",
    "batch norm running_var",
    "dense weight",
    "dense bias",
    "embedding weight",
    "Positions weight",
    "layer norm weight",
    "layer norm bias",
]
BUFFERS: tuple[Kind, ...] = ("batch norm running_mean", "batch norm running_var")
"""Kinds that the optimizer does not update."""


class Layers(Protocol):
    """The layers of a framework; `name` is the path of a layer in the reference's model."""

    def convolution(
        self, x: Tensor, name: str, *, channels: int, kernel: int, stride: int
    ) -> Tensor:
        """Convolve to `channels`, without bias, padded by kernel // 2 on every side."""

    def batch_norm(self, x: Tensor, name: str) -> Tensor:
        """Normalize each channel, by the batch's statistics in training."""

    def relu(self, x: Tensor) -> Tensor:
        """Return max(x, 0)."""

    def add(self, x: Tensor, y: Tensor) -> Tensor:
        """Add the shortcut."""

    def max_pool(self, x: Tensor) -> Tensor:
        """Take the maximum of 3×3 windows, stride 2, padded by 1."""

    def average_pool(self, x: Tensor) -> Tensor:
        """Average over all pixels; the result is N×C."""

    def dense(self, x: Tensor, name: str, *, units: int) -> Tensor:
        """Multiply by the weight [units, channels] transposed and add the bias."""


@dataclass(frozen=True, slots=True)
class ResNet:
    """Structure of a ResNet; the fields are those of `resnet.ResNet`."""

    block: Literal["bottleneck", "basic"]
    depths: tuple[int, ...]
    classes: int
    width: int = 64
    channels: int = 3
    version: Literal["v1", "v1.5"] = "v1.5"
    stem: Literal["imagenet", "small"] = "imagenet"

    def forward(self, layers: Layers, x: Tensor) -> Tensor:
        """Compute the class scores by the layers of a framework."""
        kernel, stride = (7, 2) if self.stem == "imagenet" else (3, 1)
        x = layers.convolution(x, "stem.0", channels=self.width, kernel=kernel, stride=stride)
        x = layers.relu(layers.batch_norm(x, "stem.1"))
        if self.stem == "imagenet":
            x = layers.max_pool(x)
        block = _bottleneck if self.block == "bottleneck" else _basic_block
        expansion = BOTTLENECK_EXPANSION if self.block == "bottleneck" else 1
        channels = self.width
        for stage, depth in enumerate(self.depths):
            width = self.width * 2**stage
            for position in range(depth):
                stride = 2 if stage > 0 and position == 0 else 1
                name = f"stages.{stage}.{position}"
                skip = _Skip(stride, project=stride != 1 or channels != width * expansion)
                x = block(layers, x, name, width=width, skip=skip, version=self.version)
                channels = width * expansion
        return layers.dense(layers.average_pool(x), "classifier", units=self.classes)


@dataclass(frozen=True, slots=True)
class _Skip:
    """A block's stride, and whether its shortcut is a 1×1 convolution."""

    stride: int
    project: bool

    def shortcut(self, layers: Layers, x: Tensor, name: str, *, channels: int) -> Tensor:
        if not self.project:
            return x
        x = layers.convolution(
            x, f"{name}.shortcut.0", channels=channels, kernel=1, stride=self.stride
        )
        return layers.batch_norm(x, f"{name}.shortcut.1")


def _bottleneck(
    layers: Layers, x: Tensor, name: str, *, width: int, skip: _Skip, version: str
) -> Tensor:
    """1×1, 3×3, 1×1; the stride is on the 3×3 in v1.5, on the first 1×1 in v1."""
    first, second = (skip.stride, 1) if version == "v1" else (1, skip.stride)
    channels = width * BOTTLENECK_EXPANSION
    out = layers.convolution(x, f"{name}.conv1", channels=width, kernel=1, stride=first)
    out = layers.relu(layers.batch_norm(out, f"{name}.bn1"))
    out = layers.convolution(out, f"{name}.conv2", channels=width, kernel=3, stride=second)
    out = layers.relu(layers.batch_norm(out, f"{name}.bn2"))
    out = layers.convolution(out, f"{name}.conv3", channels=channels, kernel=1, stride=1)
    out = layers.batch_norm(out, f"{name}.bn3")
    return layers.relu(layers.add(out, skip.shortcut(layers, x, name, channels=channels)))


def _basic_block(
    layers: Layers, x: Tensor, name: str, *, width: int, skip: _Skip, version: str
) -> Tensor:
    """Two 3×3 convolutions; v1 and v1.5 do not differ."""
    out = layers.convolution(x, f"{name}.conv1", channels=width, kernel=3, stride=skip.stride)
    out = layers.relu(layers.batch_norm(out, f"{name}.bn1"))
    out = layers.convolution(out, f"{name}.conv2", channels=width, kernel=3, stride=1)
    out = layers.batch_norm(out, f"{name}.bn2")
    return layers.relu(layers.add(out, skip.shortcut(layers, x, name, channels=width)))


def resnet50(
    *, version: Literal["v1", "v1.5"] = "v1.5", classes: int = 1000, channels: int = 3
) -> ResNet:
    """Return the structure of ResNet-50."""
    return ResNet("bottleneck", (3, 4, 6, 3), classes, channels=channels, version=version)


def small_resnet(*, classes: int) -> ResNet:
    """Return the structure of class `smoke`'s ResNet."""
    return ResNet("basic", (1, 1, 1), classes, width=16, stem="small")


def class_resnet(problem_class: ProblemClass) -> ResNet:
    """Return the structure of a class's model."""
    build = small_resnet if problem_class.name == "smoke" else resnet50
    return build(classes=problem_class.classes)


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter or buffer: its name and shape in the reference's model."""

    name: str
    kind: Kind
    shape: tuple[int, ...]

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def trained(self) -> bool:
        """True where the optimizer updates it."""
        return self.kind not in BUFFERS


def parameters(model: ResNet) -> tuple[Parameter, ...]:
    """Return the parameters and buffers, in the order of the reference's modules."""
    recorder = _ParameterRecorder()
    model.forward(recorder, model.channels)
    return tuple(recorder.parameters)


class _ParameterRecorder:
    """Layers on the number of channels alone."""

    def __init__(self) -> None:
        self.parameters: list[Parameter] = []

    def convolution(self, x: int, name: str, *, channels: int, kernel: int, stride: int) -> int:
        shape = (channels, x, kernel, kernel)
        self.parameters.append(Parameter(f"{name}.weight", "convolution weight", shape))
        return channels

    def batch_norm(self, x: int, name: str) -> int:
        leaves = ("weight", "bias", "running_mean", "running_var")
        for leaf in leaves:
            kind: Any = f"batch norm {leaf}"
            self.parameters.append(Parameter(f"{name}.{leaf}", kind, (x,)))
        return x

    def relu(self, x: int) -> int:
        return x

    def add(self, x: int, y: int) -> int:
        return x

    def max_pool(self, x: int) -> int:
        return x

    def average_pool(self, x: int) -> int:
        return x

    def dense(self, x: int, name: str, *, units: int) -> int:
        self.parameters.append(Parameter(f"{name}.weight", "dense weight", (units, x)))
        self.parameters.append(Parameter(f"{name}.bias", "dense bias", (units,)))
        return units


def initial_weights(model: ResNet, *, seed: int) -> Weights:
    """Draw the weights that the reference's model has after `torch.manual_seed(seed)`.

    They agree to the last bit or two of FP32: libraries round log, sin and cos differently.
    """
    generator, tensors = ReferenceGenerator(seed), parameters(model)
    drawn = [parameter for parameter in tensors if parameter.kind == "convolution weight"]
    dense = [parameter for parameter in tensors if parameter.kind.startswith("dense")]
    # torch's layers draw default weights when they are made, which the model then draws anew.
    generator.skip(sum(parameter.size for parameter in (*drawn, *dense)))
    return {parameter.name: _initial(parameter, generator) for parameter in tensors}


def _initial(parameter: Parameter, generator: ReferenceGenerator) -> NDArray[np.float32]:
    shape = parameter.shape
    if parameter.kind == "convolution weight":  # He's method, by the fan of the outputs
        deviation = math.sqrt(2) / math.sqrt(shape[0] * math.prod(shape[2:]))
        return generator.normal(parameter.size, deviation=deviation).reshape(shape)
    if parameter.kind == "dense weight":
        return generator.normal(parameter.size, deviation=0.01).reshape(shape)
    is_one = parameter.kind in ("batch norm weight", "batch norm running_var")
    return np.full(shape, 1.0 if is_one else 0.0, dtype=np.float32)
