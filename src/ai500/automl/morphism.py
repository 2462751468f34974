"""Network morphism (Wei et al. 2016; AIPerf §IV-A): a child that computes what its parent does.

Each function takes an architecture with its weights and gives the child's; in evaluation mode both
compute the same. `moves` lists what can be done, `apply` does it.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Generator, Tensor

from ai500.core.errors import AI500Error
from ai500.workloads.models.architecture import KEEPS_CHANNELS, MAX_KERNEL, Architecture, Layer


class WideningError(AI500Error):
    """These channels can't be repeated: an image's, or those that concatenations tie together."""


def channel_mappings(architecture: Architecture, layer: int, mapping: Tensor) -> dict[int, Tensor]:
    """Layer → for each of its new channels the old one it repeats, for all that change.

    What a convolution puts out is handed on by batch norm, ReLU and pooling; an addition needs all
    its inputs alike, so that others have to be repeated in the same way; a concatenation's mapping
    is put together from its inputs'.
    """
    found: dict[int, Tensor] = {}
    waiting = [(layer, mapping)]
    channels = architecture.channels()
    while waiting:
        number, wanted = waiting.pop()
        known = found.get(number)
        if known is not None:
            if not torch.equal(known, wanted):
                raise WideningError(f"layer {number} would have to be widened in two ways")
            continue
        found[number] = wanted
        waiting += _before(architecture[number], wanted, channels)
        for reader in architecture.consumers(number):
            waiting += _behind(reader, number, wanted, found, channels)
    return found


def _before(layer: Layer, wanted: Tensor, channels: dict[int, int]) -> list[tuple[int, Tensor]]:
    """What the layer's own mapping demands of its inputs."""
    if layer.kind == "input":
        raise WideningError("the images' own channels can't be repeated")
    if layer.kind in KEEPS_CHANNELS or layer.kind == "add":
        return [(source, wanted) for source in layer.inputs]
    if layer.kind == "concat":
        return _parts(layer, wanted, channels)
    return []


def _parts(layer: Layer, wanted: Tensor, channels: dict[int, int]) -> list[tuple[int, Tensor]]:
    """A concatenation's mapping cut into its inputs'; it must keep their order."""
    parts, first = [], 0
    for source in layer.inputs:
        inside = (wanted >= first) & (wanted < first + channels[source])
        part = wanted[inside] - first
        parts.append((source, part))
        first += channels[source]
    whole, first = [], 0
    for source, part in parts:
        whole.append(part + first)
        first += channels[source]
    if not torch.equal(torch.cat(whole), wanted):
        raise WideningError(f"concatenation {layer.number} would have to mix its inputs")
    return [(s, part) for s, part in parts if not _is_identity(part, channels[s])]


def _behind(
    reader: Layer, number: int, wanted: Tensor, found: dict[int, Tensor], channels: dict[int, int]
) -> list[tuple[int, Tensor]]:
    """What a changed input demands of the layer that reads it."""
    if reader.kind in KEEPS_CHANNELS or reader.kind == "add":
        return [(reader.number, wanted)]
    if reader.kind != "concat":
        return []  # a convolution or dense layer: its weights are shared out
    parts, first = [], 0
    for source in reader.inputs:
        part = wanted if source == number else found.get(source, torch.arange(channels[source]))
        parts.append(part + first)
        first += channels[source]
    return [(reader.number, torch.cat(parts))]


def _is_identity(mapping: Tensor, channels: int) -> bool:
    return len(mapping) == channels and bool((mapping == torch.arange(channels)).all())


Weights = dict[str, Tensor]
MoveKind = Literal["deeper", "wider", "kernel", "skip_add", "skip_concat"]
KINDS: tuple[str, ...] = get_args(MoveKind)
EPSILON = 1e-5  # of torch's batch norm


@dataclass(frozen=True, slots=True)
class Move:
    """One step in the space of architectures."""

    kind: MoveKind
    layer: int
    """deeper: behind this ReLU; wider, kernel: this convolution; skip: from this layer's output."""
    to: int = 0
    """skip: to the output of this layer."""
    size: int = 0
    """deeper, kernel: of the kernel; wider: the channels after it."""


def moves(architecture: Architecture, *, kinds: Sequence[str] = KINDS) -> Iterator[Move]:
    """Every single step of these kinds from here, in a fixed order."""
    if "deeper" in kinds:
        for layer in _rectified(architecture):
            for size in (3, 5):
                yield Move("deeper", layer.number, size=size)
    for layer in architecture.layers:
        if layer.kind == "convolution" and "wider" in kinds:
            yield Move("wider", layer.number, size=layer.channels + math.ceil(layer.channels / 4))
        if layer.kind == "convolution" and "kernel" in kinds and 1 < layer.kernel < MAX_KERNEL:
            yield Move("kernel", layer.number, size=layer.kernel + 2)
    if "skip_add" in kinds or "skip_concat" in kinds:
        yield from (one for one in _skips(architecture) if one.kind in kinds)


def _rectified(architecture: Architecture) -> list[Layer]:
    return [layer for layer in architecture.layers if layer.kind == "relu"]


def _skips(architecture: Architecture) -> Iterator[Move]:
    reductions, channels = architecture.reductions(), architecture.channels()
    rectified = _rectified(architecture)
    for at, source in enumerate(rectified):
        for target in rectified[at + 1 :]:
            ratio = reductions[target.number] // max(1, reductions[source.number])
            if ratio in (1, 2, 4) and _convolutions_after(architecture, target.number):
                yield Move("skip_add", source.number, to=target.number)
                if ratio == 1 and channels[source.number] <= channels[target.number]:
                    yield Move("skip_concat", source.number, to=target.number)


def apply(
    architecture: Architecture, weights: Weights, move: Move, *, generator: Generator
) -> tuple[Architecture, Weights]:
    """The child, with weights that make it compute what its parent computes."""
    if move.kind == "deeper":
        return _deeper(architecture, weights, move)
    if move.kind == "wider":
        return _wider(architecture, weights, move, generator)
    if move.kind == "kernel":
        return _larger_kernel(architecture, weights, move)
    if move.kind == "skip_add":
        return _skip_by_addition(architecture, weights, move)
    return _skip_by_concatenation(architecture, weights, move)


def _name(layer: int, what: str) -> str:
    return f"layers.{layer}.{what}"


def _deeper(
    architecture: Architecture, weights: Weights, move: Move
) -> tuple[Architecture, Weights]:
    """A block behind a ReLU: an identity convolution, a batch norm that undoes itself, a ReLU that
    meets nothing negative."""
    first, channels = architecture.next_number, architecture.channels()[move.layer]
    block = [
        Layer(first, "convolution", (move.layer,), channels=channels, kernel=move.size),
        Layer(first + 1, "batch_norm", (first,)),
        Layer(first + 2, "relu", (first + 1,)),
    ]
    users = [one.number for one in architecture.consumers(move.layer)]
    child = architecture.inserted(block, after=move.layer)
    child = child.rewired(move.layer, first + 2, consumers=users)
    like = next(iter(weights.values()))
    kernel = like.new_zeros(channels, channels, move.size, move.size)
    kernel[range(channels), range(channels), move.size // 2, move.size // 2] = 1
    mean, variance = _rectified_moments(architecture, weights, move.layer, channels)
    added = {
        _name(first, "weight"): kernel,
        _name(first + 1, "weight"): (variance + EPSILON).sqrt(),
        _name(first + 1, "bias"): mean.clone(),
        _name(first + 1, "running_mean"): mean,
        _name(first + 1, "running_var"): variance,
        _name(first + 1, "num_batches_tracked"): torch.zeros((), dtype=torch.int64),
    }
    return child, weights | added


def _rectified_moments(
    architecture: Architecture, weights: Weights, relu: int, channels: int
) -> tuple[Tensor, Tensor]:
    """Mean and variance of a ReLU's output, so that the new batch norm changes little in training
    mode either: behind a batch norm those of a rectified normal, elsewhere the neutral 0 and 1."""
    like = next(iter(weights.values()))
    before = architecture[architecture[relu].inputs[0]]
    if before.kind != "batch_norm":
        return like.new_zeros(channels), like.new_ones(channels)
    mean = weights[_name(before.number, "bias")].double()
    deviation = weights[_name(before.number, "weight")].double().abs().clamp(min=1e-6)
    ratio = mean / deviation
    below = 0.5 * (1 + torch.erf(ratio / math.sqrt(2)))
    density = torch.exp(-0.5 * ratio**2) / math.sqrt(2 * math.pi)
    first = mean * below + deviation * density
    second = (mean**2 + deviation**2) * below + mean * deviation * density
    variance = (second - first**2).clamp(min=1e-4)
    return first.to(like.dtype), variance.to(like.dtype)


def _wider(
    architecture: Architecture, weights: Weights, move: Move, generator: Generator
) -> tuple[Architecture, Weights]:
    """Channels repeated; whoever reads them shares its weight out among the copies.

    The shares are drawn, not equal: copies that are read alike would learn alike for ever.
    """
    old = architecture[move.layer].channels
    if move.size <= old:
        raise WideningError(f"layer {move.layer} has {old} channels already")
    copies = torch.randint(old, (move.size - old,), generator=generator)
    wanted = torch.cat([torch.arange(old), copies])
    mappings = channel_mappings(architecture, move.layer, wanted)
    child, new = [], dict(weights)
    for layer in architecture.layers:
        if layer.kind in ("convolution", "dense"):
            _widen_reader(layer, mappings.get(layer.inputs[0]), new, generator)
        mapping = mappings.get(layer.number)
        if mapping is None:
            continue
        if layer.kind == "convolution":
            name = _name(layer.number, "weight")
            new[name] = new[name][mapping]
            child.append(dataclasses.replace(layer, channels=len(mapping)))
        elif layer.kind == "batch_norm":
            for what in ("weight", "bias", "running_mean", "running_var"):
                new[_name(layer.number, what)] = new[_name(layer.number, what)][mapping]
    return architecture.replaced(child), new


def _widen_reader(
    layer: Layer, mapping: Tensor | None, weights: Weights, generator: Generator
) -> None:
    """A convolution or dense layer that reads repeated channels."""
    if mapping is None:
        return
    name = _name(layer.number, "weight")
    weight = weights[name]
    drawn = 0.5 + torch.rand(len(mapping), generator=generator, dtype=torch.float64)
    total = torch.zeros(weight.shape[1], dtype=torch.float64).index_add_(0, mapping, drawn)
    shares = (drawn / total[mapping]).to(weight)
    weights[name] = weight[:, mapping] * shares.view(1, -1, *[1] * (weight.dim() - 2))


def _larger_kernel(
    architecture: Architecture, weights: Weights, move: Move
) -> tuple[Architecture, Weights]:
    """Zeros around the kernel."""
    layer = architecture[move.layer]
    ring = (move.size - layer.kernel) // 2
    name = _name(move.layer, "weight")
    padded = torch.nn.functional.pad(weights[name], (ring,) * 4)
    child = architecture.replaced([dataclasses.replace(layer, kernel=move.size)])
    return child, weights | {name: padded}


def _skip_by_addition(
    architecture: Architecture, weights: Weights, move: Move
) -> tuple[Architecture, Weights]:
    """The source, through a 1×1 convolution of zeros, is added to the target's output."""
    first, channels = architecture.next_number, architecture.channels()
    reductions = architecture.reductions()
    stride = reductions[move.to] // reductions[move.layer]
    width = channels[move.to]
    added = [
        Layer(first, "convolution", (move.layer,), channels=width, stride=stride),
        Layer(first + 1, "add", (move.to, first)),
    ]
    users = [one.number for one in architecture.consumers(move.to)]
    child = architecture.inserted(added, after=move.to)
    child = child.rewired(move.to, first + 1, consumers=users)
    like = next(iter(weights.values()))
    zeros = like.new_zeros(width, channels[move.layer], 1, 1)
    return child, weights | {_name(first, "weight"): zeros}


def _skip_by_concatenation(
    architecture: Architecture, weights: Weights, move: Move
) -> tuple[Architecture, Weights]:
    """Convolutions behind the target read the source's channels too, with weights of zero."""
    first, channels = architecture.next_number, architecture.channels()
    readers = [one.number for one in _convolutions_after(architecture, move.to)]
    joined = Layer(first, "concat", (move.to, move.layer))
    child = architecture.inserted([joined], after=move.to)
    child = child.rewired(move.to, first, consumers=readers)
    new = dict(weights)
    for reader in readers:
        weight = weights[_name(reader, "weight")]
        zeros = weight.new_zeros(weight.shape[0], channels[move.layer], *weight.shape[2:])
        new[_name(reader, "weight")] = torch.cat([weight, zeros], dim=1)
    return child, new


def _convolutions_after(architecture: Architecture, number: int) -> list[Layer]:
    return [one for one in architecture.consumers(number) if one.kind == "convolution"]
