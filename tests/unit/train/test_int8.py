"""INT8 products: exact integers against NumPy, and gradients within the bound of their rounding."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ai500.operations import count
from ai500.train import precision
from ai500.train.precision import int8
from ai500.train.precision.custom_products import Shape
from ai500.train.precision.int8 import integer_product, quantize, quantize_stochastically
from ai500.workloads.models.resnet import small_resnet

CPU = torch.device("cpu")
CONVOLUTIONS = {
    "3×3": ((2, 5, 9, 9), (4, 5, 3, 3), Shape(padding=(1, 1))),
    "3×3, stride 2": ((2, 5, 9, 8), (4, 5, 3, 3), Shape(stride=(2, 2), padding=(1, 1))),
    "7×7, stride 2": ((2, 3, 17, 16), (8, 3, 7, 7), Shape(stride=(2, 2), padding=(3, 3))),
    "1×1, stride 2": ((3, 6, 7, 7), (4, 6, 1, 1), Shape(stride=(2, 2))),
    "no padding": ((1, 2, 6, 5), (3, 2, 3, 2), Shape()),
    "stride 3, uneven": ((2, 2, 11, 7), (3, 2, 3, 1), Shape(stride=(3, 2), padding=(1, 0))),
}


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("size", [(1, 1, 1), (3, 27, 5), (64, 576, 12), (17, 1000, 33)])
def test_sums_are_numpys_int32(size: tuple[int, int, int]) -> None:
    m, k, n = size
    draw = np.random.default_rng(0)
    a = draw.integers(-127, 128, (m, k), dtype=np.int8)
    b = draw.integers(-127, 128, (k, n), dtype=np.int8)
    product = integer_product(torch.from_numpy(a), torch.from_numpy(b))
    assert np.array_equal(product.numpy(), a.astype(np.int32) @ b.astype(np.int32))


@pytest.mark.parametrize("transposed", [False, True])
def test_sums_do_not_depend_on_the_layout(transposed: bool) -> None:
    a = torch.randint(-127, 128, (40, 30), dtype=torch.int8)
    b = torch.randint(-127, 128, (30, 20), dtype=torch.int8)
    if transposed:
        a, b = a.t().contiguous().t(), b.t().contiguous().t()
    assert torch.equal(integer_product(a, b).long(), a.long() @ b.long())


def test_a_sum_too_long_for_int32() -> None:
    length = 2**31 // 127**2 + 100
    largest = torch.full((1, length), 127, dtype=torch.int8)
    product = integer_product(largest, largest.t())
    assert product.item() == length * 127**2


def test_rounding_to_nearest_is_within_half_a_step() -> None:
    values = drawn(4, 3, 5, 5)
    integers, scale = quantize(values, scale_for=0)
    assert integers.abs().amax((1, 2, 3)).tolist() == [127] * 4  # the whole range is used
    back = integers * scale[:, None, None, None]
    assert ((back - values).abs() <= scale[:, None, None, None] * 0.5001).all()


def test_stochastic_rounding_has_no_bias() -> None:
    values = drawn(2, 50)
    draws = 4000
    total = torch.zeros_like(values)
    generator = torch.Generator().manual_seed(1)
    for _ in range(draws):
        noise = torch.rand(values.shape, generator=generator)
        integers, scale = quantize_stochastically(values, scale_for=0, noise=noise)
        total += integers * scale[:, None]
    # A Bernoulli of one step has a deviation of at most half a step.
    bound = 5 * 0.5 * scale[:, None] / draws**0.5
    assert ((total / draws - values).abs() < bound).all()


def test_stochastic_rounding_never_leaves_the_range() -> None:
    values = drawn(1, 10_000)
    integers, _ = quantize_stochastically(
        values, scale_for=0, noise=torch.full_like(values, 1 - 2**-24)
    )
    assert (integers.min(), integers.max()) >= (-127, -127)
    assert integers.max() <= 127


def test_zeros_stay_zeros() -> None:
    integers, scale = quantize(torch.zeros(2, 3), scale_for=0)
    assert not integers.any()
    assert torch.isfinite(scale).all()


@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_products_are_those_of_the_rounded_operands(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All three products against float64 convolutions of the same integers."""
    x_shape, w_shape, shape = CONVOLUTIONS[name]
    x, weight = drawn(*x_shape), drawn(*w_shape, seed=1)
    noise_of: list[Tensor] = []

    def remembered(like: Tensor) -> Tensor:
        noise_of.append(torch.rand(like.shape, generator=torch.Generator().manual_seed(2)))
        return noise_of[0]

    monkeypatch.setattr(torch, "rand_like", remembered)
    ours_x, ours_w = x.clone().requires_grad_(), weight.clone().requires_grad_()
    result = int8.Int8Products().convolution(ours_x, ours_w, shape)
    gradient = drawn(*result.shape, seed=3)
    result.backward(gradient)

    def back(pair: tuple[Tensor, Tensor], dim: int) -> Tensor:
        view = [1, 1, 1, 1]
        view[dim] = -1
        return pair[0].double() * pair[1].double().view(view)

    def rounded_gradient(dim: int) -> Tensor:
        pair = quantize_stochastically(gradient, scale_for=dim, noise=noise_of[0])
        return back(pair, dim)

    forward = F.conv2d(
        back(quantize(x, scale_for=0), 0),
        back(quantize(weight, scale_for=0), 0),
        stride=shape.stride,
        padding=shape.padding,
    )
    torch.testing.assert_close(result.detach().double(), forward, rtol=1e-5, atol=1e-5)
    dx = torch.nn.grad.conv2d_input(
        list(x_shape),
        back(quantize(weight, scale_for=1), 1),
        rounded_gradient(0),
        stride=shape.stride,
        padding=shape.padding,
    )
    dweight = torch.nn.grad.conv2d_weight(
        back(quantize(x, scale_for=1), 1),
        list(w_shape),
        rounded_gradient(1),
        stride=shape.stride,
        padding=shape.padding,
    )
    assert ours_x.grad is not None
    assert ours_w.grad is not None
    torch.testing.assert_close(ours_x.grad.double(), dx, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(ours_w.grad.double(), dweight, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_the_forward_error_is_within_its_bound(name: str) -> None:
    """|error| ≤ Σ (|x| s_w/2 + |w| s_x/2 + s_x s_w/4), the scales of the operands."""
    x_shape, w_shape, shape = CONVOLUTIONS[name]
    x, weight = drawn(*x_shape), drawn(*w_shape, seed=1)
    where = {"stride": shape.stride, "padding": shape.padding}
    half_x = x.abs().amax((1, 2, 3), keepdim=True) / 254
    half_w = weight.abs().amax((1, 2, 3), keepdim=True) / 254
    bound = F.conv2d(x.abs() + half_x, weight.abs() + half_w, **where) - F.conv2d(
        x.abs(), weight.abs(), **where
    )
    error = int8.Int8Products().convolution(x, weight, shape) - F.conv2d(x, weight, **where)
    # At the border the bound counts padding as rounded, too: never too small.
    assert (error.abs() <= bound * 1.001 + 1e-6).all()
    assert error.abs().max() > 0


def test_gradients_are_close_to_those_of_fp32() -> None:
    """Within 2 % of the norm for weights, 6 % for a bias, whose sum cancels, layer by layer."""
    layers = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.Flatten(), nn.Linear(16 * 64, 10))
    images, labels = drawn(32, 3, 8, 8), torch.arange(32) % 10
    results = {}
    for name in ("fp32", "int8"):
        numerics = precision.make(name, device=CPU)
        layers.zero_grad()
        torch.manual_seed(0)
        with numerics.forward():
            loss = F.cross_entropy(layers(images), labels)
        loss.backward()
        results[name] = [p.grad.clone() for p in layers.parameters() if p.grad is not None]
    for exact, rounded in zip(results["fp32"], results["int8"], strict=True):
        assert 0 < (exact - rounded).norm() / exact.norm() < (0.02 if exact.dim() > 1 else 0.06)


@pytest.mark.long
def test_a_small_net_learns_like_fp32() -> None:
    """Twelve steps of `smoke`'s model: every loss within 5 % of FP32's, and falling."""
    images, labels = drawn(32, 3, 16, 16), torch.arange(32) % 4
    curves = {}
    for name in ("fp32", "int8"):
        torch.manual_seed(1)
        numerics = precision.make(name, device=CPU)
        model = numerics.model(small_resnet(classes=4, width=8))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        curve = []
        for _ in range(12):
            optimizer.zero_grad()
            with numerics.forward():
                loss = F.cross_entropy(model(images), labels)
            numerics.scale(loss).backward()
            assert numerics.step(optimizer)
            curve.append(loss.item())
        curves[name] = curve
    assert curves["int8"] == pytest.approx(curves["fp32"], rel=0.05)
    assert curves["int8"] != curves["fp32"]
    assert curves["int8"][-1] < 0.8 * curves["int8"][0]


def test_the_record_names_the_layers_and_nothing_else_changes() -> None:
    model = nn.Sequential(nn.Conv2d(4, 4, 3, groups=2), nn.Conv2d(4, 8, 1), nn.Flatten())
    before = {name: id(value) for name, value in model.named_parameters()}
    numerics = precision.make("int8", device=CPU)
    assert numerics.model(model) is model
    assert {name: id(value) for name, value in model.named_parameters()} == before
    description = numerics.describe()
    assert (description["own_products"], description["other_products"]) == (["1"], ["0"])


def test_a_convolution_with_groups_stays_in_fp32() -> None:
    x, weight = drawn(2, 4, 6, 6), drawn(4, 2, 3, 3)
    with precision.make("int8", device=CPU).forward():
        inside = F.conv2d(x, weight, groups=2)
    assert torch.equal(inside, F.conv2d(x, weight, groups=2))


def test_counted_operations_do_not_change_with_precision() -> None:
    model = small_resnet(classes=4)
    plain = count(model, (2, 3, 16, 16), convention="aiperf", loss="softmax")
    numerics = precision.make("int8", device=CPU)
    assert count(numerics.model(model), (2, 3, 16, 16), convention="aiperf", loss="softmax") == (
        plain
    )
