"""Loss scaling over gloo: an overflow on one rank is an overflow of the member."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.torchrun import run_ranks

SCRIPT = """
import json, torch, torch.distributed as dist
from torch import nn
from ai500.train import precision
from ai500.train.precision.loss_scaling import LossScaling

dist.init_process_group("gloo")
rank = dist.get_rank()
numerics = precision.make("fp32", device=torch.device("cpu"))
numerics.loss_scaling = LossScaling(scale=8.0)
weight = nn.Parameter(torch.ones(3))  # a shard: each rank has its own
optimizer = torch.optim.SGD([weight], lr=1.0)
stepped = []
for step in range(4):
    weight.grad = torch.full((3,), float("inf") if (rank, step) == (1, 2) else 4.0)
    stepped.append(numerics.step(optimizer))
empty = torch.optim.SGD([nn.Parameter(torch.ones(1))], lr=1.0)  # a stage without gradients
stepped.append(numerics.step(empty if rank == 0 else optimizer))
ranks = [None] * dist.get_world_size()
dist.all_gather_object(ranks, (stepped, numerics.state_dict(), weight.tolist()))
if rank == 0:
    print("FOUND", json.dumps(ranks))
dist.destroy_process_group()
"""


@pytest.mark.timeout(300)
def test_all_ranks_skip_the_step_in_which_one_overflows(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT, encoding="utf-8")
    (printed,) = run_ranks(script, ranks=2, timeout=240)
    for stepped, state, _ in printed:
        assert stepped == [True, True, False, True, True]
        assert (state["scale"], state["skipped_steps"]) == (4.0, 1)
    # Gradients of 4 at scale 8 are 0.5, after the halving 1; rank 1's last one was divided again.
    assert printed[0][2] == [1 - 0.5 - 0.5 - 1.0] * 3
    assert printed[1][2] == [1 - 0.5 - 0.5 - 1.0 - 0.25] * 3
