"""Shape of a transformer and its division among accelerators. Imports no torch, so `plan` runs
anywhere."""

from __future__ import annotations

from dataclasses import dataclass

from ai500.records import ParallelPlan, Split

DEVIATION = 0.02
"""Standard deviation of GPT-2's initial weights."""


@dataclass(frozen=True, slots=True)
class TransformerShape:
    """Sizes of a decoder-only transformer."""

    vocabulary: int
    context: int
    """Tokens that a prediction can depend on."""
    width: int
    heads: int
    layers: int


SHAPES = {
    "smoke": TransformerShape(vocabulary=256, context=128, width=64, heads=4, layers=2),
    "workstation": TransformerShape(vocabulary=256, context=256, width=384, heads=6, layers=6),
    # GPT-2's 50,257 tokens, padded to a multiple of 128 for faster products.
    "full": TransformerShape(vocabulary=50_304, context=1024, width=768, heads=12, layers=12),
}
"""Shapes of the language model's classes."""


def transformer_plan(shape: TransformerShape) -> ParallelPlan:
    """Split attention by heads and the feed-forward layer by its inner channels; pipeline stages
    may end after any block, and first and last stage share the tied embedding."""
    blocks = [f"blocks.{number}" for number in range(shape.layers)]
    width, head = shape.width, shape.width // shape.heads
    return ParallelPlan(
        splits=(
            # A head's queries, keys and values are adjacent channels, which stay on one rank.
            Split("blocks.*.attention.qkv", "columns", 3 * width, group=3 * head),
            Split("blocks.*.attention.out", "rows", width, group=head),
            Split("blocks.*.feed_forward.up", "columns", 4 * width),
            Split("blocks.*.feed_forward.down", "rows", 4 * width),
        ),
        stages=(("tokens", "positions"), *((block,) for block in blocks), ("norm", "head")),
        units=tuple(blocks),
        shared=("tokens",),
    )
