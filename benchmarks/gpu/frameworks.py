"""ResNet-50 v1.5 in PyTorch and JAX on one GPU: the same step, BF16, batch 512, in one call.

    PYTHONPATH=src python3 -m benchmarks.gpu.frameworks [--parts torch,jax] [--batch 512]
        [--image 224] [--stored 256] [--steps 20]

Rows, each the median of three rounds:
`ours`: PyTorch with ai500's kernels, captured, on a batch that stays on the GPU;
`compile`: torch.compile of the plain model, captured, on the same batch;
`bare`: a plain JAX loop (forward, backward, SGD; no augmentation) on a batch on the GPU;
`step`: the step of ai500's JAX backend on a stored batch on the GPU: crop, flip, normalization too;
`loop`: ai500's whole loop in JAX: order, reading, copying, schedule, events, progress.

Prediction for one H200 (torch 2.11, jax 0.11): `bare` 7,200 images/s, as flax did (7,218 measured);
`step` 0.98 of it (the crop reads 100 MB and writes 460 MB more: 1 to 1.5 ms of 71); `loop` 0.97 or
more (a thread gathers and copies 100 MB in 30 to 50 ms while the GPU computes); `compile` 0.97 of
`bare`, `ours` 1.1 of it. Whole call: 90 s, of which XLA compiles twice 20 s. Numbers: $OUT.

Each framework runs in a process of its own, one after the other. Without a GPU, `--batch 4 --image
64 --stored 72 --steps 1` tries everything that a CPU can.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray

WARM_UP_STEPS = 6
ROUNDS = 3
NEVER = 1_000_000
STORED_IMAGES = 2048  # distinct samples of the loop's store, in the host's memory
RESULTS = Path(os.environ.get("OUT", ".")) / "frameworks.json"


def seconds_per_step(
    step: Callable[[], object], wait: Callable[[object], object], *, steps: int
) -> float:
    """Return the median of the rounds, after a warm-up; `wait` takes a step's last result."""
    for _ in range(WARM_UP_STEPS):
        last = step()
    wait(last)
    rounds = []
    for _ in range(ROUNDS):
        began = time.perf_counter()
        for _ in range(steps):
            last = step()
        wait(last)
        rounds.append((time.perf_counter() - began) / steps)
    return median(rounds)


def report(name: str, seconds: float, options: argparse.Namespace, **fields: object) -> None:
    """Print a row for a reader, and as JSON for the calling process."""
    row = {"seconds_per_step": seconds, "samples_per_second": options.batch / seconds, **fields}
    print(
        f"{name:8s} {1e3 * seconds:8.2f} ms  {options.batch / seconds:8,.0f} images/s", flush=True
    )
    print("ROW " + json.dumps({name: row}), flush=True)


def time_torch(options: argparse.Namespace) -> None:
    """Time `ours` and `compile`; on a CPU the plain model stands for both."""
    import torch

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    shape = (options.batch, 3, options.image, options.image)
    images = torch.randn(shape, device=device).contiguous(memory_format=torch.channels_last)
    labels = torch.randint(0, 1000, (options.batch,), device=device)
    for name, kind in (("ours", "tiles"), ("compile", "compiled")):
        began = time.perf_counter()
        step = captured_step(kind) if device.type == "cuda" else eager_step()
        constant = functools.partial(step, images, labels)
        seconds = seconds_per_step(constant, float, steps=options.steps)
        ready = time.perf_counter() - began - ROUNDS * options.steps * seconds
        report(name, seconds, options, version=torch.__version__, ready_seconds=ready)


def captured_step(kind: str) -> Callable[..., Any]:
    """Return a step of `benchmarks.gpu.resnet` in a CUDA graph."""
    import torch
    from benchmarks.gpu import resnet

    from ai500.parallel.cuda_graph import Graphed

    torch.backends.cudnn.benchmark = True
    model = resnet.make_model(kind, "bf16")
    return Graphed(resnet.make_step(model, resnet.sgd(model, rate=0.01), "bf16"))


def eager_step() -> Callable[..., Any]:
    """Return a plain step on the CPU."""
    import torch
    from torch.nn.functional import cross_entropy

    from ai500.workloads.models.resnet import resnet50

    model = resnet50()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)

    def step(images: Any, labels: Any) -> Any:
        optimizer.zero_grad()
        loss = cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


class MemorySamples:
    """Samples in the host's memory, in the form of a store's split."""

    def __init__(self, count: int, size: int) -> None:
        random = np.random.default_rng(1)
        self.count = count
        self._images = random.integers(0, 256, (count, size, size, 3), dtype=np.uint8)
        self._labels = random.integers(0, 1000, count)

    def rows(self, indices: NDArray[np.int64], **_: object) -> dict[str, NDArray[Any]]:
        """Return these samples."""
        return {"images": np.take(self._images, indices, axis=0), "labels": self._labels[indices]}


def time_jax(options: argparse.Namespace) -> None:
    """Time `bare`, `step` and `loop`."""
    from ai500.frameworks.jax_backend import jax, make_backend
    from ai500.frameworks.jax_backend import sgd as update
    from ai500.frameworks.jax_resnet import scores

    setting = make_setting(options)
    backend = make_backend(setting)
    samples = MemorySamples(min(STORED_IMAGES, 4 * options.batch), options.stored)
    began = time.perf_counter()
    step, version = bare_step(backend, setting, scores, update, options), jax.__version__
    seconds = seconds_per_step(step, float, steps=options.steps)
    report("bare", seconds, options, version=version, ready_seconds=time.perf_counter() - began)
    began = time.perf_counter()
    batch = backend.place(
        samples.rows(np.arange(options.batch)),
        np.random.default_rng(2).random((options.batch, 5), dtype=np.float32),
    )
    seconds = seconds_per_step(
        lambda: backend.train_step(batch, learning_rate=0.01), float, steps=options.steps
    )
    report("step", seconds, options, version=version, ready_seconds=time.perf_counter() - began)
    with tempfile.TemporaryDirectory() as folder:
        loop = loop_step(backend, setting, samples, Path(folder))
        report("loop", seconds_per_step(loop, float, steps=options.steps), options)


def make_setting(options: argparse.Namespace) -> Any:
    """Return the backend's setting: class `workstation` with ImageNet's classes, in mixed BF16."""
    from ai500.frameworks.backend import Setting
    from ai500.train.worker import Rank
    from ai500.workloads.image_classification import CLASSES
    from ai500.workloads.models.resnet_layers import class_resnet, initial_weights

    definition = dataclasses.replace(
        CLASSES["workstation"], classes=1000, input_shape=(3, options.image, options.image)
    )
    hyper = dataclasses.replace(
        definition.reference, precision="mixed-bf16", batch_size=options.batch, epochs=NEVER,
        base_learning_rate=0.001, evaluate_every_epochs=NEVER,
    )  # fmt: skip
    return Setting(
        problem_class=definition,
        hyperparameters=hyper,
        weights=dict(initial_weights(class_resnet(definition), seed=1)),
        rank=Rank(0, 0, 1, 1),
        device=options.device,
        threads=None,
    )


def bare_step(
    backend: Any, setting: Any, scores: Any, update: Any, options: argparse.Namespace
) -> Callable[[], object]:
    """Return a plain jitted step on prepared inputs, outside of the backend."""
    from ai500.frameworks.jax_resnet import cross_entropy, jax, jnp
    from ai500.workloads.models.resnet_layers import class_resnet

    model, hyper = class_resnet(setting.problem_class), setting.hyperparameters
    size = options.image
    inputs = jax.random.normal(
        jax.random.key(1), (options.batch, size, size, 3), dtype=jnp.bfloat16
    )
    labels = jnp.arange(options.batch, dtype=jnp.int32) % 1000

    def step(weights: Any, statistics: Any, momenta: Any) -> Any:
        def loss_of(weights: Any) -> Any:
            logits, new = scores(model, weights, statistics, inputs, training=True)
            return cross_entropy(logits, labels, smoothing=0.0), new

        (loss, new), gradients = jax.value_and_grad(loss_of, has_aux=True)(weights)
        weights, momenta = update(weights, momenta, gradients, 0.01, hyper)
        return weights, new, momenta, loss

    compiled = jax.jit(step, donate_argnums=(0, 1, 2))
    state = [jax.tree.map(jnp.copy, tree) for tree in backend.trees()]

    def one() -> object:
        *new, loss = compiled(*state)
        state[:] = new
        return loss

    return one


def loop_step(backend: Any, setting: Any, samples: Any, folder: Path) -> Callable[[], object]:
    """Drive the real loop a step at a time, on samples in the host's memory."""
    from ai500.core.events import EventLog
    from ai500.frameworks.array_checkpoint import ArrayWriter, owner_of
    from ai500.frameworks.array_feed import ArrayEvaluator, ArrayFeed
    from ai500.frameworks.array_member import ArrayMember
    from ai500.records import Communication, FrameworkChoice, Parallelism, Slot, Task
    from ai500.records.run_folder import MemberFolder
    from ai500.train import loop
    from ai500.train.position import Position
    from ai500.workloads.image_classification import WORKLOAD

    hyper, member_folder = setting.hyperparameters, MemberFolder(folder)
    # An epoch of many passes: a run's epochs are longer than this benchmark.
    counts = np.full(samples.count, 200, dtype=np.uint8)
    task = Task(
        run=str(folder), trial=1, member=0, seed=1, workload=WORKLOAD.name,
        definition=setting.problem_class, hyperparameters=hyper,
        parallel=Parallelism(mode="data"), communication=Communication(), parallel_degree=1,
        steps_per_epoch=int(counts.sum(dtype=np.int64)) // hyper.batch_size,
        slots=(Slot(0, setting.device, ()),), bootstrap="", store="", staged=None, stage=False,
        scratch=None, node_members=(0,), folder=str(folder), checkpoint_seconds=NEVER,
        convention="aiperf", framework=FrameworkChoice("jax"),
    )  # fmt: skip
    member = ArrayMember(
        task=task, folder=member_folder, workload=WORKLOAD, backend=backend,
        feed=ArrayFeed(
            samples=samples, backend=backend, seed=1, member=0, rank=0, world_size=1,
            batch_size=hyper.batch_size, draws_per_sample=WORKLOAD.draws_per_sample,
            reads_ahead=setting.device != "cpu",
        ),
        evaluator=ArrayEvaluator(
            problem_class=setting.problem_class, backend=backend, samples=samples, rank=0,
            world_size=1, batch_size=hyper.batch_size,
        ),
        counts=counts,
        events=EventLog(member_folder.events, trial=1, member=0, attempt=1),
        checkpoints=ArrayWriter(owner_of(task), writes=False),
        stop_requested=lambda: False,
    )  # fmt: skip
    steps = loop.training_steps(member, Position(seed=1))
    request = next(steps)

    def step() -> object:
        nonlocal request
        loss = member.step(request)
        request = steps.send(loss)
        return loss

    return step


PARTS: dict[str, Callable[[argparse.Namespace], None]] = {"torch": time_torch, "jax": time_jax}


def run_part(part: str, arguments: Sequence[str]) -> dict[str, Any]:
    """Run a framework in a process of its own; return its rows. An error leaves the others."""
    words = [sys.executable, "-m", "benchmarks.gpu.frameworks", "--only", part, *arguments]
    rows: dict[str, Any] = {}
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith("ROW "):
                rows |= json.loads(line.removeprefix("ROW "))
            else:
                print(line, end="", flush=True)
    if process.returncode:
        print(f"{part}: exit code {process.returncode}", flush=True)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--parts", default="torch,jax")
    parser.add_argument("--only", choices=sorted(PARTS))
    parser.add_argument("--batch", type=int, default=512)
    parser.add_argument("--image", type=int, default=224)
    parser.add_argument("--stored", type=int, default=256)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--device", default="cuda:0", help="JAX's device: cuda:0 or cpu")
    options = parser.parse_args()
    if options.only:
        PARTS[options.only](options)
        return
    began, rows = time.perf_counter(), {}
    for part in options.parts.split(","):
        rows |= run_part(part, sys.argv[1:])
        RESULTS.write_text(json.dumps(rows, indent=1))
    rates = {name: row["samples_per_second"] for name, row in rows.items()}
    if "bare" in rates:
        print(
            "over bare JAX: " + ", ".join(f"{n} {r / rates['bare']:.3f}" for n, r in rates.items())
        )
    print(f"all: {time.perf_counter() - began:.0f} s", flush=True)


if __name__ == "__main__":
    main()
