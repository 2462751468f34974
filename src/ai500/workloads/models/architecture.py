"""Architecture of a searched model as data: layers that name their inputs. Imports no torch."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from ai500.core import schema
from ai500.records import InitialNetwork

LayerKind = Literal[
    "input", "convolution", "batch_norm", "relu", "max_pool", "global_pool", "add", "concat",
    "dense",
]  # fmt: skip
# Kinds with one input whose channels come out in the same order.
KEEPS_CHANNELS = ("batch_norm", "relu", "max_pool", "global_pool")
# Largest convolution in a search: ResNet's first.
MAX_KERNEL = 7


@dataclass(frozen=True, slots=True)
class Layer:
    """One operator; `number` stays the same through all morphisms of a family."""

    number: int
    kind: LayerKind
    inputs: tuple[int, ...] = ()
    channels: int = 0
    """Output channels of an input, convolution or dense layer; other kinds derive theirs."""
    kernel: int = 1
    stride: int = 1

    @property
    def padding(self) -> int:
        """Return the padding that keeps the size at a stride of 1."""
        return self.kernel // 2


@dataclass(frozen=True)
class Architecture:
    """Layers in topological order; the last one is the output."""

    layers: tuple[Layer, ...]

    def __getitem__(self, number: int) -> Layer:
        return self._numbered[number]

    @property
    def _numbered(self) -> dict[int, Layer]:
        return {layer.number: layer for layer in self.layers}

    @property
    def next_number(self) -> int:
        """Return the number of the next layer to add."""
        return 1 + max(layer.number for layer in self.layers)

    def consumers(self, number: int) -> list[Layer]:
        """Return the layers that take this one's output."""
        return [layer for layer in self.layers if number in layer.inputs]

    def channels(self) -> dict[int, int]:
        """Return the output channels of every layer."""
        channels: dict[int, int] = {}
        for layer in self.layers:
            if layer.kind in ("input", "convolution", "dense"):
                channels[layer.number] = layer.channels
            elif layer.kind == "concat":
                channels[layer.number] = sum(channels[number] for number in layer.inputs)
            else:
                channels[layer.number] = channels[layer.inputs[0]]
        return channels

    def reductions(self) -> dict[int, int]:
        """Return how many times smaller than the input's each layer's height is; 0: no height."""
        reductions: dict[int, int] = {}
        for layer in self.layers:
            if layer.kind == "input":
                reductions[layer.number] = 1
            elif layer.kind in ("global_pool", "dense"):
                reductions[layer.number] = 0
            else:
                reductions[layer.number] = reductions[layer.inputs[0]] * layer.stride
        return reductions

    def replaced(self, changed: Sequence[Layer]) -> Architecture:
        """Return a copy in which `changed` layers replace those of the same numbers."""
        new = {layer.number: layer for layer in changed}
        return Architecture(tuple(new.get(layer.number, layer) for layer in self.layers))

    def inserted(self, added: Sequence[Layer], *, after: int) -> Architecture:
        """Return a copy with layers right behind another one, which they may take as input."""
        position = 1 + [layer.number for layer in self.layers].index(after)
        return Architecture((*self.layers[:position], *added, *self.layers[position:]))

    def rewired(self, old: int, new: int, *, consumers: Sequence[int]) -> Architecture:
        """Return a copy in which `consumers` take the output of `new` in place of `old`."""
        return self.replaced(
            [
                dataclasses.replace(
                    self[number],
                    inputs=tuple(
                        new if source == old else source for source in self[number].inputs
                    ),
                )
                for number in consumers
            ]
        )

    @property
    def digest(self) -> str:
        """Return a digest of the structure, independent of the layers' numbers."""
        position = {layer.number: index for index, layer in enumerate(self.layers)}
        plain = [
            [layer.kind, [position[number] for number in layer.inputs], layer.channels,
             layer.kernel, layer.stride]
            for layer in self.layers
        ]  # fmt: skip
        return hashlib.sha256(json.dumps(plain).encode()).hexdigest()[:16]


def encode(architecture: Architecture) -> list[dict[str, object]]:
    """Return the layers as JSON data."""
    return [schema.encode(layer) for layer in architecture.layers]


def decode(data: object) -> Architecture:
    """Build and check an architecture from JSON data."""
    architecture = Architecture(schema.decode(tuple[Layer, ...], data, at="architecture"))
    check(architecture)
    return architecture


def check(architecture: Architecture) -> None:
    """Raise SchemaError for repeated numbers and for layers that take a later layer's output."""
    seen: set[int] = set()
    for layer in architecture.layers:
        if layer.number in seen or not seen.issuperset(layer.inputs):
            raise schema.SchemaError(
                f"architecture.{layer.number}", "repeats a number or takes a later layer's output"
            )
        seen.add(layer.number)


class Builder:
    """Adds layers one after another."""

    def __init__(self, input_channels: int) -> None:
        self.layers = [Layer(0, "input", channels=input_channels)]

    def add(self, kind: LayerKind, *inputs: int, **settings: int) -> int:
        """Add a layer and return its number."""
        number = len(self.layers)
        self.layers.append(Layer(number, kind, inputs, **settings))
        return number

    def block(
        self, source: int, channels: int, kernel: int, *, stride: int = 1, relu: bool = True
    ) -> int:
        """Add a convolution, batch norm and (usually) ReLU: AIPerf's unit."""
        number = self.add("convolution", source, channels=channels, kernel=kernel, stride=stride)
        number = self.add("batch_norm", number)
        return self.add("relu", number) if relu else number


def initial_architecture(
    initial: InitialNetwork, *, classes: int, input_channels: int = 3
) -> Architecture:
    """Build the ResNet a search starts at; bottleneck (3, 4, 6, 3) of width 64 is ResNet-50.

    A network of basic blocks is for small images: it has no pooling before the blocks.
    """
    builder = Builder(input_channels)
    bottleneck = initial.kind == "bottleneck"
    if bottleneck:
        last = builder.block(0, initial.width, 7, stride=2)
        last = builder.add("max_pool", last, kernel=3, stride=2)
    else:
        last = builder.block(0, initial.width, 3)
    for stage, count in enumerate(initial.blocks):
        width = initial.width * 2**stage
        channels = 4 * width if bottleneck else width
        for number in range(count):
            stride = 2 if number == 0 and stage > 0 else 1
            if bottleneck:
                first, second = (stride, 1) if initial.version == "v1" else (1, stride)
                inside = builder.block(last, width, 1, stride=first)
                inside = builder.block(inside, width, 3, stride=second)
                inside = builder.block(inside, channels, 1, relu=False)
            else:
                inside = builder.block(last, channels, 3, stride=stride)
                inside = builder.block(inside, channels, 3, relu=False)
            if number == 0 and (stage > 0 or bottleneck):  # the shape changes
                last = builder.block(last, channels, 1, stride=stride, relu=False)
            last = builder.add("relu", builder.add("add", inside, last))
    builder.add("dense", builder.add("global_pool", last), channels=classes)
    return Architecture(tuple(builder.layers))
