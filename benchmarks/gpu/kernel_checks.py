"""Every kernel against `Plain` in float64: fresh random inputs, odd shapes, poisoned memory.

python -m benchmarks.gpu.kernel_checks cuda
TRITON_INTERPRET=1 python -m benchmarks.gpu.kernel_checks cpu
"""

from __future__ import annotations

import copy
import os
import sys
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from ai500.workloads.kernels.fused import PRODUCT_TILE, Fused
from ai500.workloads.kernels.launch import Tile
from ai500.workloads.kernels.plain import (
    Extra,
    Gradients,
    Linear,
    Normal,
    Plain,
    Size,
    Slopes,
    pooled,
)

WORKING = {"cuda": (torch.bfloat16, torch.float16), "cpu": (torch.float16,)}
"""The interpreter of Triton 3.6 multiplies BF16 matrices as integers."""
TOLERANCE = {torch.bfloat16: 6e-3, torch.float16: 1e-3, torch.float32: 3e-5, torch.uint8: 0.0}
"""‖found − reference‖ / ‖reference‖, by the format of what was found."""
SMALL_TILES = (Tile(16, 16, 16, 4, 1), Tile(32, 16, 32, 4, 1))
Shape = tuple[tuple[int, int, int], int, int, tuple[Tile | None, ...]]
SHAPES: dict[str, tuple[Shape, ...]] = {
    "cpu": (
        ((2, 5, 6), 24, 40, (None, *SMALL_TILES)),
        ((1, 7, 3), 8, 16, SMALL_TILES),
        ((2, 72, 64), 24, 8, (None,)),
    ),
    "cuda": (
        ((2, 5, 6), 24, 40, (None, PRODUCT_TILE)),
        ((1, 7, 3), 8, 16, (None,)),
        ((3, 29, 27), 64, 256, (None, PRODUCT_TILE)),
        ((41, 14, 14), 512, 64, (None, PRODUCT_TILE)),
        ((2, 9, 7), 264, 72, (PRODUCT_TILE,)),
    ),
}
"""Images × height × width, outputs, inputs, and the ways of a 1×1 convolution tried with each."""


def poison(device: torch.device) -> None:
    """Memory that the allocator hands out next holds NaN: what is not written is found out."""
    if device.type == "cuda":
        blocks = [
            torch.full((size,), float("nan"), device=device)
            for size in (64, 1024, 2**14, 2**18, 2**22)
            for _ in range(8)
        ]
        del blocks


def difference(found: Tensor, reference: Tensor) -> float:
    """Relative, in the norm; NaN where something was not written. Of decisions: the share of bits
    that differ, but for two."""
    if found.dtype == torch.uint8 and found.shape == reference.shape:
        wrong = sum(int(((found ^ reference.byte()) >> bit & 1).sum()) for bit in range(8))
        return max(0, wrong - 2) / (8 * found.numel())
    distance = (found.double() - reference.double()).norm()
    return float(distance / reference.double().norm().clamp_min(1e-30))


class Case:
    """Random inputs of one shape, in the working precision and the same numbers in float64."""

    def __init__(
        self, size: Size, channels: int, inputs: int, device: torch.device, working: torch.dtype
    ) -> None:
        self.size, self.channels, self.device, self.working = size, channels, device, working
        self.rows = size.rows
        self.x, self.skip, self.dy = (self.random(self.rows, channels) for _ in "abc")
        self.x += 3.0  # a mean far from zero: sums of squares that cancel would show
        self.a = (self.random(self.rows, inputs) + 0.5).relu()
        self.weight = self.random(channels, inputs, 1, 1)
        self.dx = self.random(self.rows, inputs)
        self.back = self.random(inputs, channels, 1, 1)
        self.norm = nn.BatchNorm2d(channels).to(device)
        nn.init.uniform_(self.norm.weight, 0.5, 1.5)
        nn.init.normal_(self.norm.bias)

    def random(self, *shape: int) -> Tensor:
        return torch.randn(*shape, device=self.device).to(self.working)

    def reference_norm(self) -> nn.BatchNorm2d:
        norm = nn.BatchNorm2d(self.channels).to(self.device).double()
        norm.load_state_dict(self.norm.state_dict())
        return norm

    def normal(self, x: Tensor) -> Normal:
        """Of x, in float64 and rounded to FP32: both sides get the same numbers."""
        norm = self.reference_norm()
        exact = Plain().normal(Plain().statistics(x.double()), norm, self.rows)
        return Normal(*torch.stack(list(exact)).float().unbind(0))


def _doubled(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.double() if value.is_floating_point() else value
    if isinstance(value, Normal | Slopes | Linear):
        return type(value)(*map(_doubled, value))
    if isinstance(value, Extra):
        return Extra(value.gradient.double(), value.stride)
    return value


def _pairs(found: Any, reference: Any) -> Iterator[tuple[Tensor, Tensor]]:
    if isinstance(found, Tensor):
        yield found, reference
    elif found is not None:
        for one, other in zip(found, reference, strict=True):
            yield from _pairs(one, other)


def _bits(passes: Tensor) -> Tensor:
    places = torch.arange(8, device=passes.device)
    eight = passes.view(len(passes), -1, 8).to(torch.int32) << places
    return eight.sum(2).to(torch.uint8)


def checks(case: Case, fused: Fused) -> Iterator[tuple[str, Callable[[], Any], Any]]:
    """Name, what to run, and the reference's result in float64."""
    plain, size = Plain(), case.size
    normal = case.normal(case.x)

    def both(name: str, *arguments: Any) -> tuple[str, Callable[[], Any], Any]:
        reference = getattr(plain, name)(*map(_doubled, arguments))
        return name, lambda: getattr(fused, name)(*arguments), reference

    def joined_parts() -> Any:
        norm = copy.deepcopy(case.norm)
        made = fused.normal(fused.statistics(case.x), norm, case.rows)
        return *made[:3], norm.running_mean, norm.running_var

    twin = case.reference_norm()
    exact = plain.normal(plain.statistics(case.x.double()), twin, case.rows)
    yield "normal", joined_parts, (*exact[:3], twin.running_mean, twin.running_var)
    yield both("apply", case.x, normal)
    sums = plain.reduce(case.dy.double(), *map(_doubled, (case.x, normal)))
    exact_slopes = plain.slopes(sums, _doubled(normal), case.norm.weight.double(), case.rows)
    slopes = Slopes(*torch.stack(list(exact_slopes)).float().unbind(0))
    yield both("spread", case.dy, case.x, normal, slopes)
    yield (
        "reduce and slopes",
        lambda: fused.slopes(
            fused.reduce(case.dy, case.x, normal), normal, case.norm.weight, case.rows
        ),
        exact_slopes,
    )
    yield from _linear_checks(case, fused)
    y, taps, chosen = plain.pool(case.x, normal, size)  # float64 has no ties, BF16 has many
    yield "pool", lambda: fused.pool(case.x, normal, size), (y, taps, chosen)
    dy = case.random(pooled(size).rows, case.channels)
    yield both("pool_spread", dy, taps, case.x, normal, slopes, size)
    images = torch.randn(size.images, 3, size.height, size.width, device=case.device)
    yield (
        "space_to_depth",
        lambda: fused.space_to_depth(images, case.working)[0],
        plain.space_to_depth(images.double(), torch.float64)[0],
    )


def _linear_checks(case: Case, fused: Fused) -> Iterator[tuple[str, Callable[[], Any], Any]]:
    """1×1 convolutions with their batch norm, joins and what flows back into them."""
    plain, size = Plain(), case.size

    def linear(kernels: Plain, norm: nn.BatchNorm2d, working: torch.dtype) -> Linear:
        y = case.a.to(working)
        return kernels.linear(y, kernels.totals(y), case.weight.to(working), norm)

    def told(found: Linear, norm: nn.BatchNorm2d) -> Any:
        return *found.normal[:3], found.covariance, norm.running_mean, norm.running_var

    twin, norm = case.reference_norm(), copy.deepcopy(case.norm)
    exact = linear(plain, twin, torch.float64)
    yield (
        "linear",
        lambda: told(linear(fused, norm := copy.deepcopy(case.norm), case.working), norm),
        told(exact, twin),
    )
    made = linear(fused, norm, case.working)
    again = made._replace(normal=Normal(*torch.stack([*exact.normal]).float().unbind(0)))
    for skip, other in ((None, None), (case.skip, None), (None, again)):
        y, passes = plain.linear_join(*map(_doubled, (again, skip, other)))
        bits = _bits(passes)
        yield (
            "linear_join",
            lambda skip=skip, other=other: fused.linear_join(again, skip, other),
            (y, bits),
        )
    g, totals = plain.join_masked(case.dy.double(), passes)
    yield "join_masked", lambda: fused.join_masked(case.dy, bits), (g, totals)
    small = Size(size.images, (size.height + 1) // 2, (size.width + 1) // 2)
    even = case.random(small.rows, case.channels)
    for extra in (Extra(case.skip, 1), Extra(even, 2)):
        before = (case.dx, case.back, extra, size)
        yield (
            "join_gradient",
            lambda before=before: fused.join_gradient(*before, bits),
            plain.join_gradient(*map(_doubled, before), passes),
        )
    yield (
        "linear_backward",
        lambda: fused.linear_backward(g.to(case.working), totals.float(), again, case.norm),
        Gradients(*plain.linear_backward(g, totals, _doubled(again), case.reference_norm())),
    )
    if case.rows > 1000:
        yield _means_check(case, fused, g, again)
    y, parts = plain.apply_summed(*map(_doubled, (case.x, case.normal(case.x))))
    yield "apply_summed", lambda: fused.apply_summed(case.x, case.normal(case.x)), (y, parts)


def _means_check(
    case: Case, fused: Fused, g: Tensor, linear: Linear
) -> tuple[str, Callable[[], Tensor], Tensor]:
    """Errors that single elements hide and sums over the rows show, for gradients as small as they
    are under a loss scale: batch norm's backward pass subtracts means, which FP16 may not hold."""
    small = (g * 2.0**-10).to(case.working)
    totals = small.double().sum(0)
    exact = (
        Plain().linear_backward(small.double(), totals, _doubled(linear), case.reference_norm()).y
    )
    known = torch.cat([torch.ones_like(case.a[:, :1]), case.a], 1).double()
    unit = known.norm() / case.rows**0.5 * exact.norm()

    def off() -> Tensor:
        found = fused.linear_backward(small, totals.float(), linear, case.norm).y
        return 1 + ((known.t() @ (found.double() - exact)).norm() / unit).float()

    return "backward's means", off, torch.ones((), device=case.device)


def cases(device: torch.device) -> Iterator[tuple[Case, tuple[Tile | None, ...]]]:
    """Shapes, and the ways of a 1×1 convolution tried with each."""
    for working in WORKING[device.type]:
        for size, channels, inputs, ways in SHAPES[device.type]:
            yield Case(Size(*size), channels, inputs, device, working), ways


def failures(device: torch.device) -> Iterator[str]:
    """What differs, in words; nothing if all is well."""
    worst: dict[tuple[str, torch.dtype], float] = {}
    for case, ways in cases(device):
        for way in ways:
            for name, run, reference in checks(case, Fused(way, 512, 512)):
                where = f"{name} {tuple(case.size)}×{case.channels} {case.working}, {way}"
                poison(device)
                first, second = run(), run()
                results = (first, second, reference)
                yield from _compared(where, name, results, case.working, worst)
    print("largest relative errors:")
    for (name, working), error in worst.items():
        print(f"  {name:20s} {str(working).removeprefix('torch.'):9s} {error:.1e}")


def _compared(
    where: str,
    name: str,
    results: tuple[Any, ...],
    working: torch.dtype,
    worst: dict[tuple[str, torch.dtype], float],
) -> Iterator[str]:
    first, second, reference = results
    again = [one for one, _ in _pairs(second, reference)]
    for (found, right), same in zip(_pairs(first, reference), again, strict=True):
        error = difference(found, right)
        worst[name, working] = max(worst.get((name, working), 0.0), error)
        limit = TOLERANCE[found.dtype]
        if name in ("join_gradient", "linear_backward", "backward's means", "apply_summed"):
            limit = TOLERANCE[working]  # sums of what was rounded
        if name == "backward's means" and working is torch.float16:
            limit *= 2  # gradients of 2⁻¹⁰, not far from its least number
        if name == "linear":
            limit = 3e-4  # a difference of second moments
        if found.dtype == torch.uint8:
            # A number within rounding of zero, or of another, may fall on either side.
            limit = 0.01
        if not error <= limit:
            yield f"{where}: off by {error:.2e}"
        if not torch.equal(found, same):
            yield f"{where}: not the same twice"


if __name__ == "__main__":
    os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")  # precision/modes.py says why
    torch.manual_seed(int.from_bytes(os.urandom(4), "little"))
    found = list(failures(torch.device(sys.argv[1])))
    print("\n".join(found) if found else "all kernels agree")
    sys.exit(bool(found))
