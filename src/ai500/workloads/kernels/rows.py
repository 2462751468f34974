"""Triton kernels over matrices of rows × channels: statistics, batch norm, ReLU, skip, gradients.

Sums are FP32, split over programs and merged in a fixed order, so the same input gives the same
bits. `C` is the number of channels; a tile is BM rows × BC channels.
"""

# mypy: ignore-errors
# ruff: noqa: N803 - Triton's constants are upper case, as everywhere
from __future__ import annotations

import triton
import triton.language as tl

# Triton does not compile a kernel again for other values of these arguments.
SIZES = ("rows", "per_split", "splits", "H", "W", "HO", "WO", "HC", "WC")


@triton.jit(do_not_specialize=SIZES)
def partial_statistics(x, out, rows, C, per_split, BM: tl.constexpr, BC: tl.constexpr):
    """Store mean, sum of squared deviations and count of one split, shifted by its first row."""
    split = tl.program_id(0)
    c = tl.program_id(1) * BC + tl.arange(0, BC)
    inside = c < C
    first = split * per_split
    end = tl.minimum(first + per_split, rows)
    shift = tl.load(x + first.to(tl.int64) * C + c, mask=inside, other=0.0).to(tl.float32)
    total = tl.zeros((BM, BC), tl.float32)
    squares = tl.zeros((BM, BC), tl.float32)
    for start in range(first, end, BM):
        r = start + tl.arange(0, BM)
        ok = (r < end)[:, None] & inside[None, :]
        at = r.to(tl.int64)[:, None] * C + c[None, :]
        value = tl.load(x + at, mask=ok, other=0.0).to(tl.float32)
        d = tl.where(ok, value - shift[None, :], 0.0)
        total += d
        squares += d * d
    n = (end - first).to(tl.float32)
    s = tl.sum(total, 0)
    to = out + split * 3 * C + c
    tl.store(to, shift + s / n, mask=inside)
    tl.store(to + C, tl.maximum(tl.sum(squares, 0) - s * s / n, 0.0), mask=inside)
    tl.store(to + 2 * C, tl.zeros((BC,), tl.float32) + n, mask=inside)


@triton.jit(do_not_specialize=SIZES)
def fold_norm(
    parts, weight, bias, running_mean, running_var, out, splits, C, rows, momentum, eps,
    BP: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    """Merge partial statistics into mean, rstd, scale, shift; update the running statistics."""
    c = tl.program_id(0) * BC + tl.arange(0, BC)
    inside = c < C
    sums = tl.zeros((BP, BC), tl.float32)
    for start in range(0, splits, BP):
        p = start + tl.arange(0, BP)
        ok = (p < splits)[:, None] & inside[None, :]
        at = parts + p[:, None] * 3 * C + c[None, :]
        n = tl.load(at + 2 * C, mask=ok, other=0.0)
        sums += n * tl.load(at, mask=ok, other=0.0)
    mean = tl.sum(sums, 0) / rows
    squares = tl.zeros((BP, BC), tl.float32)
    for start in range(0, splits, BP):
        p = start + tl.arange(0, BP)
        ok = (p < splits)[:, None] & inside[None, :]
        at = parts + p[:, None] * 3 * C + c[None, :]
        n = tl.load(at + 2 * C, mask=ok, other=0.0)
        d = tl.load(at, mask=ok, other=0.0) - mean[None, :]
        squares += tl.load(at + C, mask=ok, other=0.0) + n * d * d
    variance = tl.sum(squares, 0) / rows
    rstd = 1.0 / tl.sqrt(variance + eps)
    scale = tl.load(weight + c, mask=inside, other=0.0) * rstd
    tl.store(out + c, mean, mask=inside)
    tl.store(out + C + c, rstd, mask=inside)
    tl.store(out + 2 * C + c, scale, mask=inside)
    shift = tl.load(bias + c, mask=inside, other=0.0) - mean * scale
    tl.store(out + 3 * C + c, shift, mask=inside)
    old_mean = tl.load(running_mean + c, mask=inside, other=0.0)
    tl.store(running_mean + c, old_mean + momentum * (mean - old_mean), mask=inside)
    unbiased = variance * (rows / tl.maximum(rows - 1.0, 1.0))
    old_var = tl.load(running_var + c, mask=inside, other=0.0)
    tl.store(running_var + c, old_var + momentum * (unbiased - old_var), mask=inside)


@triton.jit(do_not_specialize=SIZES)
def norm_backward_terms(
    sums, normals, weight, out, splits, C, rows, BP: tl.constexpr, BC: tl.constexpr
):
    """Merge the parts of Σ g and Σ g (x − mean) into a, b, c, dγ, dβ."""
    c = tl.program_id(0) * BC + tl.arange(0, BC)
    inside = c < C
    plain = tl.zeros((BP, BC), tl.float32)
    weighted = tl.zeros((BP, BC), tl.float32)
    for start in range(0, splits, BP):
        p = start + tl.arange(0, BP)
        ok = (p < splits)[:, None] & inside[None, :]
        at = sums + p[:, None] * 2 * C + c[None, :]
        plain += tl.load(at, mask=ok, other=0.0)
        weighted += tl.load(at + C, mask=ok, other=0.0)
    total = tl.sum(plain, 0)
    rstd = tl.load(normals + C + c, mask=inside, other=0.0)
    dweight = tl.sum(weighted, 0) * rstd
    a = tl.load(weight + c, mask=inside, other=0.0) * rstd
    tl.store(out + c, a, mask=inside)
    tl.store(out + C + c, -a * rstd * dweight / rows, mask=inside)
    tl.store(out + 2 * C + c, -a * total / rows, mask=inside)
    tl.store(out + 3 * C + c, dweight, mask=inside)
    tl.store(out + 4 * C + c, total, mask=inside)


@triton.jit
def affine(value, normals, C, c, inside):
    """Return scale · x + shift of a tile."""
    scale = tl.load(normals + 2 * C + c, mask=inside, other=0.0)
    shift = tl.load(normals + 3 * C + c, mask=inside, other=0.0)
    return value * scale[None, :] + shift[None, :]


@triton.jit(do_not_specialize=SIZES)
def norm_relu(x, normals, y, rows, C, BM: tl.constexpr, BC: tl.constexpr):
    """Apply batch norm and ReLU, last rows first: these are still in the cache."""
    r = (tl.num_programs(0) - 1 - tl.program_id(0)) * BM + tl.arange(0, BM)
    c = tl.program_id(1) * BC + tl.arange(0, BC)
    inside = c < C
    ok = (r < rows)[:, None] & inside[None, :]
    at = r.to(tl.int64)[:, None] * C + c[None, :]
    value = tl.load(x + at, mask=ok, other=0.0).to(tl.float32)
    z = affine(value, normals, C, c, inside)
    tl.store(y + at, tl.maximum(z, 0.0).to(y.dtype.element_ty), mask=ok)


@triton.jit(do_not_specialize=SIZES)
def norm_relu_sum(
    x, normals, y, out, rows, C, per_split, BM: tl.constexpr, BC: tl.constexpr
):  # fmt: skip
    """Apply batch norm and ReLU, last rows first; sum the columns of one split."""
    split = tl.num_programs(0) - 1 - tl.program_id(0)
    c = tl.program_id(1) * BC + tl.arange(0, BC)
    inside = c < C
    total = tl.zeros((BM, BC), tl.float32)
    first = split * per_split
    end = tl.minimum(first + per_split, rows)
    for start in range(first, end, BM):
        r = start + tl.arange(0, BM)
        ok = (r < end)[:, None] & inside[None, :]
        at = r.to(tl.int64)[:, None] * C + c[None, :]
        value = tl.load(x + at, mask=ok, other=0.0).to(tl.float32)
        z = tl.maximum(affine(value, normals, C, c, inside), 0.0).to(y.dtype.element_ty)
        tl.store(y + at, z, mask=ok)
        total += tl.where(ok, z.to(tl.float32), 0.0)
    tl.store(out + split * C + c, tl.sum(total, 0), mask=inside)


@triton.jit(do_not_specialize=SIZES)
def column_sums(x, out, rows, C, per_split, BM: tl.constexpr, BC: tl.constexpr):
    """Sum the columns of one split."""
    split = tl.program_id(0)
    c = tl.program_id(1) * BC + tl.arange(0, BC)
    inside = c < C
    total = tl.zeros((BM, BC), tl.float32)
    first = split * per_split
    end = tl.minimum(first + per_split, rows)
    for start in range(first, end, BM):
        r = start + tl.arange(0, BM)
        ok = (r < end)[:, None] & inside[None, :]
        at = r.to(tl.int64)[:, None] * C + c[None, :]
        total += tl.load(x + at, mask=ok, other=0.0).to(tl.float32)
    tl.store(out + split * C + c, tl.sum(total, 0), mask=inside)


@triton.jit(do_not_specialize=SIZES)
def norm_add_relu(
    x, normals, other, other_normals, y, bits, rows, C,
    SKIP: tl.constexpr, DUAL: tl.constexpr, BM: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    """Apply batch norm, add a skip or a second batch norm, apply ReLU; pack its mask into bits."""
    r = (tl.num_programs(0) - 1 - tl.program_id(0)) * BM + tl.arange(0, BM)
    c = tl.program_id(1) * BC + tl.arange(0, BC)
    inside = c < C
    ok = (r < rows)[:, None] & inside[None, :]
    at = r.to(tl.int64)[:, None] * C + c[None, :]
    value = tl.load(x + at, mask=ok, other=0.0).to(tl.float32)
    z = affine(value, normals, C, c, inside)
    if DUAL:
        value = tl.load(other + at, mask=ok, other=0.0).to(tl.float32)
        z += affine(value, other_normals, C, c, inside)
    if SKIP:
        z += tl.load(other + at, mask=ok, other=0.0).to(tl.float32)
    tl.store(y + at, tl.maximum(z, 0.0).to(y.dtype.element_ty), mask=ok)
    pack_relu_mask(z, bits, r, rows, C, tl.program_id(1) * BC, BM, BC)


@triton.jit
def pack_relu_mask(z, bits, r, rows, C, first_channel, BM: tl.constexpr, BC: tl.constexpr):
    """Store where ReLU passes, eight channels to a byte."""
    places = tl.arange(0, 8)[None, None, :]
    eight = tl.reshape((z > 0).to(tl.int32), (BM, BC // 8, 8)) << places
    c8 = first_channel // 8 + tl.arange(0, BC // 8)
    at8 = r.to(tl.int64)[:, None] * (C // 8) + c8[None, :]
    ok8 = (r < rows)[:, None] & (c8 < C // 8)[None, :]
    tl.store(bits + at8, tl.sum(eight, 2).to(tl.uint8), mask=ok8)


@triton.jit
def unpack_relu_mask(bits, r, rows, C, first_channel, BM: tl.constexpr, BC: tl.constexpr):
    """Load the ReLU mask of a tile as 0 and 1."""
    c8 = first_channel // 8 + tl.arange(0, BC // 8)
    at8 = r.to(tl.int64)[:, None] * (C // 8) + c8[None, :]
    ok8 = (r < rows)[:, None] & (c8 < C // 8)[None, :]
    packed = tl.load(bits + at8, mask=ok8, other=0).to(tl.int32)
    spread8 = tl.broadcast_to(packed[:, :, None], (BM, BC // 8, 8))
    places = tl.arange(0, 8)[None, None, :]
    return tl.reshape((spread8 >> places) & 1, (BM, BC))


@triton.jit
def load_skip_gradient(
    extra, r, end, c, inside, C, H, W, STRIDE: tl.constexpr, BM: tl.constexpr, BC: tl.constexpr
):
    """Load a tile of the skip's gradient. STRIDE 0: none; 2: it has the even pixels only."""
    gradient = tl.zeros((BM, BC), tl.float32)
    if STRIDE == 1:
        ok = (r < end)[:, None] & inside[None, :]
        at = r.to(tl.int64)[:, None] * C + c[None, :]
        gradient = tl.load(extra + at, mask=ok, other=0.0).to(tl.float32)
    if STRIDE == 2:
        n, h, w = r // (H * W), (r // W) % H, r % W
        even = (r < end) & (h % 2 == 0) & (w % 2 == 0)
        small = (n * ((H + 1) // 2) + h // 2) * ((W + 1) // 2) + w // 2
        at = small.to(tl.int64)[:, None] * C + c[None, :]
        ok = even[:, None] & inside[None, :]
        gradient = tl.load(extra + at, mask=ok, other=0.0).to(tl.float32)
    return gradient


@triton.jit(do_not_specialize=SIZES)
def norm_backward_sums(dy, x, normals, out, rows, C, per_split, BM: tl.constexpr, BC: tl.constexpr):
    """Compute Σ g and Σ g (x − mean) of one split; g is dy where ReLU passes."""
    split = tl.program_id(0)
    c = tl.program_id(1) * BC + tl.arange(0, BC)
    inside = c < C
    mean = tl.load(normals + c, mask=inside, other=0.0)
    scale = tl.load(normals + 2 * C + c, mask=inside, other=0.0)
    shift = tl.load(normals + 3 * C + c, mask=inside, other=0.0)
    plain = tl.zeros((BM, BC), tl.float32)
    weighted = tl.zeros((BM, BC), tl.float32)
    first = split * per_split
    end = tl.minimum(first + per_split, rows)
    for start in range(first, end, BM):
        r = start + tl.arange(0, BM)
        ok = (r < end)[:, None] & inside[None, :]
        at = r.to(tl.int64)[:, None] * C + c[None, :]
        value = tl.load(x + at, mask=ok, other=0.0).to(tl.float32)
        g = tl.load(dy + at, mask=ok, other=0.0).to(tl.float32)
        g = tl.where(value * scale[None, :] + shift[None, :] > 0, g, 0.0)
        plain += g
        weighted += g * (value - mean[None, :])
    to = out + split * 2 * C + c
    tl.store(to, tl.sum(plain, 0), mask=inside)
    tl.store(to + C, tl.sum(weighted, 0), mask=inside)


@triton.jit(do_not_specialize=SIZES)
def add_relu_backward(
    dy, extra, bits, g_out, out, rows, C, H, W, per_split,
    STRIDE: tl.constexpr, BM: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    """Store g = (dy + extra) where ReLU passes, and Σ g of one split."""
    split = tl.program_id(0)
    c = tl.program_id(1) * BC + tl.arange(0, BC)
    inside = c < C
    total = tl.zeros((BM, BC), tl.float32)
    first = split * per_split
    end = tl.minimum(first + per_split, rows)
    for start in range(first, end, BM):
        r = start + tl.arange(0, BM)
        ok = (r < end)[:, None] & inside[None, :]
        at = r.to(tl.int64)[:, None] * C + c[None, :]
        g = tl.load(dy + at, mask=ok, other=0.0).to(tl.float32)
        g += load_skip_gradient(extra, r, end, c, inside, C, H, W, STRIDE, BM, BC)
        g = g * unpack_relu_mask(bits, r, rows, C, tl.program_id(1) * BC, BM, BC)
        rounded = tl.where(ok, g, 0.0).to(g_out.dtype.element_ty)
        tl.store(g_out + at, rounded, mask=ok)
        total += rounded.to(tl.float32)
    tl.store(out + split * C + c, tl.sum(total, 0), mask=inside)


@triton.jit
def norm_input_gradient(g, value, normals, terms, C, c, inside):
    """Return a · g + b · (x − mean) + c of a tile."""
    mean = tl.load(normals + c, mask=inside, other=0.0)
    a = tl.load(terms + c, mask=inside, other=0.0)
    b = tl.load(terms + C + c, mask=inside, other=0.0)
    constant = tl.load(terms + 2 * C + c, mask=inside, other=0.0)
    return a[None, :] * g + b[None, :] * (value - mean[None, :]) + constant[None, :]


@triton.jit(do_not_specialize=SIZES)
def norm_backward(dy, x, normals, terms, dx, rows, C, BM: tl.constexpr, BC: tl.constexpr):
    """Compute the input gradient of batch norm and ReLU, last rows first."""
    r = (tl.num_programs(0) - 1 - tl.program_id(0)) * BM + tl.arange(0, BM)
    c = tl.program_id(1) * BC + tl.arange(0, BC)
    inside = c < C
    ok = (r < rows)[:, None] & inside[None, :]
    at = r.to(tl.int64)[:, None] * C + c[None, :]
    g = tl.load(dy + at, mask=ok, other=0.0).to(tl.float32)
    value = tl.load(x + at, mask=ok, other=0.0).to(tl.float32)
    g = tl.where(affine(value, normals, C, c, inside) > 0, g, 0.0)
    gradient = norm_input_gradient(g, value, normals, terms, C, c, inside)
    tl.store(dx + at, gradient.to(dx.dtype.element_ty), mask=ok)
