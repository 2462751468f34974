"""Morphisms as data: the kind, the place and the size of a change. Needs no torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

MoveKind = Literal["deeper", "wider", "kernel", "skip_add", "skip_concat"]
KINDS: tuple[str, ...] = get_args(MoveKind)


@dataclass(frozen=True, slots=True)
class Move:
    """One morphism."""

    kind: MoveKind
    layer: int
    """deeper: behind this ReLU; wider, kernel: this convolution; skip: from this layer's output."""
    to: int = 0
    """skip: target, whose output it is joined to."""
    size: int = 0
    """deeper, kernel: kernel size; wider: channels of the widened layer."""


def describe_move(move: Move) -> str:
    """Describe a morphism for the history and the report."""
    if move.kind == "deeper":
        return f"a {move.size}×{move.size} block behind layer {move.layer}"
    if move.kind == "wider":
        return f"layer {move.layer} to {move.size} channels"
    if move.kind == "kernel":
        return f"layer {move.layer} to {move.size}×{move.size}"
    how = "added" if move.kind == "skip_add" else "joined"
    return f"layer {move.layer} {how} to layer {move.to}"
