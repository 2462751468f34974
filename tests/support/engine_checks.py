"""Engines against one process; `torchrun … engine_checks.py WORLD FOLDER` starts the ranks.

Each case trains five steps in double precision and prints how far rank 0 finds gradients, weights
and running statistics from those of a single process on the same global batch, and whether a
training that is stopped and restored ends with the same bits.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from ai500.core import plugins
from ai500.parallel import collectives
from ai500.parallel.engines import Engine, Setting
from ai500.parallel.engines.mesh import make_mesh
from ai500.parallel.engines.state import gather_optimizer, gather_tensors, gather_weights
from ai500.parallel.targets import Targets
from ai500.records import Parallelism
from ai500.train import checkpoint
from ai500.train.optimizers import LAMB, LARS
from ai500.train.precision.numerics import Numerics
from ai500.workloads.models.resnet import Bottleneck, ResNet, small_resnet
from ai500.workloads.models.resnet_plan import resnet_plan

CPU = torch.device("cpu")
OWNER = {"trial": 1, "member": 0, "seed": 1}
STEPS = 5
BATCH = 32
RANKS_PER_NODE = 2
"""Ranks on an emulated node, so that hierarchical collectives have two levels."""


@dataclass(frozen=True)
class Case:
    """A parallel mode with all that goes with it."""

    parallel: Parallelism
    communication: str = "all_reduce"
    precision: str = "fp32"
    block: str = "basic"
    optimizer: str = "sgd"
    accumulation: int = 1

    @property
    def name(self) -> str:
        p = self.parallel
        shape = f"{p.data_degree}x{p.pipeline_degree}x{p.tensor_degree}"
        parts = [p.mode, shape, p.batch_norm]
        parts += ["sharded"] * p.sharded
        parts += [p.pipeline_schedule] * (p.pipeline_degree > 1)
        parts += [self.communication, self.precision] * (p.data_degree > 1)
        parts += [f"accumulation{self.accumulation}"] * (self.accumulation > 1)
        return " ".join([*parts, self.block, self.optimizer])


def parallel(mode: str, data: int, pipeline: int, tensor: int, **more: Any) -> Parallelism:
    return Parallelism(
        mode=mode,
        data_degree=data,
        pipeline_degree=pipeline,
        tensor_degree=tensor,
        microbatches=2 * pipeline if pipeline > 1 else 1,
        **more,
    )


def cases(world: int) -> Iterator[Case]:
    """All that is checked in a world of so many processes."""
    yield from {2: _two, 4: _four, 8: _eight}[world]()


def _two() -> Iterator[Case]:
    yield Case(parallel("data", 2, 1, 1))
    yield Case(parallel("tensor", 1, 1, 2), block="bottleneck", optimizer="adam")
    yield Case(parallel("pipeline", 1, 2, 1), block="bottleneck", optimizer="adam")
    yield Case(parallel("pipeline", 1, 2, 1, pipeline_schedule="gpipe"), accumulation=2)
    yield Case(parallel("tensor", 1, 1, 2), accumulation=2)
    yield Case(parallel("tensor", 1, 1, 2), optimizer="lars")
    yield Case(parallel("data", 2, 1, 1, sharded=True), optimizer="lamb")


def _four() -> Iterator[Case]:
    for norm in ("replica", "synchronized"):
        for mode in ("all_reduce", "hierarchical", "torus_2d"):
            yield Case(parallel("data", 4, 1, 1, batch_norm=norm), communication=mode)
        yield Case(parallel("data", 4, 1, 1, batch_norm=norm, sharded=True))
        yield Case(parallel("mixed", 2, 2, 1, batch_norm=norm))
        yield Case(parallel("mixed", 2, 1, 2, batch_norm=norm))
    yield Case(parallel("mixed", 2, 2, 1), communication="hierarchical")
    yield Case(parallel("mixed", 2, 1, 2), communication="hierarchical")
    yield Case(parallel("mixed", 2, 1, 2), precision="int8")
    for precision in ("fp16", "bf16", "int8"):
        yield Case(parallel("data", 4, 1, 1), precision=precision)
    for schedule in ("1f1b", "gpipe"):
        yield Case(parallel("pipeline", 1, 4, 1, pipeline_schedule=schedule))
    yield Case(parallel("tensor", 1, 1, 4))
    yield Case(parallel("tensor", 1, 1, 4), block="bottleneck")
    yield Case(parallel("mixed", 1, 2, 2), optimizer="adam")
    yield Case(parallel("mixed", 4, 1, 1), communication="torus_2d", precision="int8")
    yield Case(parallel("data", 4, 1, 1), accumulation=2)
    yield Case(parallel("data", 4, 1, 1, sharded=True), accumulation=2, optimizer="adam")
    yield Case(parallel("mixed", 2, 2, 1), accumulation=2, block="bottleneck")


def _eight() -> Iterator[Case]:
    for norm in ("replica", "synchronized"):
        yield Case(parallel("mixed", 2, 2, 2, batch_norm=norm))
    yield Case(parallel("mixed", 2, 2, 2), communication="hierarchical", optimizer="lamb")
    yield Case(parallel("mixed", 4, 1, 2), communication="torus_2d")
    yield Case(parallel("mixed", 4, 2, 1), communication="torus_2d")
    yield Case(parallel("mixed", 4, 2, 1), communication="torus_2d", precision="fp16")


def model_of(case: Case) -> nn.Module:
    torch.manual_seed(3)
    if case.block == "basic":
        model: nn.Module = small_resnet(classes=10, width=8)
    else:
        model = ResNet(Bottleneck, (1, 2), width=8, classes=7, stem="imagenet")
    return model.double().to(memory_format=torch.channels_last)


def plan_of(case: Case) -> Any:
    if case.block == "basic":
        return resnet_plan("basic", (1, 1, 1), width=8)
    return resnet_plan("bottleneck", (1, 2), width=8)


def optimizer_of(case: Case, parameters: Any) -> torch.optim.Optimizer:
    if case.optimizer == "adam":
        # A large ε: near a gradient of zero Adam would blow rounding errors up to whole steps.
        return torch.optim.Adam(parameters, lr=0.01, eps=1e-2, weight_decay=1e-3)
    if case.optimizer == "lars":
        return LARS(
            parameters,
            {"lr": 5.0, "momentum": 0.9, "weight_decay": 1e-3, "trust_coefficient": 1e-3},
        )
    if case.optimizer == "lamb":
        return LAMB(
            parameters, {"lr": 0.01, "betas": (0.9, 0.999), "eps": 1e-2, "weight_decay": 1e-3}
        )
    return torch.optim.SGD(parameters, lr=0.05, momentum=0.9, weight_decay=1e-3)


def engine_of(case: Case) -> Engine:
    mesh = make_mesh(case.parallel, device=CPU)
    collective = None
    if mesh.data.size > 1 and not case.parallel.sharded:
        per_node = max(RANKS_PER_NODE, mesh.size // 2)
        collective = collectives.make(
            case.communication, case.precision, group=mesh.data.group, local_size=per_node
        )
    setting = Setting(
        module=model_of(case),
        loss=_loss,
        parallel=case.parallel,
        mesh=mesh,
        plan=plan_of(case),
        input_shape=(BATCH // mesh.data.size // case.accumulation, 3, 16, 16),
        device=CPU,
        numerics=Numerics("fp64", "IEEE FP64", CPU),
        collective=collective,
        accumulation=case.accumulation,
    )
    name = "sharded" if case.parallel.sharded else case.parallel.mode
    made: Engine = plugins.load("engine", name)(setting)
    return made


def batch(step: int) -> tuple[Tensor, Tensor]:
    draw = torch.Generator().manual_seed(1000 + step)
    images = torch.randn(BATCH, 3, 16, 16, generator=draw, dtype=torch.float64)
    return images, torch.randint(7, (BATCH,), generator=draw)


def alone(case: Case) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """A single process on the same global batches: first gradients, last weights."""
    model = model_of(case)
    optimizer = optimizer_of(case, model.parameters())
    gradients: dict[str, Tensor] = {}
    for step in range(STEPS):
        optimizer.zero_grad()
        parts = list(_norm_batches(case, *batch(step)))
        for images, labels, first_replica in parts:
            running = [buffer.clone() for buffer in model.buffers()]
            (cross_entropy(model(images), labels) / len(parts)).backward()
            if not first_replica:  # its running statistics are its own
                for buffer, before in zip(model.buffers(), running, strict=True):
                    buffer.copy_(before)
        if step == 0:
            gradients = {n: p.grad.clone() for n, p in model.named_parameters()}  # type: ignore[union-attr]
        optimizer.step()
    return gradients, model.state_dict()


def _norm_batches(
    case: Case, images: Tensor, labels: Tensor
) -> Iterator[tuple[Tensor, Tensor, bool]]:
    """Those samples together whose statistics batch norm takes together, and whether the first
    data-parallel rank has them."""
    replicas = case.parallel.data_degree
    micro = case.accumulation * case.parallel.microbatches
    cut = [[piece.chunk(micro) for piece in tensor.chunk(replicas)] for tensor in (images, labels)]
    for number in range(micro):
        parts = [[replica[number] for replica in tensor] for tensor in cut]
        if case.parallel.batch_norm == "synchronized":
            yield torch.cat(parts[0]), torch.cat(parts[1]), True
        else:
            for replica in range(replicas):
                yield parts[0][replica], parts[1][replica], replica == 0


def train(
    case: Case, *, first: int = 0, last: int = STEPS, file: Path | None = None
) -> tuple[Engine, torch.optim.Optimizer, dict[str, Tensor] | None]:
    """Steps `first` to `last`, from the checkpoint in `file` if there is one."""
    engine = engine_of(case)
    optimizer = optimizer_of(case, engine.parameters())
    engine.prepare(optimizer)
    engine.warm_up(*_own_targets(engine, *batch(99)))
    if file is not None:
        checkpoint.restore(file, _trained(engine, optimizer), owner=OWNER, on_damaged=print)
    gradients = None
    for step in range(first, last):
        optimizer.zero_grad(set_to_none=True)
        engine.forward_backward(*_own_targets(engine, *batch(step)))
        if step == 0:
            gradients = _gradients(engine)
        optimizer.step()
    return engine, optimizer, gradients


def _numerics() -> Numerics:
    return Numerics("fp64", "IEEE FP64", CPU)


def _own_share(engine: Engine, images: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    data = engine.mesh.data
    return images.chunk(data.size)[data.rank], labels.chunk(data.size)[data.rank]


def _own_targets(engine: Engine, images: Tensor, labels: Tensor) -> tuple[Tensor, Targets]:
    """This rank's share with several tensors as targets: a micro-step gets its rows of each."""
    own_images, own_labels = _own_share(engine, images, labels)
    return own_images, {"labels": own_labels, "same": (own_labels + 1,)}


def _loss(outputs: Tensor, targets: Targets) -> Tensor:
    assert torch.equal(targets["labels"] + 1, targets["same"][0])
    return cross_entropy(outputs, targets["labels"])


def _gradients(engine: Engine) -> dict[str, Tensor] | None:
    own = {}
    for name, parameter in engine.module.named_parameters():
        gradient = parameter.grad
        assert gradient is not None, name
        # A copy: DDP keeps gradients in its buckets, and uses those again.
        own[name] = (gradient.to_local() if hasattr(gradient, "to_local") else gradient).clone()
    return gather_tensors(own, engine.layout, {name: name for name in own})


def _trained(engine: Engine, optimizer: torch.optim.Optimizer) -> SimpleNamespace:
    return SimpleNamespace(engine=engine, optimizer=optimizer, numerics=_numerics())


def stopped(case: Case, file: Path) -> None:
    """A checkpoint after three steps."""
    engine, optimizer, _ = train(case, last=3)
    writer = checkpoint.Writer(OWNER)
    writer.save(file, _trained(engine, optimizer), checkpoint.Position(seed=1, step=3))
    writer.wait()
    dist.barrier()


def resumes(case: Case, file: Path, expected: str | None) -> bool:
    """Restored in a new engine, and the same bits at the end."""
    engine, _, _ = train(case, first=3, file=file)
    weights = gather_weights(engine.module, engine.layout)
    return weights is None or checkpoint.weights_sha256(weights) == expected


def taken_over(case: Case, file: Path) -> bool:
    """Restored by another mode, weights and optimizer state have the same bits."""
    other = "sharded" if case.parallel.mode == "data" and not case.parallel.sharded else "data"
    world = dist.get_world_size()
    shape = parallel("data", world, 1, 1, sharded=other == "sharded")
    engine, optimizer, _ = train(
        replace(case, parallel=shape, precision="fp32", accumulation=1), last=0, file=file
    )
    weights = gather_weights(engine.module, engine.layout)
    state = gather_optimizer(optimizer, engine.module, engine.layout)
    if weights is None or state is None:
        return True
    saved = checkpoint.read(file, owner=OWNER)
    return _same(saved["model"], weights) and _same(saved["optimizer"]["state"], state["state"])


def _same(first: dict[str, Tensor], second: dict[str, Tensor]) -> bool:
    return first.keys() == second.keys() and all(torch.equal(first[k], second[k]) for k in first)


def predictions_error(engine: Engine, weights: dict[str, Tensor] | None, case: Case) -> float:
    """Return the error on an odd number of samples, against one process."""
    images = batch(50)[0][:5]
    with engine.evaluating():
        outputs = engine.predict(images)
    if weights is None:
        return 0.0
    model = model_of(case)
    model.load_state_dict(weights)
    with torch.no_grad():
        return float((outputs - model.eval()(images)).abs().max())


def distance(actual: dict[str, Tensor], expected: dict[str, Tensor], *, of: str = "") -> float:
    """The largest difference of any two values, over the largest value of their tensor."""
    assert actual.keys() == expected.keys(), actual.keys() ^ expected.keys()
    return max(
        float((actual[name] - value).abs().max() / value.abs().max().clamp(min=1e-30))
        for name, value in expected.items()
        if name.rpartition(".")[2].startswith("running") == (of == "running")
        and value.is_floating_point()
    )


def overall(actual: dict[str, Tensor], expected: dict[str, Tensor]) -> float:
    """The same over the largest value of all tensors: what a rounding on the wire may cost."""
    largest = max(float(value.abs().max()) for value in expected.values())
    return (
        max(float((actual[name] - value).abs().max()) for name, value in expected.items()) / largest
    )


def check(case: Case, folder: Path) -> dict[str, Any]:
    engine, _, gradients = train(case)
    weights = gather_weights(engine.module, engine.layout)
    predicted = predictions_error(engine, weights, case)
    description = engine.describe()
    sha256 = checkpoint.weights_sha256(weights) if weights is not None else None
    result: dict[str, Any] = {"case": case.name, "describe": description}
    if case.communication == "all_reduce" or case.precision == "int8":
        file = folder / f"{case.name}.pt"
        stopped(case, file)
        result["resumed"] = resumes(case, file, sha256)
        result["taken_over"] = taken_over(case, file)
    if weights is not None and gradients is not None:
        expected_gradients, expected = alone(case)
        result |= {
            "gradients": distance(gradients, expected_gradients),
            "gradients_overall": overall(gradients, expected_gradients),
            "weights": distance(weights, expected),
            "running": distance(weights, expected, of="running"),
            "predictions": predicted,
        }
    return result


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    folder = Path(sys.argv[2])
    chosen = [case for case in cases(int(sys.argv[1])) if all(w in case.name for w in sys.argv[3:])]
    for case in chosen:
        result = check(case, folder)
        if dist.get_rank() == 0:
            print("FOUND", json.dumps(result), flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
