"""Data parallelism over gloo: three real processes, stopped and started again, bit by bit."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import SOURCE

SCRIPT = """
import sys
from pathlib import Path
import torch, torch.distributed as dist
from torch.nn.functional import cross_entropy
from ai500.parallel.engines.data import DataParallel
from ai500.train import checkpoint
from ai500.workloads.models.resnet import small_resnet

path, last = Path(sys.argv[1]), int(sys.argv[2])
torch.set_num_threads(1)
dist.init_process_group("gloo")
torch.manual_seed(5)
model = small_resnet(classes=10)
engine = DataParallel(model, cross_entropy, device=torch.device("cpu"), world_size=3)
optimizer = torch.optim.SGD(engine.parameters(), lr=0.1, momentum=0.9)
engine.settle(torch.randn(8, 3, 24, 24), torch.zeros(8, dtype=torch.long))
position = checkpoint.restore(path, model=model, optimizer=optimizer, seed=5)
position = position or checkpoint.Position(seed=5)
for step in range(position.step, last):
    draw = torch.Generator().manual_seed(100 * step + dist.get_rank())
    optimizer.zero_grad(set_to_none=True)
    images = torch.randn(8, 3, 24, 24, generator=draw)
    engine.forward_backward(images, torch.randint(10, (8,), generator=draw))
    optimizer.step()
position.step = last
if dist.get_rank() == 0:
    checkpoint.save(path, model=model, optimizer=optimizer, position=position)
weights = torch.cat([p.detach().flatten() for p in engine.parameters()])
everyone = [torch.empty_like(weights) for _ in range(3)]
dist.all_gather(everyone, weights)
assert all(torch.equal(weights, other) for other in everyone), "ranks differ"
if dist.get_rank() == 0:
    import hashlib
    print("WEIGHTS", hashlib.sha256(weights.numpy().tobytes()).hexdigest())
dist.barrier()
dist.destroy_process_group()
"""


def weights_after(script: Path, checkpoint: Path, last: int) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=3",
         str(script), str(checkpoint), str(last)],
        env={"PYTHONPATH": str(SOURCE), "OMP_NUM_THREADS": "1", "PATH": ""},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "Warning" not in done.stderr
    return next(line for line in done.stdout.splitlines() if line.startswith("WEIGHTS"))


@pytest.mark.timeout(400)
def test_three_ranks_resume_bit_by_bit(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT, encoding="utf-8")
    straight = weights_after(script, tmp_path / "straight.pt", 6)
    weights_after(script, tmp_path / "stopped.pt", 3)
    assert weights_after(script, tmp_path / "stopped.pt", 6) == straight
