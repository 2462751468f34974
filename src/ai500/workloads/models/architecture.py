"""An architecture as data: layers that name their inputs. Needs no torch; JSON holds it."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from ai500.core import schema
from ai500.records import Initial

LayerKind = Literal[
    "input", "convolution", "batch_norm", "relu", "max_pool", "global_pool", "add", "concat",
    "dense",
]  # fmt: skip
KEEPS_CHANNELS = ("batch_norm", "relu", "max_pool", "global_pool")
"""One input, whose channels come out in the same order."""
LARGEST_KERNEL = 7
"""Of a convolution in a search: that of ResNet's first one."""


@dataclass(frozen=True, slots=True)
class Layer:
    """One operator; `number` stays the same through all morphisms of a family."""

    number: int
    kind: LayerKind
    inputs: tuple[int, ...] = ()
    channels: int = 0
    """Out of an input, convolution or dense layer; the others' follow from their inputs."""
    kernel: int = 1
    stride: int = 1

    @property
    def padding(self) -> int:
        """So that a stride of 1 keeps the size."""
        return self.kernel // 2


@dataclass(frozen=True)
class Architecture:
    """Layers in an order in which each comes after its inputs; the last one is the output."""

    layers: tuple[Layer, ...]

    def __getitem__(self, number: int) -> Layer:
        return self._numbered[number]

    @property
    def _numbered(self) -> dict[int, Layer]:
        return {layer.number: layer for layer in self.layers}

    @property
    def next_number(self) -> int:
        """For a layer to be added."""
        return 1 + max(layer.number for layer in self.layers)

    def consumers(self, number: int) -> list[Layer]:
        """Layers that take this one's output."""
        return [layer for layer in self.layers if number in layer.inputs]

    def channels(self) -> dict[int, int]:
        """Of every layer's output."""
        found: dict[int, int] = {}
        for layer in self.layers:
            if layer.kind in ("input", "convolution", "dense"):
                found[layer.number] = layer.channels
            elif layer.kind == "concat":
                found[layer.number] = sum(found[one] for one in layer.inputs)
            else:
                found[layer.number] = found[layer.inputs[0]]
        return found

    def reductions(self) -> dict[int, int]:
        """How many times smaller than the input's each layer's height is; 0: no height any more."""
        found: dict[int, int] = {}
        for layer in self.layers:
            if layer.kind == "input":
                found[layer.number] = 1
            elif layer.kind in ("global_pool", "dense"):
                found[layer.number] = 0
            else:
                found[layer.number] = found[layer.inputs[0]] * layer.stride
        return found

    def replaced(self, changed: Sequence[Layer]) -> Architecture:
        """With some layers in the place of those of their numbers."""
        new = {layer.number: layer for layer in changed}
        return Architecture(tuple(new.get(layer.number, layer) for layer in self.layers))

    def inserted(self, added: Sequence[Layer], *, after: int) -> Architecture:
        """With layers right behind another one, which they may take as input."""
        place = 1 + [layer.number for layer in self.layers].index(after)
        return Architecture((*self.layers[:place], *added, *self.layers[place:]))

    def rewired(self, old: int, new: int, *, consumers: Sequence[int]) -> Architecture:
        """With some consumers taking another layer's output in place of the old one's."""
        return self.replaced(
            [
                dataclasses.replace(
                    self[one], inputs=tuple(new if i == old else i for i in self[one].inputs)
                )
                for one in consumers
            ]
        )

    @property
    def digest(self) -> str:
        """Identity of the structure, whatever the numbers of its layers are."""
        place = {layer.number: at for at, layer in enumerate(self.layers)}
        plain = [
            [layer.kind, [place[i] for i in layer.inputs], layer.channels, layer.kernel,
             layer.stride]
            for layer in self.layers
        ]  # fmt: skip
        return hashlib.sha256(json.dumps(plain).encode()).hexdigest()[:16]


def encode(architecture: Architecture) -> list[dict[str, object]]:
    """As JSON can hold it."""
    return [schema.encode(layer) for layer in architecture.layers]


def decode(data: object) -> Architecture:
    """Checked: a layer may only take what came before it."""
    found = Architecture(schema.decode(tuple[Layer, ...], data, at="architecture"))
    check(found)
    return found


def check(architecture: Architecture) -> None:
    """Refuse layers of one number, and a layer that takes a later one's output."""
    seen: set[int] = set()
    for layer in architecture.layers:
        if layer.number in seen or not seen.issuperset(layer.inputs):
            raise schema.SchemaError(
                f"architecture.{layer.number}", "repeats a number or takes a later layer's output"
            )
        seen.add(layer.number)


class Builder:
    """Layers one after another."""

    def __init__(self, input_channels: int) -> None:
        self.layers = [Layer(0, "input", channels=input_channels)]

    def add(self, kind: LayerKind, *inputs: int, **settings: int) -> int:
        """A new layer's number."""
        number = len(self.layers)
        self.layers.append(Layer(number, kind, inputs, **settings))
        return number

    def block(
        self, source: int, channels: int, kernel: int, *, stride: int = 1, relu: bool = True
    ) -> int:
        """Convolution, batch norm and (mostly) ReLU: AIPerf's unit."""
        at = self.add("convolution", source, channels=channels, kernel=kernel, stride=stride)
        at = self.add("batch_norm", at)
        return self.add("relu", at) if relu else at

    def architecture(self) -> Architecture:
        """What was built."""
        return Architecture(tuple(self.layers))


def bottleneck_resnet(
    blocks: Sequence[int], *, width: int, classes: int, input_channels: int = 3
) -> Architecture:
    """ResNet v1.5 of bottleneck blocks; (3, 4, 6, 3) and width 64 are ResNet-50."""
    build = Builder(input_channels)
    at = build.block(0, width, 7, stride=2)
    at = build.add("max_pool", at, kernel=3, stride=2)
    for stage, count in enumerate(blocks):
        inner = width * 2**stage
        for number in range(count):
            stride = 2 if number == 0 and stage > 0 else 1
            inside = build.block(at, inner, 1)
            inside = build.block(inside, inner, 3, stride=stride)
            inside = build.block(inside, inner * 4, 1, relu=False)
            if number == 0:
                at = build.block(at, inner * 4, 1, stride=stride, relu=False)
            at = build.add("relu", build.add("add", inside, at))
    return _classifier(build, at, classes)


def basic_resnet(
    blocks: Sequence[int], *, width: int, classes: int, input_channels: int = 3
) -> Architecture:
    """A small ResNet of basic blocks for small images: no pooling before the blocks."""
    build = Builder(input_channels)
    at = build.block(0, width, 3)
    for stage, count in enumerate(blocks):
        channels = width * 2**stage
        for number in range(count):
            stride = 2 if number == 0 and stage > 0 else 1
            inside = build.block(at, channels, 3, stride=stride)
            inside = build.block(inside, channels, 3, relu=False)
            if stride > 1:
                at = build.block(at, channels, 1, stride=stride, relu=False)
            at = build.add("relu", build.add("add", inside, at))
    return _classifier(build, at, classes)


def _classifier(build: Builder, at: int, classes: int) -> Architecture:
    build.add("dense", build.add("global_pool", at), channels=classes)
    return build.architecture()


def initial_architecture(initial: Initial, *, classes: int, input_channels: int) -> Architecture:
    """Build the layers a search starts at; bottleneck (3, 4, 6, 3) of width 64 is ResNet-50."""
    build = bottleneck_resnet if initial.kind == "bottleneck" else basic_resnet
    return build(
        initial.blocks, width=initial.width, classes=classes, input_channels=input_channels
    )
