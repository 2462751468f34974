"""The detector's parallel modes; `torchrun … detector_checks.py` starts two ranks.

In double precision, as far as the model has it: classes and boxes are judged in single precision,
so the modes agree to its rounding. Each mode trains two steps; rank 0 prints how far first
gradients and last weights are from the reference's: one process for tensor parallelism and for
pipelines (micro-batch by micro-batch), data parallelism for what is sharded.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from ai500.core import plugins
from ai500.parallel import collectives
from ai500.parallel.engines import Engine, Setting
from ai500.parallel.engines.mesh import make_mesh
from ai500.parallel.engines.state import gather_weights
from ai500.records import Parallelism
from ai500.train.precision.numerics import Numerics
from ai500.workloads.detection.losses import detection_loss
from ai500.workloads.extreme_weather import CLASSES, WORKLOAD
from tests.support.engine_checks import _gradients, _own_share, distance

CPU = torch.device("cpu")
STEPS, BATCH = 2, 4
MODES = {
    "data": Parallelism(mode="data", data_degree=2),
    "sharded": Parallelism(mode="data", data_degree=2, sharded=True),
    "tensor": Parallelism(mode="tensor", tensor_degree=2),
    "1f1b": Parallelism(
        mode="pipeline", pipeline_degree=2, microbatches=2, pipeline_schedule="1f1b"
    ),
    "gpipe": Parallelism(
        mode="pipeline", pipeline_degree=2, microbatches=4, pipeline_schedule="gpipe"
    ),
}


def model() -> nn.Module:
    torch.manual_seed(3)
    return WORKLOAD.model(CLASSES["smoke"]).double()


def batches() -> Iterator[tuple[int, tuple[Tensor, Tensor]]]:
    """Two boxes in each image, in another place each time."""
    for step in range(STEPS):
        draw = torch.Generator().manual_seed(step)
        images = torch.randn(BATCH, 16, 64, 96, generator=draw, dtype=torch.float64)
        labels = torch.full((BATCH, 15, 5), -1.0)
        corner = torch.rand(BATCH, 2, 2, generator=draw) * 30
        labels[:, :2] = torch.cat([corner, corner + 20, torch.ones(BATCH, 2, 1)], dim=2)
        yield step, (images, labels)


def trained(parallel: Parallelism) -> tuple[Engine, dict[str, Tensor] | None]:
    """The engine after its steps, and the first step's gradients on rank 0."""
    mesh = make_mesh(parallel, device=CPU)
    collective = None
    if mesh.data.size > 1 and not parallel.sharded:
        collective = collectives.make("all_reduce", "fp32", group=mesh.data.group, local_size=2)
    setting = Setting(
        module=model(),
        loss=lambda outputs, labels: detection_loss(outputs),
        parallel=parallel,
        mesh=mesh,
        plan=WORKLOAD.parallel_plan(CLASSES["smoke"]),
        input_shape=(BATCH // mesh.data.size, 16, 64, 96),
        device=CPU,
        numerics=Numerics("fp64", "IEEE FP64", CPU),
        collective=collective,
        forward=WORKLOAD.forward,
    )
    engine: Engine = plugins.load("engine", "sharded" if parallel.sharded else parallel.mode)(
        setting
    )
    optimizer = torch.optim.SGD(engine.parameters(), lr=0.01, momentum=0.9)
    first = None
    for step, batch in batches():
        torch.manual_seed(step)
        optimizer.zero_grad(set_to_none=True)
        engine.forward_backward(*_own_share(engine, *batch))
        first = _gradients(engine) if step == 0 else first
        optimizer.step()
    return engine, first


def alone(microbatches: int) -> tuple[dict[str, Tensor], dict[str, Tensor], Tensor]:
    """Train in one process; return first gradients, last weights and detections."""
    single = model()
    optimizer = torch.optim.SGD(single.parameters(), lr=0.01, momentum=0.9)
    first: dict[str, Tensor] = {}
    for step, (images, labels) in batches():
        torch.manual_seed(step)
        optimizer.zero_grad(set_to_none=True)
        for part, part_labels in zip(
            images.chunk(microbatches), labels.chunk(microbatches), strict=True
        ):
            (detection_loss(single(part, part_labels)) / microbatches).backward()
        if step == 0:
            first = {n: p.grad.clone() for n, p in single.named_parameters()}  # type: ignore[union-attr]
        optimizer.step()
    with torch.no_grad():
        return first, single.state_dict(), single.eval()(next(batches())[1][0])


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    known: dict[str, Any] = {}
    for name, parallel in MODES.items():
        engine, gradients = trained(parallel)
        weights = gather_weights(engine.module, engine.layout)
        with engine.evaluating():
            detections = engine.predict(next(batches())[1][0])
        held = sum(p.to_local().numel() if hasattr(p, "to_local") else p.numel()
                   for p in engine.parameters())  # fmt: skip
        if weights is None or gradients is None:
            continue
        known[name] = gradients, weights, detections
        expected = known["data"] if parallel.mode == "data" else alone(parallel.microbatches)
        result = {
            "mode": name,
            "held": held,
            "gradients": distance(gradients, expected[0]),
            "weights": distance(weights, expected[1]),
            "running": distance(weights, expected[1], of="running"),
            "found": int((detections[..., 4] > 0).sum()),
            "detections": float((detections - expected[2]).abs().max()),
        }
        print("FOUND", json.dumps(result), flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
