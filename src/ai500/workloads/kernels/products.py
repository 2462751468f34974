"""Triton: 1×1 convolutions as matrix products that reduce their result before it leaves the chip.

A program keeps its columns and walks over tiles of rows, so that each adds to one part of the sums;
which rows go to which program is fixed, and with it every bit of the result.
"""

# mypy: ignore-errors
# ruff: noqa: N803 - Triton's constants are upper case, as everywhere
from __future__ import annotations

import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

from ai500.workloads.kernels.rows import SIZES, affine, more, passed

__all__ = ["TensorDescriptor", "gradient_product", "product"]


@triton.jit(do_not_specialize=SIZES)
def product(
    a, weight, out, parts, rows, N, K, splits,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """rows × K times (N × K) transposed, and the parts of its columns' statistics.

    The matrices come as descriptors: the copy engine moves tiles, past their edges it reads zeros.
    """
    first = tl.program_id(0) * BN
    split = tl.program_id(1)
    count = 0
    for tile in range(split, tl.cdiv(rows, BM), splits):
        acc = tl.zeros((BM, BN), tl.float32)
        for start in range(0, K, BK):
            left = a.load([tile * BM, start])
            right = weight.load([first, start])
            acc = tl.dot(left, right.T, acc)
        here = tl.minimum(rows - tile * BM, BM)
        one, two = halves(acc, BM, BN)
        to = parts + split * 3 * N
        keep(one, out, to, tile * BM, first, N, here, count, BM, BN // 2)
        keep(two, out, to, tile * BM, first + BN // 2, N, here, count, BM, BN // 2)
        count += here


@triton.jit
def halves(acc, BM: tl.constexpr, BN: tl.constexpr):
    """Left and right columns: what follows needs fewer registers at a time."""
    return tl.split(tl.permute(tl.reshape(acc, (BM, 2, BN // 2)), (0, 2, 1)))


@triton.jit
def keep(acc, out, parts, row, column, N, here, count, BM: tl.constexpr, BN: tl.constexpr):
    """Rounded, stored, and its statistics merged with those of `count` rows (Chan et al. 1979).

    In memory: carried in registers they would take a third of a program's.
    """
    rounded = acc.to(out.dtype)
    out.store([row, column], rounded)
    value = rounded.to(tl.float32)
    mean = tl.sum(value, 0) / here
    row_ok = tl.arange(0, BM) < here
    d = tl.where(row_ok[:, None], value - mean[None, :], 0.0)
    squares = tl.sum(d * d, 0)
    c = column + tl.arange(0, BN)
    inside = c < N
    to = parts + c
    old = tl.load(to, mask=inside & (count > 0), other=0.0)
    old_squares = tl.load(to + N, mask=inside & (count > 0), other=0.0)
    n = (count + here).to(tl.float32)
    share = here / n
    d = mean - old
    tl.store(to, old + d * share, mask=inside)
    tl.store(to + N, old_squares + squares + d * d * (count * share), mask=inside)
    tl.store(to + 2 * N, n + tl.zeros_like(d), mask=inside)


@triton.jit(do_not_specialize=SIZES)
def gradient_product(
    dx, weight, extra, bits, x, normals, other, other_normals, g_out, out, other_out,
    rows, N, K, splits, H, W,
    JOIN: tl.constexpr, STRIDE: tl.constexpr, DUAL: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """g = (rows × K times K × N, at a join plus `extra`) where ReLU passes; Σ g, Σ g (x − mean).

    N are the convolution's inputs, K its outputs. STRIDE 2: `extra` has the even pixels only.
    """
    first = tl.program_id(0) * BN
    split = tl.program_id(1)
    for tile in range(split, tl.cdiv(rows, BM), splits):
        acc = tl.zeros((BM, BN), tl.float32)
        for start in range(0, K, BK):
            left = dx.load([tile * BM, start])
            right = weight.load([start, first])
            acc = tl.dot(left, right, acc)
        one, two = halves(acc, BM, BN)
        sums, other_sums = out + split * 2 * N, other_out + split * 2 * N
        finish(
            one, extra, bits, x, normals, other, other_normals, g_out, sums, other_sums,
            tile * BM, first, rows, N, H, W, tile - split, JOIN, STRIDE, DUAL, BM, BN // 2,
        )  # fmt: skip
        finish(
            two, extra, bits, x, normals, other, other_normals, g_out, sums, other_sums,
            tile * BM, first + BN // 2, rows, N, H, W, tile - split,
            JOIN, STRIDE, DUAL, BM, BN // 2,
        )  # fmt: skip


@triton.jit
def finish(
    acc, extra, bits, x, normals, other, other_normals, g_out, out, other_out,
    row, column, rows, N, H, W, count,
    JOIN: tl.constexpr, STRIDE: tl.constexpr, DUAL: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    """What stands behind the product, for some of its columns."""
    r = row + tl.arange(0, BM)
    c = column + tl.arange(0, BN)
    inside = c < N
    ok = (r < rows)[:, None] & inside[None, :]
    at = r.to(tl.int64)[:, None] * N + c[None, :]
    value = tl.load(x + at, mask=ok, other=0.0).to(tl.float32)
    if JOIN:
        acc += more(extra, r, rows, c, inside, N, H, W, STRIDE, BM, BN)
        g = acc * passed(bits, r, rows, N, column, BM, BN)
    else:
        g = tl.where(affine(value, normals, N, c, inside) > 0, acc, 0.0)
    rounded = tl.where(ok, g, 0.0).to(g_out.dtype.element_ty)
    tl.store(g_out + at, rounded, mask=ok)
    g = rounded.to(tl.float32)
    mean = tl.load(normals + c, mask=inside, other=0.0)
    plain = tl.sum(g, 0)
    add(out + c, plain, count, inside)
    add(out + N + c, tl.sum(g * (value - mean[None, :]), 0), count, inside)
    if DUAL:
        mean = tl.load(other_normals + c, mask=inside, other=0.0)
        value = tl.load(other + at, mask=ok, other=0.0).to(tl.float32)
        add(other_out + c, plain, count, inside)
        add(other_out + N + c, tl.sum(g * (value - mean[None, :]), 0), count, inside)


@triton.jit
def add(to, sums, count, inside):
    """To sums in memory, as in `keep`; the first tile's are the first."""
    old = tl.load(to, mask=inside & (count > 0), other=0.0)
    tl.store(to, old + sums, mask=inside)
