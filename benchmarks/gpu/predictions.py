"""Bytes and operations of ResNet-50's training step, and the predicted time of each version.

    PYTHONPATH=src python3 -m benchmarks.gpu.predictions [batch]

Counted from the model's shapes, BF16, every tensor read from memory each time. Two measured
ceilings of the H200: 4.3 TB/s (copy) and 780 TFLOP/s (matrix product). One measured time:
convolutions and products take 29.6 ms of the compiled step at batch 512.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass

BYTES_PER_SECOND = 4.3e12
FLOPS = 780e12
MEASURED_CONVOLUTIONS_MS = 29.6
# An estimate: 106 merges of partial sums at 4 µs, 55 casts of weight gradients at 3 µs, head, loss,
# SGD.
SMALL_KERNELS_MS = 1.0
BIT = 1 / 16
STAGES = ((56, 64, 3), (28, 128, 4), (14, 256, 6), (7, 512, 3))


@dataclass(frozen=True)
class Layer:
    """A convolution and the batch norm after it; numbers per image."""

    name: str
    kind: str
    """stem, first, second, third, dual (a third one that joins a downsampling skip), skip"""
    inputs: int
    outputs: int
    multiply_adds: int
    times: int = 1


def _layer(name: str, kind: str, sizes: tuple[int, int, int], per: int, times: int) -> Layer:
    before, channels, pixels = sizes
    after = channels * pixels
    return Layer(name, kind, before, after, after * per, times)


def layers() -> list[Layer]:
    """Return ResNet-50 v1.5's layers at 224×224; equal ones are counted, not repeated."""
    result = [Layer("stem", "stem", 224 * 224 * 3, 112 * 112 * 64, 112 * 112 * 64 * 147)]
    channels, before = 64, 56 * 56
    for number, (side, width, depth) in enumerate(STAGES, start=1):
        pixels, wide = side * side, 4 * width

        parts = (
            (
                "conv1, first",
                "first",
                (before * channels, width, before),
                channels,
                1,
            ),
            ("conv1", "first", (pixels * wide, width, pixels), wide, depth - 1),
            ("conv2, first", "second", (before * width, width, pixels), 9 * width, 1),
            ("conv2", "second", (pixels * width, width, pixels), 9 * width, depth - 1),
            ("conv3, first", "dual", (pixels * width, wide, pixels), width, 1),
            ("conv3", "third", (pixels * width, wide, pixels), width, depth - 1),
            ("skip", "skip", (pixels * channels, wide, pixels), channels, 1),
        )
        result += [_layer(f"stage {number} {part}", *rest) for part, *rest in parts]
        channels, before = wide, pixels
    return result


# Passes over a convolution's result around it: statistics, norm, backward sums, backward.
ROWS = {
    "stem": 1 + (1 + 3 / 8) + (1 + 3 / 8) + (2 + 3 / 8),
    "first": 1 + 2 + 2 + 3,
    "second": 1 + 2 + 2 + 3,
    "third": 1 + (3 + BIT) + (4 + BIT) + 3,
    "dual": 1 + (3 + BIT) + (5 + BIT) + 5,
    "skip": 1,
}
# Statistics of 1×1 convolutions are computed with the product.
PRODUCTS = ROWS | {kind: ROWS[kind] - 1 for kind in ("first", "third", "dual", "skip")}
# Gradients of 1×1 convolutions are masked and reduced with the product.
ALL = PRODUCTS | {
    "second": PRODUCTS["second"] - 1,
    "third": PRODUCTS["third"] - 2,
    "dual": PRODUCTS["dual"] - 2,
}

# A third convolution's input is a quarter: its second moments, and y Wᵀ(b W) read, written, read.
_INPUT = 0.25 + 3 * 0.25
# Batch norm after 1×1 convolutions from their inputs: no statistics, no norm backward, x not kept.
MOMENTS = ROWS | {
    "stem": 1 + (1 + 5 / 8) + 2 / 4 + (2 + 3 / 8),
    "third": (3 + BIT) + (3 + BIT) + _INPUT,
    "dual": (3 + BIT) + (3 + BIT) + _INPUT,
    "skip": 2 * _INPUT,
}
# The residual add and its gradient are computed with the product.
TILES = MOMENTS | {"third": MOMENTS["third"] - 4}


def milliseconds(passes: dict[str, float], batch: int) -> float:
    """Return the time of everything but convolutions, at the bandwidth of a copy."""
    numbers = sum(passes[layer.kind] * layer.outputs * layer.times for layer in layers())
    return 1e3 * numbers * batch * 2 / BYTES_PER_SECOND


def floor(layer: Layer, batch: int) -> tuple[float, float]:
    """Return milliseconds of operations and of bytes, of result and both gradients."""
    products = 2 if layer.kind == "stem" else 3
    operations = 2 * layer.multiply_adds * batch * products
    moved = 2 * (layer.inputs + layer.outputs) * batch * products
    return 1e3 * operations / FLOPS, 1e3 * moved / BYTES_PER_SECOND


VERSIONS = {"rows": ROWS, "products": PRODUCTS, "all": ALL, "moments": MOMENTS, "tiles": TILES}


def main() -> None:
    batch = int(sys.argv[1]) if len(sys.argv) > 1 else 512
    print("| layer | times | passes | MB | passes, ms | operations, ms | bytes, ms |")
    print("|---|---|---|---|---|---|---|")
    least = 0.0
    for layer in layers():
        megabytes = 2e-6 * layer.outputs * batch
        passes_ms = ROWS[layer.kind] * megabytes * 1e9 / BYTES_PER_SECOND * layer.times
        arithmetic, memory = (value * layer.times for value in floor(layer, batch))
        least += max(arithmetic, memory)
        print(
            f"| {layer.name} | {layer.times} | {ROWS[layer.kind]:.2f} | {megabytes:.0f} "
            f"| {passes_ms:.2f} | {arithmetic:.2f} | {memory:.2f} |"
        )
    convolutions = MEASURED_CONVOLUTIONS_MS * batch / 512
    print(f"\nconvolutions' floor {least:.1f} ms (measured: {convolutions:.1f})\n")
    print("| version | passes' ms | step, ms | img/s | at 90 % of the bandwidth |")
    print("|---|---|---|---|---|")
    for name, passes in VERSIONS.items():
        passes_ms = milliseconds(passes, batch)
        step, step_at_90 = (
            convolutions + SMALL_KERNELS_MS + passes_ms / share for share in (1, 0.9)
        )
        print(
            f"| {name} | {passes_ms:.1f} | {step:.1f} | {1e3 * batch / step:,.0f} "
            f"| {1e3 * batch / step_at_90:,.0f} |"
        )


if __name__ == "__main__":
    main()
