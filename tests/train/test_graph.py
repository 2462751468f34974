"""Where there are no graphs, a graphed step is the step itself."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from ai500.train.graph import Graphed, rate_on_device, set_rate


def test_on_the_cpu_every_call_is_one_step_at_the_rate_that_was_set() -> None:
    weight = torch.zeros(3, requires_grad=True)
    optimizer = torch.optim.SGD([weight], lr=1.0)
    rate_on_device(optimizer, torch.device("cpu"))

    def step(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad(set_to_none=True)
        loss = F.mse_loss(x @ weight, y, reduction="sum")
        loss.backward()
        optimizer.step()
        return loss.detach()

    graphed = Graphed(step, calls_before=1)
    x, y = torch.eye(3), torch.tensor([1.0, 2.0, 3.0])
    for rate in (0.25, 0.5, 0.0):
        set_rate(optimizer, rate)
        loss = graphed(x, y)
    # Half of the way, then (with twice the rate) all of it; the third step sees no loss.
    assert float(loss) == 0
    torch.testing.assert_close(weight.detach(), y)
