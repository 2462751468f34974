"""Fourier transforms, complex numbers, distances, products and attention, against hand formulas."""

from __future__ import annotations

from collections.abc import Callable
from math import log2
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ai500.operations import OperationCount, aten, count
from ai500.operations.rules import CONVENTIONS

COMPLEX = torch.complex64


class Function(nn.Module):
    """A function of tensors as a model without parameters."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *tensors: Tensor) -> Any:
        return self.function(*tensors)


def counted(function: Any, *inputs: Tensor, convention: str = "aiperf") -> OperationCount:
    result = count(Function(function), inputs, convention=convention)
    assert result.unknown == {}
    return result


def real(*sizes: int) -> Tensor:
    return torch.empty(sizes, device="meta", requires_grad=True)


def complex_numbers(*sizes: int) -> Tensor:
    return torch.empty(sizes, dtype=COMPLEX, device="meta", requires_grad=True)


@pytest.mark.parametrize(
    ("transform", "signal", "points", "transforms", "factor"),
    [
        (torch.fft.fft, complex_numbers(3, 8), 8, 3, 5),
        (lambda x: torch.fft.fft(x, dim=1), complex_numbers(2, 12, 8), 12, 2 * 8, 5),
        (lambda x: torch.fft.ifftn(x, dim=(0, 2)), complex_numbers(4, 3, 8), 32, 3, 5),
        (torch.fft.rfft, real(3, 8), 8, 3, 2.5),
        (torch.fft.rfft2, real(2, 3, 12, 8), 96, 2 * 3, 2.5),
        (torch.fft.fft, real(3, 8), 8, 3, 2.5),
        (lambda x: torch.fft.rfft(x, n=16), real(3, 8), 16, 3, 2.5),
        (lambda x: torch.fft.irfftn(x, dim=(1, 2, 3)), complex_numbers(2, 4, 4, 5), 128, 2, 2.5),
        (torch.fft.hfft, complex_numbers(2, 5), 8, 2, 2.5),
    ],
)  # fmt: skip
def test_fourier_transforms(transform, signal, points, transforms, factor) -> None:
    """5·N·log₂(N) for each transform of N points in any dimensions, half for real data."""
    aiperf = counted(transform, signal).by_kind["fft"]
    assert aiperf.forward == round(factor * transforms * points * log2(points))
    assert aiperf.backward == 0
    for convention in ("v3", "matmul"):
        assert counted(transform, signal, convention=convention).by_kind["fft"].forward == 0


@pytest.mark.parametrize(
    ("function", "per_element"),
    [
        (lambda z: z * z, 4 + 2),
        (lambda z: z * z.real, 2),
        (lambda z: z * 3.0, 2),
        (lambda z: z + z, 2),
        (lambda z: z / z, 4 + 2 + 2 + 1 + 2 * 4),
        (lambda z: z / 3.0, 2 * 4),
        (torch.exp, 3 * 8 + 2),
        (torch.abs, 2 + 1 + 4),
        (torch.angle, 8),
        (lambda z: torch.polar(z.real, z.imag), 2 * 8 + 2),
        (lambda z: torch.complex(z.imag, z.real), 0),
        (torch.sum, 2),
    ],
)
def test_complex_arithmetic(function, per_element) -> None:
    assert counted(function, complex_numbers(4, 5)).forward == per_element * 20
    assert counted(function, complex_numbers(4, 5), convention="matmul").forward == 0


PRODUCTS: dict[str, tuple[Any, tuple[Tensor, ...], int]] = {
    "vector by vector": (torch.matmul, (real(5), real(5)), 5),
    "matrix by vector": (torch.matmul, (real(4, 5), real(5)), 20),
    "vector by matrix": (torch.matmul, (real(5), real(5, 3)), 15),
    "matrix by matrix": (torch.matmul, (real(4, 5), real(5, 3)), 60),
    "batch": (torch.bmm, (real(2, 4, 5), real(2, 5, 3)), 120),
    "broadcast": (torch.matmul, (real(2, 1, 4, 5), real(3, 5, 6)), 2 * 3 * 4 * 5 * 6),
    "batch by vector": (torch.matmul, (real(2, 3, 4, 5), real(5)), 120),
    "addmm": (torch.addmm, (real(4, 3), real(4, 5), real(5, 3)), 60),
    "addmv": (torch.addmv, (real(4), real(4, 5), real(5)), 20),
    "baddbmm": (torch.baddbmm, (real(2, 4, 3), real(2, 4, 5), real(2, 5, 3)), 120),
    "addbmm": (torch.addbmm, (real(4, 3), real(2, 4, 5), real(2, 5, 3)), 120),
    "tensordot": (
        lambda x, y: torch.tensordot(x, y, 2), (real(2, 3, 4), real(3, 4, 5)), 2 * 12 * 5
    ),
    "inner": (torch.inner, (real(2, 4), real(3, 4)), 24),
    "linear of a batch": (F.linear, (real(2, 3, 4), real(5, 4)), 2 * 3 * 4 * 5),
    "einsum": (
        lambda x, y: torch.einsum("bij,bkj->bik", x, y), (real(2, 4, 5), real(2, 6, 5)),
        2 * 4 * 5 * 6,
    ),
    "einsum of three": (
        lambda x, y, z: torch.einsum("ij,jk,kl->il", x, y, z), (real(2, 3), real(3, 4), real(4, 5)),
        2 * 3 * 4 + 2 * 4 * 5,
    ),
    "einsum of rows": (
        lambda x, y: torch.einsum("ij,ij->i", x, y), (real(2, 3), real(2, 3)), 6
    ),
}  # fmt: skip


@pytest.mark.parametrize("convention", CONVENTIONS)
@pytest.mark.parametrize("name", PRODUCTS)
def test_products(name: str, convention: str) -> None:
    """A multiply-accumulate is 2 (1 in `v3`); each factor's gradient costs as much again."""
    function, inputs, macc = PRODUCTS[name]
    weight = 1 if convention == "v3" else 2
    result = counted(function, *inputs, convention=convention)
    assert result.forward == weight * macc
    assert result.gradients == 2 * weight * macc


def integers(*sizes: int, dtype: torch.dtype = torch.int8) -> Tensor:
    return torch.empty(sizes, dtype=dtype, device="meta")


def test_products_of_integers() -> None:
    """Models in int8 compute as much; element-wise arithmetic on integers is that of indices."""
    products = counted(torch._int_mm, integers(32, 16), integers(16, 8))
    assert products.forward == 2 * 32 * 16 * 8
    indices = integers(4, 5, dtype=torch.int64)
    assert counted(torch.matmul, indices, indices.mT).forward == 2 * 4 * 5 * 4
    assert counted(torch.add, indices, indices).total == 0


@pytest.mark.parametrize("convention", CONVENTIONS)
def test_complex_products(convention: str) -> None:
    """4 multiplications and 2 additions, and both parts are accumulated: 4 real products."""
    weight = 1 if convention == "v3" else 2
    factors = complex_numbers(2, 4, 5), complex_numbers(2, 5, 3)
    result = counted(torch.bmm, *factors, convention=convention)
    assert result.forward == 4 * weight * 2 * 4 * 5 * 3
    assert result.gradients == 2 * result.forward


def test_bilinear() -> None:
    rows, left, right, out = 7, 3, 4, 5
    result = counted(F.bilinear, real(rows, left), real(rows, right), real(out, left, right))
    forward = 2 * rows * (out * left * right + out * right)
    assert (result.forward, result.gradients) == (forward, 3 * forward)


@pytest.mark.parametrize(
    ("order", "term", "root"),
    [(2.0, 3, 4), (1.0, 3, 0), (float("inf"), 3, 0), (3.0, 3 + 8, 8)],
)
@pytest.mark.parametrize("rows", [5, 30])  # torch has another kernel for more than 25
def test_distances(rows: int, order: float, term: int, root: int) -> None:
    """A difference, its square or absolute value and a sum per term; a root per pair."""
    result = counted(lambda x, y: torch.cdist(x, y, p=order), real(2, rows, 3), real(2, 7, 3))
    assert result.forward == 2 * rows * 7 * (3 * term + root)


def test_distances_of_one_set() -> None:
    assert counted(F.pdist, real(6, 3)).forward == 15 * (3 * 3 + 4)


def test_weight_norm() -> None:
    """v·(g / ‖v‖), the same from torch's kernel and from its parts."""
    layer = nn.utils.parametrizations.weight_norm(nn.Linear(4, 6))
    result = count(layer, (2, 4))
    expected = 3 * 24 + 6 * (4 + 4)
    assert result.by_kind["weight_norm"].forward == expected
    parts = counted(lambda v, g: v * (g / v.norm(dim=1, keepdim=True)), real(6, 4), real(6, 1))
    assert parts.forward == expected


def attention_operators() -> list[str]:
    names = [name for name in dir(torch.ops.aten) if "attention" in name]
    return [name for name in names if "backward" not in name and "multi_head" not in name]


def test_every_attention_operator_of_torch_is_known() -> None:
    known = aten.FUSED_ATTENTION | aten.ATTENTION_BY_SEQUENCE
    assert set(attention_operators()) <= known


QUERY, KEY = (2, 3, 10, 8), (2, 3, 12, 8)
SCORES = 2 * 3 * 10 * 12
BY_SEQUENCE = [(shape[0], shape[2], shape[1], shape[3]) for shape in (QUERY, KEY, KEY)]
KERNELS: dict[str, Any] = {
    "_scaled_dot_product_flash_attention_for_cpu": ([QUERY, KEY, KEY], ()),
    "_scaled_dot_product_flash_attention": ([QUERY, KEY, KEY], ()),
    "_scaled_dot_product_efficient_attention": ([QUERY, KEY, KEY], (None, True)),
    "_scaled_dot_product_cudnn_attention": ([QUERY, KEY, KEY], (None, True)),
    "_flash_attention_forward": (BY_SEQUENCE, (None, None, 10, 12, 0.0, False, False)),
    "_efficient_attention_forward": (BY_SEQUENCE, (None, None, None, None, None, 0.0, 0)),
}


@pytest.mark.parametrize("kernel", KERNELS)
def test_kernels_of_attention_count_alike(kernel: str) -> None:
    shapes, arguments = KERNELS[kernel]
    operator = getattr(torch.ops.aten, kernel)
    result = counted(lambda q, k, v: operator(q, k, v, *arguments)[0], *(real(*s) for s in shapes))
    products = 2 * SCORES * (8 + 8)
    assert result.by_kind["attention"].forward == products + 13 * SCORES
    assert result.gradients == 2 * products


def test_mathematical_attention_has_the_same_products() -> None:
    inputs = real(*QUERY), real(*KEY), real(*KEY)
    result = counted(F.scaled_dot_product_attention, *inputs)
    products = 2 * SCORES * (8 + 8)
    assert result.by_kind["matmul"].forward == products
    assert result.by_kind["matmul"].backward == 2 * products
    assert result.by_kind["softmax"].forward == 13 * SCORES
