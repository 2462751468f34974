"""One-pass forms of what surrounds 3-D convolutions on a GPU, where Triton runs.

At 4×128³ the convolutions take less time than the passes over memory around them: torch reads and
writes a batch eleven times to mirror it, and a block's output seven times for bias, activation,
pooling and their gradients. The kernels do each in one pass. Both forms give the same numbers: a
maximum commutes with adding a constant and with an increasing function, also in rounded arithmetic.
"""

from __future__ import annotations

import sys
from functools import cache
from typing import Any

import torch
from torch import Tensor

BLOCK = 1024
WARPS = 4
# The second dimension of a CUDA grid has no more blocks.
MAX_PLANES = 65_535


def supports_mirroring(volumes: Tensor) -> bool:
    """Return whether `mirrored` takes these stored volumes here."""
    samples, channels, *edges = volumes.shape
    cubic = len(set(edges)) == 1 and samples * edges[0] <= MAX_PLANES
    power_of_two = channels & (channels - 1) == 0
    fits = volumes.is_contiguous() and cubic and power_of_two
    return volumes.is_cuda and fits and kernels_work(volumes.device)


@cache
def kernels_work(device: torch.device) -> bool:
    """Run each kernel once on a tiny volume and check its result.

    Triton may be missing, needs a compiler, and changes from version to version.
    """
    try:
        stored = torch.arange(8, dtype=torch.int16, device=device).view(1, 1, 2, 2, 2)
        volumes = mirrored(stored, torch.tensor([[0.9, 0.9, 0.9]], device=device), scale=2)
        leaf = volumes.detach().requires_grad_()
        pooled = pool(leaf, torch.full((1,), -4.0, device=device), slope=0.5)
        pooled.sum().backward()
        expected = [3.5, 3, 2.5, 2, 1.5, 1, 0.5, 0]
        right = volumes.flatten().tolist() == expected and pooled.flatten().tolist() == [-0.25]
        gradient = leaf.grad
        return right and gradient is not None and gradient.flatten().tolist() == [0.5, *[0] * 7]
    except Exception as error:  # any failure: the ordinary path computes the same
        print(
            f"volume kernels unavailable, using torch: {type(error).__name__}: {error}",
            file=sys.stderr,
        )
        return False


def mirrored(volumes: Tensor, draws: Tensor, *, scale: float) -> Tensor:
    """Convert integers N×C×E×E×E to floats, divided by `scale`, with channels last in memory.

    A volume is mirrored along each edge whose draw is not below 0.5.
    """
    from ai500.workloads.kernels.volumes import mirror_and_scale

    samples, channels, edge, *_ = volumes.shape
    out = torch.empty(samples, edge, edge, edge, channels, device=volumes.device)
    grid = (-(-edge * edge // BLOCK), samples * edge)
    with torch.cuda.device(volumes.device):
        mirror_and_scale[grid](
            volumes, draws.contiguous(), out, edge, 1 / scale, channels=channels, block=BLOCK
        )
    return out.permute(0, 4, 1, 2, 3)


def pool(x: Tensor, bias: Tensor, *, slope: float) -> Tensor:
    """Compute `leaky_relu(max_pool3d(x, 2) + bias)` of volumes with even edges."""
    out: Tensor = _Pool.apply(x, bias, slope)
    return out


class _Pool(torch.autograd.Function):
    """The fused pooling; it keeps a byte per output for the backward pass."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, bias: Tensor, slope: float) -> Tensor:
        from ai500.workloads.kernels.volumes import pool_forward

        x = x.contiguous(memory_format=torch.channels_last_3d)
        samples, channels, *edges = x.shape
        halves = [edge // 2 for edge in edges]
        out = _empty((samples, channels, *halves), like=x)
        code = _empty((samples, channels, *halves), like=x, dtype=torch.int8)
        with torch.cuda.device(x.device):
            pool_forward[(-(-out.numel() // BLOCK),)](
                x, bias, out, code, out.numel(), *halves[1:], slope,
                channels=channels, block=BLOCK, num_warps=WARPS,
            )  # fmt: skip
        ctx.save_for_backward(code, bias)
        ctx.slope, ctx.shape, ctx.dtype = slope, x.shape, x.dtype
        return out

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, None]:
        from ai500.workloads.kernels.volumes import pool_backward

        code, bias = ctx.saved_tensors
        gradient = gradients[0].contiguous(memory_format=torch.channels_last_3d)
        x_gradient = _empty(ctx.shape, like=gradient, dtype=ctx.dtype)
        share = torch.empty_like(gradient)
        with torch.cuda.device(gradient.device):
            pool_backward[(-(-gradient.numel() // BLOCK),)](
                gradient, code, x_gradient, share, gradient.numel(), *gradient.shape[3:],
                ctx.slope, channels=gradient.shape[1], block=BLOCK, num_warps=WARPS,
            )  # fmt: skip
        bias_gradient = share.sum((0, 2, 3, 4), dtype=torch.float32).to(bias.dtype)
        return x_gradient, bias_gradient, None


def _empty(shape: tuple[int, ...], *, like: Tensor, dtype: torch.dtype | None = None) -> Tensor:
    return torch.empty(
        shape, dtype=dtype or like.dtype, device=like.device, memory_format=torch.channels_last_3d
    )
