"""Triton kernels for volumes: mirroring of stored ones, and pooling with bias and activation.

Volumes have their channels last in memory, except stored ones.
"""

# mypy: ignore-errors
from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def mirror_and_scale(
    volumes, draws, out, edge, inverse_scale, channels: tl.constexpr, block: tl.constexpr
):
    """Write a block of voxels of one plane, mirrored along the edges whose draw is not below 0.5.

    `volumes` are integers [sample, channel, x, y, z]; `out` is [sample, x, y, z, channel].
    """
    plane = edge * edge
    sample, x = tl.program_id(1).to(tl.int64) // edge, tl.program_id(1) % edge
    voxel = tl.program_id(0) * block + tl.arange(0, block)
    inside = voxel < plane
    y, z = voxel // edge, voxel % edge
    source_x = tl.where(tl.load(draws + sample * 3) < 0.5, x, edge - 1 - x)
    source_y = tl.where(tl.load(draws + sample * 3 + 1) < 0.5, y, edge - 1 - y)
    source_z = tl.where(tl.load(draws + sample * 3 + 2) < 0.5, z, edge - 1 - z)
    channel = tl.arange(0, channels)
    source = (sample * channels + channel[:, None]) * edge * plane
    source += (source_x * plane + source_y * edge + source_z)[None, :]
    values = tl.load(volumes + source, inside[None, :], 0).to(tl.float32)
    target = ((sample * edge + x) * plane + voxel)[:, None] * channels + channel[None, :]
    tl.store(out + target, tl.trans(values) * inverse_scale, inside[:, None])


@triton.jit
def pool_forward(
    x, bias, out, code, count, half_y, half_z, slope, channels: tl.constexpr, block: tl.constexpr
):
    """Write a block of maxima over 2×2×2 voxels, plus bias, after a leaky ReLU.

    `code` gets what the backward pass needs: the maximum's place (0 … 7), plus 8 where the result
    is positive.
    """
    at = tl.program_id(0).to(tl.int64) * block + tl.arange(0, block)
    inside = at < count
    channel = at % channels
    corner, row, layer = _corner(at, half_y, half_z, channels)
    best = tl.load(x + corner, inside, 0.0)
    place = tl.zeros((block,), tl.int32)
    for number in tl.static_range(1, 8):
        offset = (number // 4) * layer + (number // 2 % 2) * row + (number % 2) * channels
        value = tl.load(x + corner + offset, inside, 0.0)
        larger = (value > best) | (value != value)  # a NaN stays, as in torch
        best = tl.where(larger, value, best)
        place = tl.where(larger, number, place)
    total = best.to(tl.float32) + tl.load(bias + channel, inside, 0.0).to(tl.float32)
    positive = total > 0
    tl.store(out + at, tl.where(positive, total, total * slope), inside)
    tl.store(code + at, place + tl.where(positive, 8, 0), inside)


@triton.jit
def pool_backward(
    gradient, code, x_gradient, bias_gradient, count, half_y, half_z, slope,
    channels: tl.constexpr, block: tl.constexpr,
):  # fmt: skip
    """Write the gradients of a block of 2×2×2 voxels, and their share of the bias's gradient."""
    at = tl.program_id(0).to(tl.int64) * block + tl.arange(0, block)
    inside = at < count
    corner, row, layer = _corner(at, half_y, half_z, channels)
    coded = tl.load(code + at, inside, 0)
    value = tl.load(gradient + at, inside, 0.0).to(tl.float32)
    value = tl.where(coded >= 8, value, value * slope)
    tl.store(bias_gradient + at, value, inside)
    for number in tl.static_range(8):
        offset = (number // 4) * layer + (number // 2 % 2) * row + (number % 2) * channels
        tl.store(x_gradient + corner + offset, tl.where(coded % 8 == number, value, 0.0), inside)


@triton.jit
def _corner(at, half_y, half_z, channels: tl.constexpr):
    """Return the first of the eight voxels of an output, and the strides of rows and layers."""
    channel, voxel = at % channels, at // channels
    z, line = voxel % half_z, voxel // half_z
    y, plane = line % half_y, line // half_y  # plane: of all samples
    row = 2 * half_z * channels
    layer = 2 * half_y * row
    return plane * 2 * layer + 2 * y * row + 2 * z * channels + channel, row, layer
