"""Network morphism (Wei et al. 2016; AIPerf §IV-A): a child that computes what its parent does.

Each function takes an architecture with its weights and returns the child's; in evaluation mode
both compute the same. `moves` lists the possible morphisms, `apply` applies one.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Sequence

import torch
from torch import Generator, Tensor

from ai500.automl.moves import KINDS, Move
from ai500.core.errors import AI500Error
from ai500.workloads.models.architecture import KEEPS_CHANNELS, MAX_KERNEL, Architecture, Layer


class WideningError(AI500Error):
    """Channels that can't be repeated: an image's, or those that concatenations constrain."""


def channel_mappings(architecture: Architecture, layer: int, mapping: Tensor) -> dict[int, Tensor]:
    """Return, for every layer that changes, the old channel that each new channel repeats.

    Batch norm, ReLU and pooling pass a convolution's channels on; an addition needs the same
    mapping for all its inputs; a concatenation's mapping is the concatenation of its inputs'.
    """
    mappings: dict[int, Tensor] = {}
    waiting = [(layer, mapping)]
    channels = architecture.channels()
    while waiting:
        number, required = waiting.pop()
        known = mappings.get(number)
        if known is not None:
            if not torch.equal(known, required):
                raise WideningError(f"layer {number} would have to be widened in two ways")
            continue
        mappings[number] = required
        waiting += _input_mappings(architecture[number], required, channels)
        for reader in architecture.consumers(number):
            waiting += _reader_mappings(reader, number, required, mappings, channels)
    return mappings


def _input_mappings(
    layer: Layer, mapping: Tensor, channels: dict[int, int]
) -> list[tuple[int, Tensor]]:
    """Return the mappings that a layer's own mapping requires of its inputs."""
    if layer.kind == "input":
        raise WideningError("the images' own channels can't be repeated")
    if layer.kind in KEEPS_CHANNELS or layer.kind == "add":
        return [(source, mapping) for source in layer.inputs]
    if layer.kind == "concat":
        return _split_mapping(layer, mapping, channels)
    return []


def _split_mapping(
    layer: Layer, mapping: Tensor, channels: dict[int, int]
) -> list[tuple[int, Tensor]]:
    """Split a concatenation's mapping into its inputs'; it must keep their order."""
    parts, first = [], 0
    for source in layer.inputs:
        inside = (mapping >= first) & (mapping < first + channels[source])
        part = mapping[inside] - first
        parts.append((source, part))
        first += channels[source]
    whole, first = [], 0
    for source, part in parts:
        whole.append(part + first)
        first += channels[source]
    if not torch.equal(torch.cat(whole), mapping):
        raise WideningError(f"concatenation {layer.number} would have to mix its inputs")
    return [(s, part) for s, part in parts if not _is_identity(part, channels[s])]


def _reader_mappings(
    reader: Layer,
    number: int,
    mapping: Tensor,
    mappings: dict[int, Tensor],
    channels: dict[int, int],
) -> list[tuple[int, Tensor]]:
    """Return the mapping that a changed input requires of the layer that reads it."""
    if reader.kind in KEEPS_CHANNELS or reader.kind == "add":
        return [(reader.number, mapping)]
    if reader.kind != "concat":
        return []  # a convolution or dense layer: its weights are divided among the copies
    parts, first = [], 0
    for source in reader.inputs:
        part = mapping if source == number else mappings.get(source, torch.arange(channels[source]))
        parts.append(part + first)
        first += channels[source]
    return [(reader.number, torch.cat(parts))]


def _is_identity(mapping: Tensor, channels: int) -> bool:
    return len(mapping) == channels and bool((mapping == torch.arange(channels)).all())


Weights = dict[str, Tensor]
EPSILON = 1e-5  # the default of torch's batch norm


def moves(architecture: Architecture, *, kinds: Sequence[str] = KINDS) -> Iterator[Move]:
    """Yield every morphism of these kinds, in a fixed order."""
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
        yield from (move for move in _skips(architecture) if move.kind in kinds)


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
    """Return the child, with weights that make it compute what its parent computes."""
    if move.kind == "deeper":
        return _deeper(architecture, weights, move)
    if move.kind == "wider":
        return _wider(architecture, weights, move, generator)
    if move.kind == "kernel":
        return _larger_kernel(architecture, weights, move)
    if move.kind == "skip_add":
        return _skip_by_addition(architecture, weights, move)
    return _skip_by_concatenation(architecture, weights, move)


def _name(layer: int, tensor: str) -> str:
    return f"layers.{layer}.{tensor}"


def _deeper(
    architecture: Architecture, weights: Weights, move: Move
) -> tuple[Architecture, Weights]:
    """Add a block behind a ReLU: an identity convolution, a batch norm that is the identity, and
    a ReLU on values that are not negative."""
    first, channels = architecture.next_number, architecture.channels()[move.layer]
    block = [
        Layer(first, "convolution", (move.layer,), channels=channels, kernel=move.size),
        Layer(first + 1, "batch_norm", (first,)),
        Layer(first + 2, "relu", (first + 1,)),
    ]
    users = [layer.number for layer in architecture.consumers(move.layer)]
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
    """Estimate mean and variance of a ReLU's output, so that the new batch norm changes little in
    training mode, too: behind a batch norm those of a rectified normal, elsewhere 0 and 1."""
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
    """Repeat channels; layers that read them divide their weights among the copies.

    The parts are random, not equal: copies with equal weights would stay equal in training.
    """
    old = architecture[move.layer].channels
    if move.size <= old:
        raise WideningError(f"layer {move.layer} has {old} channels already")
    copies = torch.randint(old, (move.size - old,), generator=generator)
    mappings = channel_mappings(architecture, move.layer, torch.cat([torch.arange(old), copies]))
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
            for tensor in ("weight", "bias", "running_mean", "running_var"):
                new[_name(layer.number, tensor)] = new[_name(layer.number, tensor)][mapping]
    return architecture.replaced(child), new


def _widen_reader(
    layer: Layer, mapping: Tensor | None, weights: Weights, generator: Generator
) -> None:
    """Adapt a convolution or dense layer that reads repeated channels."""
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
    """Pad a kernel with zeros."""
    layer = architecture[move.layer]
    ring = (move.size - layer.kernel) // 2
    name = _name(move.layer, "weight")
    padded = torch.nn.functional.pad(weights[name], (ring,) * 4)
    child = architecture.replaced([dataclasses.replace(layer, kernel=move.size)])
    return child, weights | {name: padded}


def enlarge_kernels(
    architecture: Architecture, weights: Weights, size: int
) -> tuple[Architecture, Weights]:
    """Pad every convolution of more than 1×1 that is smaller than size × size."""
    for layer in architecture.layers:
        if layer.kind == "convolution" and 1 < layer.kernel < size:
            move = Move("kernel", layer.number, size=size)
            architecture, weights = _larger_kernel(architecture, weights, move)
    return architecture, weights


def _skip_by_addition(
    architecture: Architecture, weights: Weights, move: Move
) -> tuple[Architecture, Weights]:
    """Add the source, through a 1×1 convolution of zeros, to the target's output."""
    first, channels = architecture.next_number, architecture.channels()
    reductions = architecture.reductions()
    stride = reductions[move.to] // reductions[move.layer]
    width = channels[move.to]
    added = [
        Layer(first, "convolution", (move.layer,), channels=width, stride=stride),
        Layer(first + 1, "add", (move.to, first)),
    ]
    users = [layer.number for layer in architecture.consumers(move.to)]
    child = architecture.inserted(added, after=move.to)
    child = child.rewired(move.to, first + 1, consumers=users)
    like = next(iter(weights.values()))
    zeros = like.new_zeros(width, channels[move.layer], 1, 1)
    return child, weights | {_name(first, "weight"): zeros}


def _skip_by_concatenation(
    architecture: Architecture, weights: Weights, move: Move
) -> tuple[Architecture, Weights]:
    """Let convolutions behind the target also read the source's channels, with zero weights."""
    first, channels = architecture.next_number, architecture.channels()
    readers = [layer.number for layer in _convolutions_after(architecture, move.to)]
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
    return [layer for layer in architecture.consumers(number) if layer.kind == "convolution"]
