"""Where there are no graphs, a graphed step is the step itself; no model changes there either."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from ai500.parallel.engines.quick import GradientGraph, graphable, quicken
from ai500.train.graph import Graphed
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

    graph = GradientGraph(step, list(layer.parameters()), batch_size=4)
    x, y = torch.randn(4, 3), torch.randn(4, 1)
    graph.record(x, y)
    for some in (4, 2):
        layer.zero_grad(set_to_none=True)
        loss = graph(x[:some], y[:some])
        found = layer.weight.grad
        layer.zero_grad(set_to_none=True)
        torch.testing.assert_close(step(x[:some], y[:some]), loss)
        torch.testing.assert_close(found, layer.weight.grad)


def test_a_model_on_the_cpu_stays_as_it_is() -> None:
    model = ResNet(Bottleneck, (1,), width=8, classes=3)
    quicken(model, precision="mixed-bf16", device=torch.device("cpu"))
    assert type(model) is ResNet and not graphable(model, precision="mixed-bf16")
