"""On a CPU a graphed step is the step itself, and models stay as they are."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from ai500.parallel.cuda_graph import (
    GradientGraph,
    Graphed,
    cudnn_autotuning,
    gradients_capturable,
)
from ai500.parallel.engines import Setting
from ai500.parallel.engines.data import DataParallel
from ai500.parallel.engines.mesh import make_mesh
from ai500.parallel.targets import Targets
from ai500.records import Parallelism
from ai500.train import precision
from ai500.workloads.models.optimized_resnet import use_fused_kernels
from ai500.workloads.models.resnet import Bottleneck, ResNet


def test_on_the_cpu_every_call_is_one_step_at_the_rate_that_was_set() -> None:
    weight = torch.zeros(3, requires_grad=True)
    rate = torch.tensor(1.0)
    optimizer = torch.optim.SGD([weight], lr=rate)

    def step(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad(set_to_none=True)
        loss = F.mse_loss(x @ weight, y, reduction="sum")
        loss.backward()
        optimizer.step()
        return loss.detach()

    graphed = Graphed(step, warm_up_calls=1)
    x, y = torch.eye(3), torch.tensor([1.0, 2.0, 3.0])
    for value in (0.25, 0.5, 0.0):
        rate.fill_(value)
        loss = graphed(x, y)
    # Half of the way, then (with twice the rate) all of it; the third step sees no loss.
    assert float(loss) == 0
    torch.testing.assert_close(weight.detach(), y)


def test_gradients_of_a_graph_lie_where_they_always_do() -> None:
    layer = torch.nn.Linear(3, 1)

    def step(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        loss = F.mse_loss(layer(x), y)
        loss.backward()
        return loss.detach()

    captured = GradientGraph(step, list(layer.parameters()), batch_size=4)
    x, y = torch.randn(4, 3), torch.randn(4, 1)
    captured.capture(x, y)
    for size in (4, 2):
        layer.zero_grad(set_to_none=True)
        loss = captured(x[:size], y[:size])
        gradient = layer.weight.grad
        layer.zero_grad(set_to_none=True)
        torch.testing.assert_close(step(x[:size], y[:size]), loss)
        torch.testing.assert_close(gradient, layer.weight.grad)


def test_a_model_on_the_cpu_stays_as_it_is() -> None:
    model = ResNet(Bottleneck, (1,), width=8, classes=3)
    cpu = torch.device("cpu")
    assert use_fused_kernels(model, precision="mixed-bf16", device=cpu) is None
    assert type(model) is ResNet and not gradients_capturable(model, precision="mixed-bf16")


class NoRoom(GradientGraph):
    def capture(self, inputs: torch.Tensor, targets: Targets) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")


def test_without_memory_for_a_graph_steps_are_eager_and_the_record_says_so() -> None:
    device, alone = torch.device("cpu"), Parallelism(mode="data")
    engine = DataParallel(
        Setting(
            module=torch.nn.Linear(3, 2), loss=F.cross_entropy, parallel=alone,
            mesh=make_mesh(alone, device=device), plan=None, input_shape=(4, 3), device=device,
            numerics=precision.make("fp32", device=device), collective=None,
        )
    )  # fmt: skip
    engine._graph = NoRoom(engine._micro_step, [], batch_size=4)
    x, y = torch.randn(4, 3), torch.tensor([0, 1, 0, 1])
    engine.warm_up(x, y)
    assert engine.describe()["captured"] == "no: CUDA out of memory"
    assert torch.isfinite(engine.forward_backward(x, y))
    assert engine.module.weight.grad is not None


def test_cudnn_times_algorithms_inside_the_context_only() -> None:
    before = torch.backends.cudnn.benchmark
    with cudnn_autotuning():
        assert torch.backends.cudnn.benchmark
    assert torch.backends.cudnn.benchmark == before
