"""Triton kernels of the stem: batch norm, ReLU and max pooling in one, and 2×2 space-to-depth."""

# mypy: ignore-errors
# ruff: noqa: N803 - Triton's constants are upper case, as everywhere
from __future__ import annotations

import triton
import triton.language as tl

from ai500.workloads.kernels.rows import SIZES, norm_input_gradient


@triton.jit(do_not_specialize=SIZES)
def norm_relu_max_pool(
    x, normals, y, taps, where, rows, C, H, W, HO, WO, BM: tl.constexpr, BC: tl.constexpr
):  # fmt: skip
    """Compute the 3×3 maximum of stride 2 of relu(scale · x + shift); store the tap and its x.

    The maximum is where x is largest, or smallest where the scale is negative, so batch norm is
    applied once per window.
    """
    r = tl.program_id(0) * BM + tl.arange(0, BM)
    c = tl.program_id(1) * BC + tl.arange(0, BC)
    inside = c < C
    scale = tl.load(normals + 2 * C + c, mask=inside, other=0.0)
    shift = tl.load(normals + 3 * C + c, mask=inside, other=0.0)
    sign = tl.where(scale < 0, -1.0, 1.0)[None, :]
    n, ho, wo = r // (HO * WO), (r // WO) % HO, r % WO
    best = tl.full((BM, BC), float("-inf"), tl.float32)
    chosen = tl.zeros((BM, BC), tl.int32)
    for tap in tl.static_range(9):
        h, w = 2 * ho - 1 + tap // 3, 2 * wo - 1 + tap % 3
        there = (r < rows) & (h >= 0) & (h < H) & (w >= 0) & (w < W)
        ok = there[:, None] & inside[None, :]
        at = ((n * H + h) * W + w).to(tl.int64)[:, None] * C + c[None, :]
        value = sign * tl.load(x + at, mask=ok, other=0.0).to(tl.float32)
        better = ok & (value > best)
        chosen = tl.where(better, tap, chosen)
        best = tl.where(better, value, best)
    ok = (r < rows)[:, None] & inside[None, :]
    at = r.to(tl.int64)[:, None] * C + c[None, :]
    best = sign * best
    z = best * scale[None, :] + shift[None, :]
    tl.store(y + at, tl.maximum(z, 0.0).to(y.dtype.element_ty), mask=ok)
    tl.store(taps + at, tl.where(z > 0, chosen, 9).to(tl.uint8), mask=ok)
    tl.store(where + at, best.to(y.dtype.element_ty), mask=ok)


@triton.jit(do_not_specialize=SIZES)
def norm_max_pool_backward(
    dy, taps, x, normals, terms, dx, rows, C, H, W, HO, WO, BM: tl.constexpr, BC: tl.constexpr
):  # fmt: skip
    """Compute the gradient of the batch norm's input before the pooling, last rows first.

    A program handles pixels of one parity of row and column: 1, 2 or 4 windows cover such a pixel.
    """
    program = tl.num_programs(0) - 1 - tl.program_id(0)
    odd_h, odd_w = (program // 2) % 2, program % 2
    half_h, half_w = (H + 1) // 2, (W + 1) // 2
    r = (program // 4) * BM + tl.arange(0, BM)
    c = tl.program_id(1) * BC + tl.arange(0, BC)
    inside = c < C
    n, h, w = r // (half_h * half_w), 2 * ((r // half_w) % half_h) + odd_h, 2 * (r % half_w) + odd_w
    real = (r < rows) & (h < H) & (w < W)
    g = tl.zeros((BM, BC), tl.float32)
    for corner in tl.static_range(4):
        if (corner // 2 <= odd_h) & (corner % 2 <= odd_w):
            ho, wo = (h + 1) // 2 - corner // 2, (w + 1) // 2 - corner % 2
            i, j = h + 1 - 2 * ho, w + 1 - 2 * wo
            ok = (real & (ho < HO) & (wo < WO))[:, None] & inside[None, :]
            at = ((n * HO + ho) * WO + wo).to(tl.int64)[:, None] * C + c[None, :]
            tap = tl.load(taps + at, mask=ok, other=9).to(tl.int32)
            value = tl.load(dy + at, mask=ok, other=0.0).to(tl.float32)
            g += tl.where(tap == (3 * i + j)[:, None], value, 0.0)
    ok = real[:, None] & inside[None, :]
    at = ((n * H + h) * W + w).to(tl.int64)[:, None] * C + c[None, :]
    value = tl.load(x + at, mask=ok, other=0.0).to(tl.float32)
    gradient = norm_input_gradient(g, value, normals, terms, C, c, inside)
    tl.store(dx + at, gradient.to(dx.dtype.element_ty), mask=ok)


@triton.jit(do_not_specialize=SIZES)
def space_to_depth(
    images, out, rows, H, W, HC, WC, stride_n, stride_c, stride_h, stride_w,
    CHANNELS: tl.constexpr, BM: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    """Store cells of 2×2 pixels as channels (row, column, channel), padded by three pixels of
    zeros."""
    r = tl.program_id(0) * BM + tl.arange(0, BM)
    c = tl.arange(0, BC)
    n, p, q = r // (HC * WC), (r // WC) % HC, r % WC
    h = 2 * p[:, None] - 3 + (c // (2 * CHANNELS))[None, :]
    w = 2 * q[:, None] - 3 + ((c // CHANNELS) % 2)[None, :]
    real = (r < rows)[:, None] & (c < 4 * CHANNELS)[None, :]
    ok = real & (h >= 0) & (h < H) & (w >= 0) & (w < W)
    at = n.to(tl.int64)[:, None] * stride_n + (c % CHANNELS)[None, :] * stride_c
    value = tl.load(images + at + h * stride_h + w * stride_w, mask=ok, other=0.0)
    to = out + r.to(tl.int64)[:, None] * BC + c[None, :]
    tl.store(to, value.to(out.dtype.element_ty), mask=(r < rows)[:, None])
