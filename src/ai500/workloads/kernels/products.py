"""Triton kernels of 1×1 convolutions with their batch norm (`ReferenceKernels.pointwise_norm`).

Matrix products with their epilogue fused: a program computes one tile, loaded and stored through
tensor descriptors (TMA), which read zeros and write nothing beyond a matrix's edge.
"""

# mypy: ignore-errors
# ruff: noqa: N803 - Triton's constants are upper case, as everywhere
from __future__ import annotations

import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

from ai500.workloads.kernels.rows import SIZES, affine, pack_relu_mask, unpack_relu_mask

__all__ = ["TensorDescriptor"]  # imported for `launch.tensor_descriptor`


@triton.jit(do_not_specialize=SIZES)
def pointwise_fold_norm(
    moments, weight, totals, gamma, beta, running_mean, running_var, out, covariance,
    rows, C, K, momentum, eps, BC: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """Compute mean, rstd, scale, shift of y Wᵀ, and W Cov(y), from W yᵀy (`moments`) and Σ y."""
    c, k = tl.program_id(0) * BC + tl.arange(0, BC), tl.arange(0, BK)
    inside, ok = c < C, (c < C)[:, None] & (k < K)[None, :]
    at = c[:, None] * K + k[None, :]
    w = tl.load(weight + at, mask=ok, other=0.0).to(tl.float32)
    mean_y = tl.load(totals + k, mask=k < K, other=0.0) / rows
    mean = tl.sum(w * mean_y[None, :], 1)
    t = tl.load(moments + at, mask=ok, other=0.0) / rows - mean[:, None] * mean_y[None, :]
    tl.store(covariance + at, t, mask=ok)
    variance = tl.maximum(tl.sum(t * w, 1), 0.0)
    rstd = 1.0 / tl.sqrt(variance + eps)
    scale = tl.load(gamma + c, mask=inside, other=0.0) * rstd
    tl.store(out + c, mean, mask=inside)
    tl.store(out + C + c, rstd, mask=inside)
    tl.store(out + 2 * C + c, scale, mask=inside)
    shift = tl.load(beta + c, mask=inside, other=0.0) - mean * scale
    tl.store(out + 3 * C + c, shift, mask=inside)
    old_mean = tl.load(running_mean + c, mask=inside, other=0.0)
    tl.store(running_mean + c, old_mean + momentum * (mean - old_mean), mask=inside)
    unbiased = variance * (rows / tl.maximum(rows - 1.0, 1.0))
    old_var = tl.load(running_var + c, mask=inside, other=0.0)
    tl.store(running_var + c, old_var + momentum * (unbiased - old_var), mask=inside)


@triton.jit(do_not_specialize=SIZES)
def pointwise_backward_terms(
    product, weight, covariance, totals, g_totals, normals, gamma,
    dweight, a_weight, b_weight, out, constant, rows, boost, C, K,
    BC: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """Compute the small terms of `ReferenceKernels.pointwise_backward`: dW, a W, dγ, dβ.

    b W and c − b · mean are stored multiplied by `boost`.
    """
    c, k = tl.program_id(0) * BC + tl.arange(0, BC), tl.arange(0, BK)
    inside, ok = c < C, (c < C)[:, None] & (k < K)[None, :]
    at = c[:, None] * K + k[None, :]
    w = tl.load(weight + at, mask=ok, other=0.0).to(tl.float32)
    mean_y = tl.load(totals + k, mask=k < K, other=0.0) / rows
    total = tl.load(g_totals + c, mask=inside, other=0.0)
    centred = tl.load(product + at, mask=ok, other=0.0) - total[:, None] * mean_y[None, :]
    rstd = tl.load(normals + C + c, mask=inside, other=0.0)
    dgamma = tl.sum(centred * w, 1) * rstd
    a = tl.load(gamma + c, mask=inside, other=0.0) * rstd
    b = -a * rstd * dgamma / rows
    t = tl.load(covariance + at, mask=ok, other=0.0)
    tl.store(dweight + at, a[:, None] * centred + (b * rows)[:, None] * t, mask=ok)
    tl.store(a_weight + at, (a[:, None] * w).to(a_weight.dtype.element_ty), mask=ok)
    tl.store(b_weight + at, (boost * b[:, None] * w).to(b_weight.dtype.element_ty), mask=ok)
    tl.store(out + c, dgamma, mask=inside)
    mean = tl.load(normals + c, mask=inside, other=0.0)
    rest = boost * (-a * total / rows - b * mean)
    tl.store(constant + c, rest.to(constant.dtype.element_ty), mask=inside)


@triton.jit(do_not_specialize=SIZES)
def pointwise_add_relu(
    y, weight, skip, out, bits, normals, rows, C, K,
    SKIP: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """Compute relu(scale · y Wᵀ + shift + skip), and pack its mask."""
    column, row = tl.program_id(0) * BN, tl.program_id(1) * BM
    acc = tl.zeros((BM, BN), tl.float32)
    for start in range(0, K, BK):
        acc = tl.dot(y.load([row, start]), weight.load([column, start]).T, acc)
    c = column + tl.arange(0, BN)
    z = affine(acc, normals, C, c, c < C)
    if SKIP:
        z += skip.load([row, column]).to(tl.float32)
    out.store([row, column], tl.maximum(z, 0.0).to(out.dtype))
    pack_relu_mask(z, bits, row + tl.arange(0, BM), rows, C, column, BM, BN)


@triton.jit(do_not_specialize=SIZES)
def pointwise_add_relu_backward(
    dx, weight, extra, bits, g_out, out, rows, C, K,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """Compute g = (dx W + extra) where ReLU passes, and the column sums of a tile."""
    column, row = tl.program_id(0) * BN, tl.program_id(1) * BM
    acc = tl.zeros((BM, BN), tl.float32)
    for start in range(0, K, BK):
        acc = tl.dot(dx.load([row, start]), weight.load([start, column]), acc)
    r = row + tl.arange(0, BM)
    g = (acc + extra.load([row, column]).to(tl.float32)) * unpack_relu_mask(
        bits, r, rows, C, column, BM, BN
    )
    rounded = g.to(g_out.dtype)
    g_out.store([row, column], rounded)
    c = column + tl.arange(0, BN)
    total = tl.sum(tl.where((r < rows)[:, None], rounded.to(tl.float32), 0.0), 0)
    tl.store(out + tl.program_id(1).to(tl.int64) * C + c, total, mask=c < C)
