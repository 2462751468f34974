"""DeepCAM's parallel modes against one process; `torchrun … segmentation_checks.py` starts two
ranks. Double precision; each mode trains two steps of SGD, pipelines micro-batch by micro-batch."""

from __future__ import annotations

import json
from collections.abc import Iterator

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from ai500.core import plugins
from ai500.parallel.engines import Engine, Setting
from ai500.parallel.engines.mesh import make_mesh
from ai500.parallel.engines.state import gather_weights
from ai500.records import Parallelism
from ai500.train.precision.numerics import Numerics
from ai500.workloads.models.deepcam import deepcam
from ai500.workloads.models.deepcam_plan import SMALL, deepcam_plan
from tests.support.engine_checks import _gradients, distance

CPU = torch.device("cpu")
STEPS, BATCH, SHAPE = 2, 4, (16, 32, 48)
MODES = {
    "tensor": Parallelism(mode="tensor", tensor_degree=2),
    "1f1b": Parallelism(mode="pipeline", pipeline_degree=2, microbatches=2),
    "gpipe": Parallelism(
        mode="pipeline", pipeline_degree=2, microbatches=2, pipeline_schedule="gpipe"
    ),
}


def model() -> nn.Module:
    torch.manual_seed(3)
    return deepcam(SMALL, channels=SHAPE[0], classes=3).double()


def batches() -> Iterator[tuple[int, tuple[Tensor, Tensor]]]:
    for step in range(STEPS):
        draw = torch.Generator().manual_seed(step)
        images = torch.randn(BATCH, *SHAPE, generator=draw, dtype=torch.float64)
        yield step, (images, torch.randint(3, (BATCH, *SHAPE[1:]), generator=draw))


def optimizer_of(parameters: Iterator[nn.Parameter] | list[nn.Parameter]) -> torch.optim.SGD:
    return torch.optim.SGD(parameters, lr=0.01, momentum=0.9)


def trained(parallel: Parallelism) -> tuple[Engine, dict[str, Tensor] | None]:
    """The engine after its steps, and the first step's gradients on rank 0."""
    setting = Setting(
        module=model(),
        loss=cross_entropy,
        parallel=parallel,
        mesh=make_mesh(parallel, device=CPU),
        plan=deepcam_plan(SMALL),
        input_shape=(BATCH, *SHAPE),
        device=CPU,
        numerics=Numerics("fp64", "IEEE FP64", CPU),
        collective=None,
    )
    engine: Engine = plugins.load("engine", parallel.mode)(setting)
    optimizer = optimizer_of(list(engine.parameters()))
    first = None
    for step, batch in batches():
        optimizer.zero_grad(set_to_none=True)
        engine.forward_backward(*batch)
        first = _gradients(engine) if step == 0 else first
        optimizer.step()
    return engine, first


def alone(microbatches: int) -> tuple[dict[str, Tensor], dict[str, Tensor], Tensor]:
    """Train in one process; return first gradients, last weights and logits."""
    single = model()
    optimizer = optimizer_of(single.parameters())
    first: dict[str, Tensor] = {}
    for step, (images, masks) in batches():
        optimizer.zero_grad(set_to_none=True)
        parts = zip(images.chunk(microbatches), masks.chunk(microbatches), strict=True)
        for part, part_masks in parts:
            (cross_entropy(single(part), part_masks) / microbatches).backward()
        if step == 0:
            first = {n: p.grad.clone() for n, p in single.named_parameters()}  # type: ignore[union-attr]
        optimizer.step()
    with torch.no_grad():
        return first, single.state_dict(), single.eval()(next(batches())[1][0])


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    whole = sum(parameter.numel() for parameter in model().parameters())
    for name, parallel in MODES.items():
        engine, gradients = trained(parallel)
        weights = gather_weights(engine.module, engine.layout)
        with engine.evaluating():
            logits = engine.predict(next(batches())[1][0])
        held = sum(parameter.numel() for parameter in engine.parameters())
        if weights is None or gradients is None:
            continue
        expected = alone(parallel.microbatches)
        result = {
            "mode": name,
            "held": held / whole,
            "gradients": distance(gradients, expected[0]),
            "weights": distance(weights, expected[1]),
            "running": distance(weights, expected[1], of="running"),
            "logits": float((logits - expected[2]).abs().max()),
        }
        print("FOUND", json.dumps(result), flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
