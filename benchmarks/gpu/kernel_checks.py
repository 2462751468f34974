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

from ai500.workloads.kernels.fused import TILES, Choice, Fused
from ai500.workloads.kernels.launch import Tile
from ai500.workloads.kernels.plain import Extra, Normal, Other, Plain, Size, Slopes, pooled

WORKING = torch.bfloat16
if os.environ.get("TRITON_INTERPRET") == "1":
    WORKING = torch.float16  # the interpreter of Triton 3.6 multiplies BF16 matrices as integers
TOLERANCE = {torch.bfloat16: 6e-3, torch.float16: 1e-3, torch.float32: 3e-5, torch.uint8: 0.0}
"""‖found − reference‖ / ‖reference‖, by the format of what was found."""
SMALL_TILES = (Tile(16, 16, 16, 4, 1), Tile(32, 16, 32, 4, 1))


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
    """Relative, in the norm; NaN where something was not written."""
    distance = (found.double() - reference.double()).norm()
    return float(distance / reference.double().norm().clamp_min(1e-30))


class Case:
    """Random inputs of one shape, in the working precision and the same numbers in float64."""

    def __init__(self, size: Size, channels: int, inputs: int, device: torch.device) -> None:
        self.size, self.channels, self.device = size, channels, device
        self.rows = size.rows
        self.x, self.other, self.skip, self.dy = (self.random(self.rows, channels) for _ in "abcd")
        self.x += 3.0  # a mean far from zero: sums of squares that cancel would show
        self.a = self.random(self.rows, inputs)
        self.weight = self.random(channels, inputs, 1, 1)
        self.dx = self.random(self.rows, inputs)
        self.back = self.random(inputs, channels, 1, 1)
        self.norm = nn.BatchNorm2d(channels).to(device)
        nn.init.uniform_(self.norm.weight, 0.5, 1.5)
        nn.init.normal_(self.norm.bias)

    def random(self, *shape: int) -> Tensor:
        return torch.randn(*shape, device=self.device).to(WORKING)

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
    if isinstance(value, Normal | Slopes | Other):
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
    normal, other = case.normal(case.x), Other(case.other, case.normal(case.other))

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
    for skip, second in ((None, None), (case.skip, None), (None, other)):
        y, passes = plain.join(*map(_doubled, (case.x, normal, skip, second)))
        yield (
            "join",
            lambda skip=skip, second=second: fused.join(case.x, normal, skip, second),
            (y, _bits(passes)),
        )
        bits, some = _bits(passes), (case.x, normal, second)
        yield _join_check("join_reduce", plain, fused, (case.dy, *some), passes, bits)
        theirs = None if second is None else slopes
        yield both("joined_spread", case.dy, *some[:2], slopes, second, theirs)
        small = Size(size.images, (size.height + 1) // 2, (size.width + 1) // 2)
        even = case.random(small.rows, case.channels)
        for extra in (Extra(case.skip, 1), Extra(even, 2)):
            before = (case.dx, case.back, extra, size, *some)
            yield _join_check("join_gradient", plain, fused, before, passes, bits)
    yield _summed("product", plain, fused, (case.a, case.weight, size), case)
    yield _summed(
        "gradient_product", plain, fused, (case.dx, case.back, case.x, normal, size), case
    )
    y, taps = plain.pool(case.x, normal, size)  # float64 has no ties where BF16 has many
    yield "pool", lambda: fused.pool(case.x, normal, size), (y, taps)
    dy = case.random(pooled(size).rows, case.channels)
    yield both("pool_spread", dy, taps, case.x, normal, slopes, size)
    _, run, reference = both("pool_reduce", dy, taps, case.x, normal, size)
    yield "pool_reduce", lambda: run().sum(0), reference.sum(0)
    images = torch.randn(size.images, 3, size.height, size.width, device=case.device)
    yield (
        "space_to_depth",
        lambda: fused.space_to_depth(images, WORKING)[0],
        plain.space_to_depth(images.double(), torch.float64)[0],
    )


def _join_check(
    name: str, plain: Plain, fused: Fused, arguments: tuple[Any, ...], passes: Tensor, bits: Tensor
) -> tuple[str, Callable[[], Any], Any]:
    """The fused side has the decisions as bits, and sums in parts."""

    def total(found: tuple[Tensor, Tensor, Tensor | None]) -> tuple[Tensor, ...]:
        return found[0], *(one.sum(0) for one in found[1:] if one is not None)

    reference = total(getattr(plain, name)(*map(_doubled, arguments), passes))
    return name, lambda: total(getattr(fused, name)(*arguments, bits)), reference


def _summed(
    name: str, plain: Plain, fused: Fused, arguments: tuple[Any, ...], case: Case
) -> tuple[str, Callable[[], Any], Any]:
    """Parts joined before they are compared: statistics of the product, or sums of the gradient."""

    def total(kernels: Plain, found: tuple[Tensor, Tensor], norm: nn.BatchNorm2d) -> Any:
        if name == "product":
            return found[0], *kernels.normal(found[1], norm, case.rows)[:2]
        return torch.where(passes, found[0], 0), found[1].sum(0)

    doubled = [_doubled(one) for one in arguments]
    if name == "gradient_product":
        passes = doubled[2] * doubled[3].scale + doubled[3].shift > 0
    reference = total(plain, getattr(plain, name)(*doubled), case.reference_norm())
    return name, lambda: total(fused, getattr(fused, name)(*arguments), case.norm), reference


def cases(device: torch.device) -> Iterator[tuple[Case, tuple[Choice, ...]]]:
    """Shapes, and the ways of a 1×1 convolution tried with each."""
    if device.type == "cpu":
        yield Case(Size(2, 5, 6), 24, 40, device), ("mm", *SMALL_TILES)
        yield Case(Size(1, 7, 3), 8, 16, device), SMALL_TILES
        return
    yield Case(Size(2, 5, 6), 24, 40, device), ("mm", TILES[3])
    yield Case(Size(1, 7, 3), 8, 16, device), ("conv",)
    yield Case(Size(3, 29, 27), 64, 256, device), ("conv", TILES[0])
    yield Case(Size(41, 14, 14), 512, 64, device), TILES
    yield Case(Size(2, 9, 7), 264, 72, device), (TILES[4],)


def failures(device: torch.device) -> Iterator[str]:
    """What differs, in words; nothing if all is well."""
    worst: dict[str, float] = {}
    for case, ways in cases(device):
        for way in ways:
            for name, run, reference in checks(case, Fused(products=(way,), gradients=(way,))):
                where = f"{name} {tuple(case.size)}×{case.channels}, {way}"
                poison(device)
                first, second = run(), run()
                yield from _compared(where, name, first, second, reference, worst)
    print("largest relative errors:")
    for name, error in worst.items():
        print(f"  {name:20s} {error:.1e}")


def _compared(
    where: str, name: str, first: Any, second: Any, reference: Any, worst: dict[str, float]
) -> Iterator[str]:
    again = [one for one, _ in _pairs(second, reference)]
    for (found, right), same in zip(_pairs(first, reference), again, strict=True):
        error = difference(found, right)
        worst[name] = max(worst.get(name, 0.0), error)
        limit = TOLERANCE[found.dtype]
        if "product" in name or name == "join_gradient":
            limit = TOLERANCE[WORKING]  # sums of what was rounded
        if found.dtype == torch.uint8:
            # A number within rounding of zero, or of another, may fall on either side.
            limit = 0.1 if name == "pool" else 0.02
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
