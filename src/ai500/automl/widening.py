"""Which layers have to be widened together, and how each one's channels are repeated."""

from __future__ import annotations

import torch
from torch import Tensor

from ai500.core.errors import AI500Error
from ai500.workloads.models.architecture import KEEPS_CHANNELS, Architecture, Layer


class UnwidenableError(AI500Error):
    """These channels can't be repeated: an image's, or those that concatenations tie together."""


def mappings_of(architecture: Architecture, layer: int, mapping: Tensor) -> dict[int, Tensor]:
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
                raise UnwidenableError(f"layer {number} would have to be widened in two ways")
            continue
        found[number] = wanted
        waiting += _before(architecture[number], wanted, channels)
        for reader in architecture.consumers(number):
            waiting += _behind(reader, number, wanted, found, channels)
    return found


def _before(layer: Layer, wanted: Tensor, channels: dict[int, int]) -> list[tuple[int, Tensor]]:
    """What the layer's own mapping demands of its inputs."""
    if layer.kind == "input":
        raise UnwidenableError("the images' own channels can't be repeated")
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
        raise UnwidenableError(f"concatenation {layer.number} would have to mix its inputs")
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
