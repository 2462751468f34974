"""A transformer's parallel modes against one process; `torchrun … transformer_checks.py` starts
the ranks. Double precision; each mode trains three steps of AdamW, the same cases as for other
models (`engine_checks.py`) with a tied embedding, attention heads and integer inputs."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from ai500.core import plugins
from ai500.parallel import collectives
from ai500.parallel.engines import Engine, Setting
from ai500.parallel.engines.mesh import make_mesh
from ai500.parallel.engines.state import gather_optimizer, gather_weights
from ai500.records import Parallelism
from ai500.train import checkpoint
from ai500.train.precision.numerics import Numerics
from ai500.workloads.models.transformer import Transformer
from ai500.workloads.models.transformer_plan import TransformerShape, transformer_plan
from tests.support.engine_checks import _gradients, _own_share, _same, distance

CPU = torch.device("cpu")
OWNER = {"trial": 1, "member": 0, "seed": 1}
STEPS, STOP, BATCH = 4, 2, 8
SHAPE = TransformerShape(vocabulary=32, context=12, width=16, heads=4, layers=3)
MODES = {
    2: {
        "data": Parallelism(mode="data", data_degree=2),
        "sharded": Parallelism(mode="data", data_degree=2, sharded=True),
        "tensor": Parallelism(mode="tensor", tensor_degree=2),
        "1f1b": Parallelism(mode="pipeline", pipeline_degree=2, microbatches=4),
        "gpipe": Parallelism(
            mode="pipeline", pipeline_degree=2, microbatches=2, pipeline_schedule="gpipe"
        ),
    },
    4: {
        "data": Parallelism(mode="data", data_degree=4),
        "tensor": Parallelism(mode="tensor", tensor_degree=4),
        "four stages": Parallelism(mode="pipeline", pipeline_degree=4, microbatches=4),
        "pipeline × tensor": Parallelism(
            mode="mixed", pipeline_degree=2, tensor_degree=2, microbatches=2
        ),
        "data × pipeline": Parallelism(
            mode="mixed", data_degree=2, pipeline_degree=2, microbatches=2
        ),
        "data × tensor": Parallelism(mode="mixed", data_degree=2, tensor_degree=2),
    },
}


def model() -> nn.Module:
    torch.manual_seed(3)
    return Transformer(SHAPE).double()


def batch(step: int) -> tuple[Tensor, Tensor]:
    draw = torch.Generator().manual_seed(step)
    tokens = torch.randint(SHAPE.vocabulary, (BATCH, SHAPE.context + 1), generator=draw)
    return tokens, tokens


def loss(outputs: Tensor, labels: Tensor) -> Tensor:
    return -outputs.mean()


def optimizer_of(parameters: Any) -> torch.optim.Optimizer:
    # A large ε: near a gradient of zero Adam would blow rounding errors up to whole steps.
    return torch.optim.AdamW(parameters, lr=0.01, eps=1e-2, weight_decay=0.1)


def engine_of(parallel: Parallelism) -> Engine:
    mesh = make_mesh(parallel, device=CPU)
    collective = None
    if mesh.data.size > 1 and not parallel.sharded:
        collective = collectives.make("all_reduce", "fp32", group=mesh.data.group, local_size=2)
    setting = Setting(
        module=model(),
        loss=loss,
        parallel=parallel,
        mesh=mesh,
        plan=transformer_plan(SHAPE),
        input_shape=(BATCH // mesh.data.size, SHAPE.context + 1),
        input_dtype=torch.int64,
        device=CPU,
        numerics=_numerics(),
        collective=collective,
    )
    name = "sharded" if parallel.sharded else parallel.mode
    made: Engine = plugins.load("engine", name)(setting)
    return made


def _numerics() -> Numerics:
    return Numerics("fp64", "IEEE FP64", CPU)


def _trained(engine: Engine, optimizer: torch.optim.Optimizer) -> SimpleNamespace:
    return SimpleNamespace(engine=engine, optimizer=optimizer, numerics=_numerics())


def trained(
    parallel: Parallelism, *, first: int = 0, last: int = STEPS, file: Path | None = None
) -> tuple[Engine, torch.optim.Optimizer, dict[str, Tensor] | None]:
    """The engine and optimizer after their steps, and the first step's gradients on rank 0."""
    engine = engine_of(parallel)
    optimizer = optimizer_of(engine.parameters())
    engine.prepare(optimizer)
    engine.warm_up(*_own_share(engine, *batch(99)))
    if file is not None:
        checkpoint.restore(file, _trained(engine, optimizer), owner=OWNER, on_damaged=print)
    gradients = None
    for step in range(first, last):
        optimizer.zero_grad(set_to_none=True)
        engine.forward_backward(*_own_share(engine, *batch(step)))
        gradients = _gradients(engine) if step == 0 else gradients
        optimizer.step()
    return engine, optimizer, gradients


def alone() -> tuple[dict[str, Tensor], dict[str, Tensor], Tensor]:
    """Train in one process; return first gradients, last weights and scores of a batch."""
    single = model()
    optimizer = optimizer_of(single.parameters())
    first: dict[str, Tensor] = {}
    for step in range(STEPS):
        optimizer.zero_grad()
        loss(single(batch(step)[0]), batch(step)[1]).backward()
        if step == 0:
            first = {n: p.grad.clone() for n, p in single.named_parameters()}  # type: ignore[union-attr]
        optimizer.step()
    with torch.no_grad():
        return first, single.state_dict(), single.eval()(batch(50)[0][:5])


def restored(parallel: Parallelism, file: Path, expected: dict[str, Tensor] | None) -> list[bool]:
    """Whether a training that stops and is restored ends with the same bits; whether data
    parallelism takes the checkpoint over with the same bits, weights and optimizer alike."""
    engine, optimizer, _ = trained(parallel, last=STOP)
    writer = checkpoint.Writer(OWNER)
    position = checkpoint.Position(seed=1, step=STOP)
    writer.save(file, _trained(engine, optimizer), position)
    writer.wait()
    dist.barrier()
    resumed = trained(parallel, first=STOP, file=file)[0]
    weights = gather_weights(resumed.module, resumed.layout)
    other = Parallelism(mode="data", data_degree=dist.get_world_size())
    engine, optimizer, _ = trained(other, last=0, file=file)
    taken = gather_weights(engine.module, engine.layout)
    state = gather_optimizer(optimizer, engine.module, engine.layout)
    if weights is None or expected is None or taken is None or state is None:
        return []
    saved = checkpoint.read(file, owner=OWNER)
    return [
        _same(weights, expected),
        _same(saved["model"], taken) and _same(saved["optimizer"]["state"], state["state"]),
    ]


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    folder = Path(sys.argv[1])
    for number, (name, parallel) in enumerate(MODES[dist.get_world_size()].items()):
        engine, _, gradients = trained(parallel)
        weights = gather_weights(engine.module, engine.layout)
        with engine.evaluating():
            scores = engine.predict(batch(50)[0][:5])
        held = sum(p.to_local().numel() if hasattr(p, "to_local") else p.numel()
                   for p in engine.parameters())  # fmt: skip
        same_bits = restored(parallel, folder / f"{number}.pt", weights)
        if weights is None or gradients is None:
            continue
        expected = alone()
        result = {
            "mode": name,
            "held": held,
            "gradients": distance(gradients, expected[0]),
            "weights": distance(weights, expected[1]),
            "scores": float((scores - expected[2]).abs().max()),
            "same_bits": same_bits,
        }
        print("FOUND", json.dumps(result), flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
