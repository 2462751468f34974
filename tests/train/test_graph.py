"""Where there are no graphs, a graphed step is the step itself; no model changes there either."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from ai500.parallel import cuda_graph as graph
from ai500.parallel.cuda_graph import Graphed
from ai500.parallel.engines import Setting
from ai500.parallel.engines.data import DataParallel
from ai500.parallel.engines.fast_path import GradientGraph, graphable, quicken
from ai500.parallel.engines.mesh import make_mesh
from ai500.records import Parallelism
from ai500.train import precision
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

    graphed = Graphed(step, calls_before=1)
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

    recorded = GradientGraph(step, list(layer.parameters()), batch_size=4)
    x, y = torch.randn(4, 3), torch.randn(4, 1)
    recorded.record(x, y)
    for some in (4, 2):
        layer.zero_grad(set_to_none=True)
        loss = recorded(x[:some], y[:some])
        found = layer.weight.grad
        layer.zero_grad(set_to_none=True)
        torch.testing.assert_close(step(x[:some], y[:some]), loss)
        torch.testing.assert_close(found, layer.weight.grad)


def test_a_model_on_the_cpu_stays_as_it_is() -> None:
    model = ResNet(Bottleneck, (1,), width=8, classes=3)
    quicken(model, precision="mixed-bf16", device=torch.device("cpu"))
    assert type(model) is ResNet and not graphable(model, precision="mixed-bf16")


class NoRoom(GradientGraph):
    def record(self, inputs: torch.Tensor, labels: torch.Tensor) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")


def test_without_memory_for_a_recording_steps_run_as_they_are_and_it_is_told() -> None:
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
    assert engine.describe()["recorded"] == "no: CUDA out of memory"
    assert torch.isfinite(engine.forward_backward(x, y))
    assert engine.module.weight.grad is not None


def test_that_cudnn_chose_by_trial_is_known_afterwards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graph, "were_tried", False)
    before = torch.backends.cudnn.benchmark
    with graph.algorithms_tried():
        assert torch.backends.cudnn.benchmark
    assert graph.were_tried and torch.backends.cudnn.benchmark == before
