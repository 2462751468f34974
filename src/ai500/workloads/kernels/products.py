"""Triton: 1×1 convolutions as matrix products that reduce their result before it leaves the chip.

A program keeps its columns and walks over tiles of rows, so that each adds to one part of the sums;
which rows go to which program is fixed, and with it every bit of the result.
"""

# mypy: ignore-errors
# ruff: noqa: N803 - Triton's constants are upper case, as everywhere
from __future__ import annotations

import triton
import triton.language as tl

from ai500.workloads.kernels.rows import affine, more, passed


@triton.jit
def product(
    a, weight, out, parts, rows, N, K, splits,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """rows × K times (N × K) transposed, and the parts of its columns' statistics."""
    c = tl.program_id(0) * BN + tl.arange(0, BN)
    split = tl.program_id(1)
    inside = c < N
    k = tl.arange(0, BK)
    shift = tl.zeros((BN,), tl.float32)
    total = tl.zeros((BN,), tl.float32)
    squares = tl.zeros((BN,), tl.float32)
    count = 0
    for tile in range(split, tl.cdiv(rows, BM), splits):
        r = tile * BM + tl.arange(0, BM)
        row_ok = r < rows
        at = a + r.to(tl.int64)[:, None] * K + k[None, :]
        wt = weight + c[None, :] * K + k[:, None]
        acc = tl.zeros((BM, BN), tl.float32)
        for start in range(0, K, BK):
            k_ok = k < K - start
            left = tl.load(at + start, mask=row_ok[:, None] & k_ok[None, :], other=0.0)
            right = tl.load(wt + start, mask=inside[None, :] & k_ok[:, None], other=0.0)
            acc = tl.dot(left, right, acc)
        rounded = acc.to(out.dtype.element_ty)
        ok = row_ok[:, None] & inside[None, :]
        tl.store(out + r.to(tl.int64)[:, None] * N + c[None, :], rounded, mask=ok)
        value = rounded.to(tl.float32)
        here = tl.minimum(rows - tile * BM, BM)
        if tile == split:
            shift = tl.sum(value, 0) / here
        d = tl.where(row_ok[:, None], value - shift[None, :], 0.0)
        total += tl.sum(d, 0)
        squares += tl.sum(d * d, 0)
        count += here
    n = count.to(tl.float32)
    to = parts + split * 3 * N + c
    tl.store(to, shift + total / n, mask=inside)
    tl.store(to + N, tl.maximum(squares - total * total / n, 0.0), mask=inside)
    tl.store(to + 2 * N, tl.zeros((BN,), tl.float32) + n, mask=inside)


@triton.jit
def gradient_product(
    dx, weight, extra, bits, x, normals, other, other_normals, g_out, out, other_out,
    rows, N, K, splits, H, W,
    JOIN: tl.constexpr, STRIDE: tl.constexpr, DUAL: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """g = (rows × K times K × N, at a join plus `extra`) where ReLU passes; Σ g, Σ g (x − mean).

    N are the convolution's inputs, K its outputs. STRIDE 2: `extra` has the even pixels only.
    """
    c = tl.program_id(0) * BN + tl.arange(0, BN)
    split = tl.program_id(1)
    inside = c < N
    k = tl.arange(0, BK)
    mean = tl.load(normals + c, mask=inside, other=0.0)
    plain = tl.zeros((BN,), tl.float32)
    weighted = tl.zeros((BN,), tl.float32)
    if DUAL:
        other_mean = tl.load(other_normals + c, mask=inside, other=0.0)
        other_weighted = tl.zeros((BN,), tl.float32)
    for tile in range(split, tl.cdiv(rows, BM), splits):
        r = tile * BM + tl.arange(0, BM)
        row_ok = r < rows
        left_at = dx + r.to(tl.int64)[:, None] * K + k[None, :]
        right_at = weight + k[:, None] * N + c[None, :]
        acc = tl.zeros((BM, BN), tl.float32)
        for start in range(0, K, BK):
            k_ok = k < K - start
            left = tl.load(left_at + start, mask=row_ok[:, None] & k_ok[None, :], other=0.0)
            right = tl.load(right_at + start * N, mask=inside[None, :] & k_ok[:, None], other=0.0)
            acc = tl.dot(left, right, acc)
        ok = row_ok[:, None] & inside[None, :]
        at = r.to(tl.int64)[:, None] * N + c[None, :]
        value = tl.load(x + at, mask=ok, other=0.0).to(tl.float32)
        if JOIN:
            acc += more(extra, r, rows, c, inside, N, H, W, STRIDE, BM, BN)
            g = acc * passed(bits, r, rows, N, tl.program_id(0) * BN, BM, BN)
        else:
            g = tl.where(affine(value, normals, N, c, inside) > 0, acc, 0.0)
        rounded = tl.where(ok, g, 0.0).to(g_out.dtype.element_ty)
        tl.store(g_out + at, rounded, mask=ok)
        g = rounded.to(tl.float32)
        plain += tl.sum(g, 0)
        weighted += tl.sum(g * (value - mean[None, :]), 0)
        if DUAL:
            value = tl.load(other + at, mask=ok, other=0.0).to(tl.float32)
            other_weighted += tl.sum(g * (value - other_mean[None, :]), 0)
    to = split * 2 * N + c
    tl.store(out + to, plain, mask=inside)
    tl.store(out + to + N, weighted, mask=inside)
    if DUAL:
        tl.store(other_out + to, plain, mask=inside)
        tl.store(other_out + to + N, other_weighted, mask=inside)
