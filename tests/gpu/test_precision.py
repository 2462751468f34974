"""Precisions on a real accelerator: products against float64, and every one trains."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from ai500.core.errors import EnvironmentLacksError
from ai500.train import precision
from ai500.train.precision import fp8
from ai500.train.precision.int8 import integer_product
from ai500.workloads.image_classification import CHANNEL_DEVIATION, CHANNEL_MEAN
from ai500.workloads.image_inputs import normalized
from ai500.workloads.learnable_images import SMOKE
from ai500.workloads.models.resnet import small_resnet

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(
        not torch.cuda.is_available(), reason="NO GPU: the precisions of tensor cores are untested"
    ),
]
STEPS = 120


@pytest.fixture(scope="module")
def device() -> torch.device:
    return torch.device("cuda", 0)


@pytest.fixture(scope="module")
def fp32_losses(device: torch.device) -> list[float]:
    return _losses("fp32", device)


def _losses(name: str, device: torch.device) -> list[float]:
    """`smoke`'s model on `smoke`'s images; the mean of each twenty steps."""
    numerics = precision.make(name, device=device)
    drawn = SMOKE.draw("train", 0, 1024)
    images, labels = (torch.from_numpy(drawn[name]).to(device) for name in ("images", "labels"))
    torch.manual_seed(1)
    model = small_resnet(classes=SMOKE.classes).to(device, memory_format=torch.channels_last)
    model = numerics.model(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    losses = []
    for step in range(STEPS):
        chosen = slice(64 * step % 1024, 64 * step % 1024 + 64)
        inputs = normalized(images[chosen], mean=CHANNEL_MEAN, deviation=CHANNEL_DEVIATION)
        optimizer.zero_grad(set_to_none=True)
        with numerics.forward():
            loss = F.cross_entropy(model(inputs), labels[chosen])
        numerics.scale(loss).backward()
        numerics.step(optimizer)
        losses.append(loss.item())
    return [sum(losses[first : first + 20]) / 20 for first in range(0, STEPS, 20)]


@pytest.mark.parametrize("name", [name for name in precision.PRECISIONS if name != "fp32"])
def test_it_learns_like_fp32(name: str, device: torch.device, fp32_losses: list[float]) -> None:
    try:
        losses = _losses(name, device)
    except EnvironmentLacksError as error:
        pytest.skip(f"NOT TESTED: {error}")
    assert fp32_losses[-1] < 0.8 * fp32_losses[0]
    assert losses == pytest.approx(fp32_losses, rel=0.1)
    assert losses != fp32_losses


def test_tf32_is_on_only_when_chosen(device: torch.device) -> None:
    draw = torch.Generator().manual_seed(0)
    a, b = (torch.randn(512, 512, generator=draw).to(device) for _ in range(2))
    image, kernel = a.view(4, 64, 32, 32), b[:64, :].reshape(-1)[: 64 * 64 * 4].view(64, 64, 2, 2)
    exact = a.double() @ b.double()
    exact_image = F.conv2d(image.double(), kernel.double())
    for name, low, high in (("fp32", 0.0, 1e-5), ("tf32", 1e-5, 1e-2), ("fp32", 0.0, 1e-5)):
        numerics = precision.make(name, device=device)
        assert numerics.describe()["tf32"] == (name == "tf32")
        for result, right in ((a @ b, exact), (F.conv2d(image, kernel), exact_image)):
            error = ((result.double() - right).norm() / right.norm()).item()
            assert low < error < high, name


@pytest.mark.parametrize(
    "size",
    [
        (1, 1, 1),
        (2, 8, 256),
        (3, 27, 5),
        (17, 147, 33),
        (64, 576, 12),
        (65_536, 64, 256),
        (8, 100_352, 147),
    ],
)
def test_int8_sums_are_exact(size: tuple[int, int, int], device: torch.device) -> None:
    m, k, n = size
    draw = torch.Generator().manual_seed(0)
    a = torch.randint(-127, 128, (m, k), dtype=torch.int8, generator=draw)
    b = torch.randint(-127, 128, (k, n), dtype=torch.int8, generator=draw)
    exact = a.double() @ b.double()
    assert torch.equal(integer_product(a.to(device), b.to(device)).cpu().double(), exact)
    turned = a.t().contiguous().t().to(device), b.t().contiguous().t().to(device)
    assert torch.equal(integer_product(*turned).cpu().double(), exact)


@pytest.mark.parametrize("kind", [fp8.VALUES, fp8.GRADIENTS])
@pytest.mark.parametrize("size", [(128, 2048, 1000), (25_088, 256, 64), (100, 30, 12), (1, 1, 1)])
def test_fp8_products_are_those_of_the_rounded_matrices(
    kind: torch.dtype, size: tuple[int, int, int], device: torch.device
) -> None:
    """Within 1e-3 of float64's largest number: Hopper's FP8 sums keep fewer bits than FP32."""
    try:
        precision.make("fp8", device=device)
    except EnvironmentLacksError as error:
        pytest.skip(f"NOT TESTED: {error}")
    m, k, n = size
    draw = torch.Generator().manual_seed(0)
    a = torch.randn(m, k, generator=draw).to(device)
    b = torch.randn(k, n, generator=draw).to(device)
    qa, qb = fp8.quantize(a, kind), fp8.quantize(b, fp8.VALUES)
    result = fp8.product(qa, qb, out=torch.float32).double()
    exact = (qa.values.double() * qa.undo) @ (qb.values.double() * qb.undo)
    assert (result - exact).abs().max() < 1e-3 * exact.abs().max()
