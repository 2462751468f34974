"""The fused kernels on a real GPU: each against float64, and a whole training step."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.nn.functional as F

from ai500.parallel.cuda_graph import Graphed
from ai500.parallel.engines import Setting
from ai500.parallel.engines.data import DataParallel
from ai500.parallel.engines.mesh import make_mesh
from ai500.records import Parallelism
from ai500.train import precision
from ai500.train.precision.loss_scaling import LossScaling
from ai500.workloads.kernels.fused import PRODUCT_TILE, FusedKernels, available, fused_kernels
from ai500.workloads.kernels.launch import Tile
from ai500.workloads.models.fast_resnet import FastResNet, make_fast
from ai500.workloads.models.optimized_resnet import COMPUTE_DTYPES, use_fused_kernels
from ai500.workloads.models.resnet import resnet50
from tests.support.kernel_checks import failures

DEVICE = torch.device("cuda", 0)
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(
        not available(DEVICE) or not torch.cuda.is_available(),
        reason="NO GPU WITH TRITON: the fused kernels are untested",
    ),
]


def test_kernels_agree_with_float64() -> None:
    errors = list(failures(DEVICE))
    assert not errors, "\n".join(errors)


GRADIENT_SEEDS = 6


@pytest.mark.parametrize(
    "tile, working",
    [
        (None, torch.float32),
        (None, torch.bfloat16),
        (PRODUCT_TILE, torch.bfloat16),
        (PRODUCT_TILE, torch.float16),
    ],
)
def test_gradients_are_as_near_to_float64_as_autograds(
    tile: Tile | None, working: torch.dtype
) -> None:
    torch.backends.cuda.matmul.fp32_precision = "ieee"
    torch.backends.cudnn.conv.fp32_precision = "ieee"  # type: ignore[attr-defined]
    # Batch norm over few pixels amplifies rounding by chance: single draws differ by half.
    errors = [_gradient_errors(tile, working, seed=seed) for seed in range(GRADIENT_SEEDS)]
    error, usual = (sum(values) / GRADIENT_SEEDS for values in zip(*errors, strict=True))
    assert error < 1.3 * usual + 1e-6, f"{error:.1e}, autograd's {usual:.1e}"


def _gradient_errors(tile: Tile | None, working: torch.dtype, *, seed: int) -> tuple[float, float]:
    """Return the relative errors of the fused kernels' gradients and of autograd's."""
    torch.manual_seed(seed)
    plain = resnet50(classes=10).to(DEVICE, memory_format=torch.channels_last)
    quick = make_fast(copy.deepcopy(plain), FusedKernels(tile), compute_dtype=working)
    exact = copy.deepcopy(plain).double()
    images = torch.randn(4, 3, 96, 80, device=DEVICE)
    labels = torch.randint(0, 10, (4,), device=DEVICE)
    F.cross_entropy(exact(images.double()), labels).backward()
    scale = 1024.0 if working is torch.float16 else 1.0
    for model in (quick, plain):
        with torch.autocast("cuda", dtype=working, enabled=working is not torch.float32):
            loss = F.cross_entropy(model(images).float(), labels)
        (scale * loss).backward()
    right, fused, autocast = (_gradients(model) for model in (exact, quick, plain))
    error, usual = (float((each - right).norm() / right.norm()) for each in (fused, autocast))
    return error, usual


def _gradients(model: torch.nn.Module) -> torch.Tensor:
    """All of them in one, each of norm about one: none hides behind a larger one."""
    gradients = [
        parameter.grad.double().flatten()
        for parameter in model.parameters()
        if parameter.grad is not None
    ]
    return torch.cat([gradient / gradient.norm() for gradient in gradients])


@pytest.mark.parametrize("tile", [None, PRODUCT_TILE])
@pytest.mark.parametrize("working", COMPUTE_DTYPES.values())
def test_an_evaluation_is_as_near_to_float64_as_torchs(
    tile: Tile | None, working: torch.dtype
) -> None:
    torch.manual_seed(4)
    plain = resnet50(classes=10).to(DEVICE, memory_format=torch.channels_last)
    images = torch.randn(5, 3, 97, 80, device=DEVICE)
    with torch.no_grad():
        plain(images)
        plain.eval()
        quick = make_fast(copy.deepcopy(plain), FusedKernels(tile), compute_dtype=working)
        exact = copy.deepcopy(plain).double()(images.double())
        with torch.autocast("cuda", dtype=working):
            fused, autocast = (model(images).double() for model in (quick, plain))
    error, usual = ((outputs - exact).norm() / exact.norm() for outputs in (fused, autocast))
    assert error < 1.3 * usual + 1e-6, f"{error:.1e}, torch's {usual:.1e}"


def test_a_graph_trains_as_single_steps_do() -> None:
    """Train with a rate that changes between replays."""
    torch.manual_seed(1)
    first = resnet50(classes=10).to(DEVICE, memory_format=torch.channels_last)
    batches = [
        (torch.randn(16, 3, 64, 64, device=DEVICE), torch.randint(0, 10, (16,), device=DEVICE))
        for _ in range(8)
    ]
    losses = {}
    for calls_before in (3, 100):
        model = make_fast(copy.deepcopy(first), FusedKernels(), compute_dtype=torch.bfloat16)
        rate = torch.tensor(0.1, device=DEVICE)
        optimizer = torch.optim.SGD(model.parameters(), lr=rate, momentum=0.9, fused=True)

        def step(images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
            optimizer.zero_grad(set_to_none=True)  # noqa: B023
            with torch.autocast("cuda", dtype=torch.bfloat16, cache_enabled=False):
                loss = F.cross_entropy(model(images).float(), labels)  # noqa: B023
            loss.backward()
            optimizer.step()  # noqa: B023
            return loss.detach()

        graphed, step_losses = Graphed(step, warm_up_calls=calls_before), []
        for number, batch in enumerate(batches):
            rate.fill_(0.01 / (1 + number))
            step_losses.append(float(graphed(*batch)))
        losses[calls_before] = step_losses
    assert losses[3] == pytest.approx(losses[100], rel=0.02)


@pytest.mark.parametrize("name, working", COMPUTE_DTYPES.items())
def test_the_engine_replays_a_graph_and_gives_the_gradients_of_single_steps(
    name: str, working: torch.dtype
) -> None:
    torch.manual_seed(2)
    alone = Parallelism(mode="data")
    numerics = precision.make(name, device=DEVICE)
    if numerics.loss_scaling is not None:
        numerics.loss_scaling = LossScaling(scale=1024.0)
    module = resnet50(classes=10).to(DEVICE, memory_format=torch.channels_last)
    single = make_fast(copy.deepcopy(module), fused_kernels(DEVICE), compute_dtype=working)
    engine = DataParallel(
        Setting(
            module=module, loss=F.cross_entropy, parallel=alone,
            mesh=make_mesh(alone, device=DEVICE), plan=None, input_shape=(16, 3, 64, 64),
            device=DEVICE, numerics=numerics, collective=None, optimized=use_fused_kernels,
        )
    )  # fmt: skip
    assert isinstance(engine.module, FastResNet)

    def batch() -> tuple[torch.Tensor, torch.Tensor]:
        labels = torch.randint(0, 10, (16,), device=DEVICE)
        return torch.randn(16, 3, 64, 64, device=DEVICE), labels

    before = copy.deepcopy(module.state_dict())
    engine.warm_up(*batch())
    torch.testing.assert_close(module.state_dict(), before, rtol=0, atol=0)
    for _ in range(2):
        images, labels = batch()
        for model in (module, single):
            model.zero_grad(set_to_none=True)
        replayed = engine.forward_backward(images, labels)
        with numerics.forward():
            loss = F.cross_entropy(single(images), labels)
        numerics.scale(loss).backward()
        torch.testing.assert_close(replayed.float(), loss.detach().float(), rtol=1e-3, atol=0)
        cosine = F.cosine_similarity(_gradients(module), _gradients(single), dim=0)
        assert cosine > 0.999
        replayed_norm, single_norm = (
            replica.classifier.bias.grad.norm() for replica in (module, single)
        )
        torch.testing.assert_close(replayed_norm, single_norm, rtol=1e-2, atol=0)
        if numerics.loss_scaling is not None:  # replays have to see that it has changed
            numerics.loss_scaling.update(finite=False)
