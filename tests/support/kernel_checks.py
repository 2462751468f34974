"""Compare every kernel with float64: random inputs, odd shapes, poisoned memory.

python -m tests.support.kernel_checks cuda
TRITON_INTERPRET=1 python -m tests.support.kernel_checks cpu
"""

from __future__ import annotations

import copy
import os
import sys
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from ai500.workloads.kernels.fused import PRODUCT_TILE, FusedKernels
from ai500.workloads.kernels.launch import Tile
from ai500.workloads.kernels.reference import (
    FoldedNorm,
    Gradients,
    NormBackward,
    PointwiseConv,
    ReferenceKernels,
    Size,
    SkipGradient,
    pooled_size,
)

# The interpreter of Triton 3.6 multiplies BF16 matrices as integers.
COMPUTE_DTYPES = {"cuda": (torch.bfloat16, torch.float16), "cpu": (torch.float16,)}
# ‖result − reference‖ / ‖reference‖, by the type of the result.
TOLERANCE = {torch.bfloat16: 6e-3, torch.float16: 1e-3, torch.float32: 3e-5, torch.uint8: 0.0}
SMALL_TILES = (Tile(16, 16, 16, 4, 1), Tile(32, 16, 32, 4, 1))
Shape = tuple[tuple[int, int, int], int, int, tuple[Tile | None, ...]]
SUMS_OF_ROUNDED = (
    "pointwise_add_relu_backward",
    "pointwise_backward",
    "backward's means",
    "norm_relu_sum",
)
# Images × height × width, outputs, inputs, and the tiles of a 1×1 convolution tried with each.
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


def poison(device: torch.device) -> None:
    """Fill the memory that the allocator hands out next with NaN, to expose unwritten results."""
    if device.type == "cuda":
        blocks = [
            torch.full((size,), float("nan"), device=device)
            for size in (64, 1024, 2**14, 2**18, 2**22)
            for _ in range(8)
        ]
        del blocks


def difference(result: Tensor, reference: Tensor) -> float:
    """Return the relative difference in the norm; NaN where a value was not written.

    For packed masks, the fraction of bits that differ, less two.
    """
    if result.dtype == torch.uint8 and result.shape == reference.shape:
        wrong = sum(int(((result ^ reference.byte()) >> bit & 1).sum()) for bit in range(8))
        return max(0, wrong - 2) / (8 * result.numel())
    distance = (result.double() - reference.double()).norm()
    return float(distance / reference.double().norm().clamp_min(1e-30))


class Case:
    """Random inputs of one shape in the compute precision, and the same numbers in float64."""

    def __init__(
        self,
        size: Size,
        channels: int,
        inputs: int,
        device: torch.device,
        dtype: torch.dtype,
    ) -> None:
        self.size, self.channels, self.device, self.dtype = (
            size,
            channels,
            device,
            dtype,
        )
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
        return torch.randn(*shape, device=self.device).to(self.dtype)

    def reference_norm(self) -> nn.BatchNorm2d:
        norm = nn.BatchNorm2d(self.channels).to(self.device).double()
        norm.load_state_dict(self.norm.state_dict())
        return norm

    def folded(self, x: Tensor) -> FoldedNorm:
        """Fold the batch norm of x in float64, rounded to FP32: both sides get the same numbers."""
        norm = self.reference_norm()
        exact = ReferenceKernels().fold_norm(
            ReferenceKernels().partial_statistics(x.double()), norm, self.rows
        )
        return FoldedNorm(*torch.stack(list(exact)).float().unbind(0))


def _doubled(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.double() if value.is_floating_point() else value
    if isinstance(value, FoldedNorm | NormBackward | PointwiseConv):
        return type(value)(*map(_doubled, value))
    if isinstance(value, SkipGradient):
        return SkipGradient(value.gradient.double(), value.stride)
    return value


def _pairs(result: Any, reference: Any) -> Iterator[tuple[Tensor, Tensor]]:
    if isinstance(result, Tensor):
        yield result, reference
    elif result is not None:
        for part, reference_part in zip(result, reference, strict=True):
            yield from _pairs(part, reference_part)


def _bits(mask: Tensor) -> Tensor:
    places = torch.arange(8, device=mask.device)
    eight = mask.view(len(mask), -1, 8).to(torch.int32) << places
    return eight.sum(2).to(torch.uint8)


def checks(case: Case, fused: FusedKernels) -> Iterator[tuple[str, Callable[[], Any], Any]]:
    """Yield name, call and the reference's result in float64 of every kernel."""
    reference, size = ReferenceKernels(), case.size
    folded = case.folded(case.x)

    def both(name: str, *arguments: Any) -> tuple[str, Callable[[], Any], Any]:
        expected = getattr(reference, name)(*map(_doubled, arguments))
        return name, lambda: getattr(fused, name)(*arguments), expected

    def merged_parts() -> Any:
        norm = copy.deepcopy(case.norm)
        norm_result = fused.fold_norm(fused.partial_statistics(case.x), norm, case.rows)
        return *norm_result[:3], norm.running_mean, norm.running_var

    twin = case.reference_norm()
    exact = reference.fold_norm(reference.partial_statistics(case.x.double()), twin, case.rows)
    yield "fold_norm", merged_parts, (*exact[:3], twin.running_mean, twin.running_var)
    yield both("norm_relu", case.x, folded)
    sums = reference.norm_backward_sums(case.dy.double(), *map(_doubled, (case.x, folded)))
    exact_terms = reference.norm_backward_terms(
        sums, _doubled(folded), case.norm.weight.double(), case.rows
    )
    terms = NormBackward(*torch.stack(list(exact_terms)).float().unbind(0))
    yield both("norm_backward", case.dy, case.x, folded, terms)
    yield (
        "norm_backward_sums and _terms",
        lambda: fused.norm_backward_terms(
            fused.norm_backward_sums(case.dy, case.x, folded), folded, case.norm.weight, case.rows
        ),
        exact_terms,
    )
    yield from _pointwise_checks(case, fused)
    y, taps, chosen = reference.norm_relu_max_pool(
        case.x, folded, size
    )  # float64 has no ties, BF16 has many
    yield (
        "norm_relu_max_pool",
        lambda: fused.norm_relu_max_pool(case.x, folded, size),
        (y, taps, chosen),
    )
    dy = case.random(pooled_size(size).rows, case.channels)
    yield both("norm_max_pool_backward", dy, taps, case.x, folded, terms, size)
    images = torch.randn(size.images, 3, size.height, size.width, device=case.device)
    yield (
        "space_to_depth",
        lambda: fused.space_to_depth(images, case.dtype)[0],
        reference.space_to_depth(images.double(), torch.float64)[0],
    )


def _pointwise_checks(
    case: Case, fused: FusedKernels
) -> Iterator[tuple[str, Callable[[], Any], Any]]:
    """Yield checks of 1×1 convolutions with batch norm, skip and ReLU, and of their gradients."""
    reference, size = ReferenceKernels(), case.size

    def pointwise(
        kernels: ReferenceKernels, norm: nn.BatchNorm2d, dtype: torch.dtype
    ) -> PointwiseConv:
        y = case.a.to(dtype)
        return kernels.pointwise_norm(y, kernels.column_sums(y), case.weight.to(dtype), norm)

    def outputs(conv: PointwiseConv, norm: nn.BatchNorm2d) -> Any:
        return *conv.norm[:3], conv.covariance, norm.running_mean, norm.running_var

    twin, norm = case.reference_norm(), copy.deepcopy(case.norm)
    exact = pointwise(reference, twin, torch.float64)
    yield (
        "pointwise_norm",
        lambda: outputs(pointwise(fused, norm := copy.deepcopy(case.norm), case.dtype), norm),
        outputs(exact, twin),
    )
    conv_result = pointwise(fused, norm, case.dtype)
    exact_norm = conv_result._replace(
        norm=FoldedNorm(*torch.stack([*exact.norm]).float().unbind(0))
    )
    for skip, other in ((None, None), (case.skip, None), (None, exact_norm)):
        y, mask = reference.pointwise_add_relu(*map(_doubled, (exact_norm, skip, other)))
        bits = _bits(mask)
        yield (
            "pointwise_add_relu",
            lambda skip=skip, other=other: fused.pointwise_add_relu(exact_norm, skip, other),
            (y, bits),
        )
    g, totals = reference.add_relu_backward(case.dy.double(), mask)
    yield "add_relu_backward", lambda: fused.add_relu_backward(case.dy, bits), (g, totals)
    small = Size(size.images, (size.height + 1) // 2, (size.width + 1) // 2)
    even = case.random(small.rows, case.channels)
    for extra in (SkipGradient(case.skip, 1), SkipGradient(even, 2)):
        arguments = (case.dx, case.back, extra, size)
        yield (
            "pointwise_add_relu_backward",
            lambda arguments=arguments: fused.pointwise_add_relu_backward(*arguments, bits),
            reference.pointwise_add_relu_backward(*map(_doubled, arguments), mask),
        )

    yield (
        "pointwise_backward",
        lambda: fused.pointwise_backward(g.to(case.dtype), totals.float(), exact_norm, case.norm),
        Gradients(
            *reference.pointwise_backward(g, totals, _doubled(exact_norm), case.reference_norm())
        ),
    )
    if case.rows > 1000:
        yield _means_check(case, fused, g, exact_norm)
    y, parts = reference.norm_relu_sum(*map(_doubled, (case.x, case.folded(case.x))))
    yield "norm_relu_sum", lambda: fused.norm_relu_sum(case.x, case.folded(case.x)), (y, parts)


def _means_check(
    case: Case, fused: FusedKernels, g: Tensor, linear: PointwiseConv
) -> tuple[str, Callable[[], Tensor], Tensor]:
    """Check sums over the rows, which show errors that single elements hide.

    Gradients are as small as under a loss scale: batch norm's backward pass subtracts means, which
    FP16 may not hold.
    """
    small = (g * 2.0**-10).to(case.dtype)
    totals = small.double().sum(0)
    exact = (
        ReferenceKernels()
        .pointwise_backward(small.double(), totals, _doubled(linear), case.reference_norm())
        .y
    )
    columns = torch.cat([torch.ones_like(case.a[:, :1]), case.a], 1).double()
    unit = columns.norm() / case.rows**0.5 * exact.norm()

    def relative_error() -> Tensor:
        result = fused.pointwise_backward(small, totals.float(), linear, case.norm).y
        return 1 + ((columns.t() @ (result.double() - exact)).norm() / unit).float()

    return "backward's means", relative_error, torch.ones((), device=case.device)


def cases(device: torch.device) -> Iterator[tuple[Case, tuple[Tile | None, ...]]]:
    """Yield shapes, and the tiles of a 1×1 convolution tried with each."""
    for dtype in COMPUTE_DTYPES[device.type]:
        for size, channels, inputs, tiles in SHAPES[device.type]:
            yield Case(Size(*size), channels, inputs, device, dtype), tiles


def failures(device: torch.device) -> Iterator[str]:
    """Yield a line for every difference beyond its tolerance."""
    worst: dict[tuple[str, torch.dtype], float] = {}
    for case, tiles in cases(device):
        for tile in tiles:
            for name, run, reference in checks(case, FusedKernels(tile, 512, 512)):
                where = f"{name} {tuple(case.size)}×{case.channels} {case.dtype}, {tile}"
                poison(device)
                first, second = run(), run()
                results = (first, second, reference)
                yield from _compare(where, name, results, case.dtype, worst)
    print("largest relative errors:")
    for (name, dtype), error in worst.items():
        print(f"  {name:20s} {str(dtype).removeprefix('torch.'):9s} {error:.1e}")


def _compare(
    where: str,
    name: str,
    results: tuple[Any, ...],
    dtype: torch.dtype,
    worst: dict[tuple[str, torch.dtype], float],
) -> Iterator[str]:
    first, second, reference = results
    repeated = [result_part for result_part, _ in _pairs(second, reference)]
    for (result, expected), repeat in zip(_pairs(first, reference), repeated, strict=True):
        error = difference(result, expected)
        worst[name, dtype] = max(worst.get((name, dtype), 0.0), error)
        limit = TOLERANCE[result.dtype]
        if name in SUMS_OF_ROUNDED:
            limit = TOLERANCE[dtype]
        if name == "backward's means" and dtype is torch.float16:
            limit *= 2  # gradients of 2⁻¹⁰, not far from its least number
        if name == "pointwise_norm":
            limit = 3e-4  # a difference of second moments
        if result.dtype == torch.uint8:
            # A number within rounding of zero, or of another, may fall on either side.
            limit = 0.01
        if not error <= limit:
            yield f"{where}: relative error {error:.2e}"
        if not torch.equal(result, repeat):
            yield f"{where}: two runs differ"


if __name__ == "__main__":
    os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")  # precision/modes.py says why
    torch.manual_seed(int.from_bytes(os.urandom(4), "little"))
    differences = list(failures(torch.device(sys.argv[1])))
    print("\n".join(differences) if differences else "all kernels agree")
    sys.exit(bool(differences))
