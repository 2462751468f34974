"""ResNet-50 v1.5 training on one GPU, version by version: checks, then times, in one call.

    PYTHONPATH=src python3 -m benchmarks.gpu.resnet [--only checks,curves,kernels,compile,...]

Parts, in order: `checks` (kernels against float64), `curves` (training against the plain model),
`kernels` (bandwidth of each), `evaluation` (kernels against torch's operators), then the versions
of VERSIONS. When a part fails, its error is printed and the next part runs, in a new process if
the GPU's state was lost.
Full numbers: $OUT/resnet.json.
"""

from __future__ import annotations

import copy
import os
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import torch
import torch.nn.functional as F
from benchmarks.gpu.energy import measure_energy
from benchmarks.gpu.supervisor import Benchmark, make_parser, run_benchmark
from tests.support import kernel_checks
from torch import Tensor, nn

from ai500.parallel.cuda_graph import Graphed
from ai500.workloads.kernels.fused import PRODUCT_TILE, FusedKernels
from ai500.workloads.kernels.reference import (
    FoldedNorm,
    NormBackward,
    Size,
    SkipGradient,
    pooled_size,
)
from ai500.workloads.models.fast_resnet import FastResNet, make_fast
from ai500.workloads.models.resnet import ResNet, resnet50

DEVICE = torch.device("cuda", 0)
RESULTS: dict[str, Any] = {}
RESULTS_FILE = Path(os.environ.get("OUT", ".")) / "resnet.json"
BASELINE = "compile"
# Epilogues in a second pass after a cuBLAS product, or in Triton's product where it is faster.
KERNELS = {
    "library": FusedKernels,
    "tiles": lambda: FusedKernels(tile=PRODUCT_TILE),
}
# Name → model, launch, batch size, precision.
VERSIONS: dict[str, tuple[str, str, int, str]] = {
    "fp32": ("plain", "eager", 256, "fp32"),
    "tf32": ("plain", "eager", 256, "tf32"),
    "eager": ("plain", "eager", 512, "bf16"),
    "compile": ("compiled", "graph", 512, "bf16"),
    "library-eager": ("library", "eager", 512, "bf16"),
    "library": ("library", "graph", 512, "bf16"),
    "tiles": ("tiles", "graph", 512, "bf16"),
    "tiles-128": ("tiles", "graph", 128, "bf16"),
    "tiles-256": ("tiles", "graph", 256, "bf16"),
    "tiles-1024": ("tiles", "graph", 1024, "bf16"),
    "compile-fp16": ("compiled", "graph", 512, "fp16"),
    "tiles-fp16": ("tiles", "graph", 512, "fp16"),
}
COMPUTE_DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}


def make_model(kind: str, precision: str) -> nn.Module:
    """Build a fresh model of one version."""
    model = resnet50(classes=1000).to(DEVICE, memory_format=torch.channels_last)
    if kind in KERNELS:
        return make_fast(model, KERNELS[kind](), compute_dtype=COMPUTE_DTYPES[precision])
    return torch.compile(model) if kind == "compiled" else model  # type: ignore[return-value]


def make_step(
    model: nn.Module, optimizer: torch.optim.Optimizer, precision: str
) -> Callable[..., Tensor]:
    """Return the training step; weight decay is on every parameter. FP16 uses a loss scale."""
    dtype = COMPUTE_DTYPES.get(precision)
    scaler = torch.amp.GradScaler("cuda", enabled=precision == "fp16")

    def step(images: Tensor, labels: Tensor) -> Tensor:
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cuda", dtype, enabled=dtype is not None, cache_enabled=False):
            loss = F.cross_entropy(model(images).float(), labels, label_smoothing=0.1)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        return loss.detach()

    return step


def sgd(model: nn.Module, *, rate: float) -> torch.optim.SGD:
    """Return SGD with its learning rate on the device, where a graph reads it.

    Velocities start at zero: torch's fused step leaves them uninitialized if an overflow skips the
    first step.
    """
    on_device = torch.tensor(rate, device=DEVICE)
    optimizer = torch.optim.SGD(
        model.parameters(), lr=on_device, momentum=0.9, weight_decay=5e-5, fused=True
    )
    for parameter in model.parameters():
        optimizer.state[parameter]["momentum_buffer"] = torch.zeros_like(parameter)
    return optimizer


def time_version(name: str) -> None:
    """Time one row of the table."""
    kind, launch, batch, precision = VERSIONS[name]
    start = time.perf_counter()
    torch._dynamo.reset()
    fp32 = "tf32" if precision == "tf32" else "ieee"
    torch.backends.cuda.matmul.fp32_precision = fp32
    torch.backends.cudnn.conv.fp32_precision = fp32  # type: ignore[attr-defined]
    model = make_model(kind, precision)
    images = torch.randn(batch, 3, 224, 224, device=DEVICE)
    images = images.contiguous(memory_format=torch.channels_last)
    labels = torch.randint(0, 1000, (batch,), device=DEVICE)
    plain_step = make_step(model, sgd(model, rate=0.1), precision)
    step = Graphed(plain_step) if launch == "graph" else plain_step
    for _ in range(6):
        step(images, labels)
    torch.cuda.synchronize()
    ready = time.perf_counter() - start
    rounds, steps = [], 10 if precision in ("fp32", "tf32") else max(5, 25 * 512 // batch)
    with measure_energy() as energy:
        for _ in range(3):
            first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            first.record()
            for _ in range(steps):
                loss = step(images, labels)
            last.record()
            last.synchronize()
            rounds.append(first.elapsed_time(last) / steps)
    median = sorted(rounds)[1]
    row: dict[str, Any] = {
        "batch": batch, "ms": median, "rounds_ms": rounds,
        "samples_per_second": 1e3 * batch / median,
        "loss": float(loss), "ready_s": ready, "GiB": torch.cuda.max_memory_allocated() / 2**30,
    }  # fmt: skip
    RESULTS[name] = row | energy.power(3 * steps * batch)
    print(f"{name:12s} {median:7.2f} ms  ready after {ready:.0f} s", flush=True)
    if name in ("library", "tiles"):
        _profile(name, lambda: step(images, labels))


def _profile(name: str, call: Callable[[], object]) -> None:
    """Print the time by kernel."""
    activities = [torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=activities) as profile:
        for _ in range(3):
            call()
        torch.cuda.synchronize()
    rows = [
        (event.key[:56], event.self_device_time_total / 3e3, event.count // 3)
        for event in profile.key_averages()
    ]
    rows.sort(key=lambda row: -row[1])
    RESULTS.setdefault("profile", {})[name] = rows
    for key, ms, count in rows[:16]:
        print(f"  {ms:7.3f} ms {count:4d} × {key}")


def checks() -> None:
    """Compare every kernel with float64."""
    failures = list(kernel_checks.failures(DEVICE))
    RESULTS["checks"] = failures
    print("\n".join(failures[:20]) if failures else "kernels: all agree with float64")


CURVE_STEPS, CURVE_SEEDS, CURVE_RATE = 240, (1, 2, 3, 4, 5, 6), 0.004
# A printed value is the mean of this many steps.
SHOWN_STEPS = 24
# Added to patterns of unit deviation: the loss is still falling at the end.
NOISE = 6.0
# Name → model and precision.
CURVES = {
    "fp32": ("plain", "fp32"),
    "plain": ("plain", "bf16"),
    "tiles": ("tiles", "bf16"),
    "plain-fp16": ("plain", "fp16"),
    "tiles-fp16": ("tiles", "fp16"),
}


def curves() -> None:
    """Train on learnable images: torch in FP32, BF16 and FP16, and the kernels, by seed.

    Then print the differences of the mean losses with their standard error.
    """
    losses_by_seed: dict[int, dict[str, list[float]]] = {}
    RESULTS["curves"] = losses_by_seed
    for seed in CURVE_SEEDS:
        torch.manual_seed(seed)
        patterns = F.interpolate(torch.randn(10, 3, 8, 8, device=DEVICE), size=96)
        first = resnet50(classes=10).to(DEVICE, memory_format=torch.channels_last)
        losses = {}
        for name, (kind, precision) in CURVES.items():
            generator = torch.Generator(DEVICE).manual_seed(seed)
            model = copy.deepcopy(first)
            if kind in KERNELS:
                model = make_fast(model, KERNELS[kind](), compute_dtype=COMPUTE_DTYPES[precision])
            losses[name] = _curve(model, precision, patterns, generator)
        losses_by_seed[seed] = losses
        print(f"losses, seed {seed}, means of {SHOWN_STEPS} steps:")
        for name, curve in losses.items():
            starts = range(0, CURVE_STEPS, SHOWN_STEPS)
            means = (f"{mean(curve[first : first + SHOWN_STEPS]):.3f}" for first in starts)
            print(f"  {name:10s} {' '.join(means)}", flush=True)
    for name, baseline in (
        ("plain", "fp32"), ("tiles", "plain"), ("plain-fp16", "fp32"), ("tiles-fp16", "plain-fp16")
    ):  # fmt: skip
        differences = [
            mean(losses[name]) - mean(losses[baseline]) for losses in losses_by_seed.values()
        ]
        error = stdev(differences) / len(differences) ** 0.5
        print(f"  {name} − {baseline}: {mean(differences):+.4f}, standard error {error:.4f}")


def _curve(
    model: ResNet, precision: str, patterns: Tensor, generator: torch.Generator
) -> list[float]:
    optimizer, losses = sgd(model, rate=0.0), []
    step = Graphed(make_step(model, optimizer, precision))
    for number in range(CURVE_STEPS):
        optimizer.param_groups[0]["lr"].fill_(CURVE_RATE * min(1.0, (number + 1) / 60))
        labels = torch.randint(0, 10, (128,), device=DEVICE, generator=generator)
        noise = torch.randn(128, 3, 96, 96, device=DEVICE, generator=generator)
        images = (patterns[labels] + NOISE * noise).contiguous(memory_format=torch.channels_last)
        losses.append(step(images, labels).clone())
    return torch.stack(losses).tolist()


def kernels() -> None:
    """Print milliseconds and bandwidth of each kernel on stage 1's tensors of batch 512."""
    for channels in (64, 256):
        _kernel_rows(FusedKernels(), Size(512, 56, 56), channels)
    _pool_rows(FusedKernels(), Size(512, 112, 112))


def _kernel_rows(fused: FusedKernels, size: Size, channels: int) -> None:
    x, skip, dy = (_random(size.rows, channels) for _ in range(3))
    norm = nn.BatchNorm2d(channels).to(DEVICE)
    parts = fused.partial_statistics(x)
    folded: FoldedNorm = fused.fold_norm(parts, norm, size.rows)
    sums = fused.norm_backward_sums(dy, x, folded)
    terms: NormBackward = fused.norm_backward_terms(sums, folded, norm.weight, size.rows)
    bits = torch.zeros(size.rows, channels // 8, dtype=torch.uint8, device=DEVICE)
    bit = 1 / 16
    for name, passes, call in (
        ("partial_statistics", 1, lambda: fused.partial_statistics(x)),
        ("fold_norm", 0, lambda: fused.fold_norm(parts, norm, size.rows)),
        (
            "norm_backward_terms",
            0,
            lambda: fused.norm_backward_terms(sums, folded, norm.weight, size.rows),
        ),
        ("norm_relu", 2, lambda: fused.norm_relu(x, folded)),
        ("norm_relu_sum", 2, lambda: fused.norm_relu_sum(x, folded)),
        ("norm_add_relu", 3 + bit, lambda: fused._norm_add_relu(x, folded, skip, None, bits)),
        ("norm_backward_sums", 2, lambda: fused.norm_backward_sums(dy, x, folded)),
        (
            "add_relu_backward",
            3 + bit,
            lambda: fused._add_relu_backward(dy, SkipGradient(skip, 1), size, bits),
        ),
        ("norm_backward", 3, lambda: fused.norm_backward(dy, x, folded, terms)),
    ):
        _report_kernel(f"{name} ×{channels}", passes * x.nbytes, call)


def _pool_rows(fused: FusedKernels, size: Size) -> None:
    x, dy = _random(size.rows, 64), _random(pooled_size(size).rows, 64)
    norm = nn.BatchNorm2d(64).to(DEVICE)
    folded = fused.fold_norm(fused.partial_statistics(x), norm, size.rows)
    _, taps, chosen = fused.norm_relu_max_pool(x, folded, size)
    terms = fused.norm_backward_terms(
        fused.norm_backward_sums(dy, chosen, folded), folded, norm.weight, size.rows
    )
    images = torch.randn(512, 3, 224, 224, device=DEVICE)
    small = dy.nbytes + taps.nbytes
    for name, volume, call in (
        ("norm_relu_max_pool", x.nbytes + small + dy.nbytes,
         lambda: fused.norm_relu_max_pool(x, folded, size)),
        ("norm_max_pool_backward", 2 * x.nbytes + small,
         lambda: fused.norm_max_pool_backward(dy, taps, x, folded, terms, size)),
        ("space_to_depth", images.nbytes + 512 * 115 * 115 * 32,
         lambda: fused.space_to_depth(images, torch.bfloat16)),
    ):  # fmt: skip
        _report_kernel(name, volume, call)


# Launched in a row: a run does not synchronize after each.
EVALUATION_BATCHES = 8


def evaluation() -> None:
    """Time evaluation batches through torch's operators and through the kernels, alternating.

    As in a run, weights are cast for each batch and cuDNN does not benchmark algorithms. Print the
    ratio of the times, and the error of the kernels' logits over that of torch's.
    """
    model = make_model("tiles", "bf16")
    assert isinstance(model, FastResNet)
    torch.backends.cudnn.benchmark = False
    try:
        for batch in (128, 512):
            images = torch.randn(batch, 3, 224, 224, device=DEVICE)
            _time_evaluation(model, images.contiguous(memory_format=torch.channels_last))
    finally:
        torch.backends.cudnn.benchmark = True


def _time_evaluation(model: FastResNet, images: Tensor) -> None:
    def predict(model_class: type[ResNet]) -> Tensor:
        with torch.no_grad(), torch.autocast("cuda", COMPUTE_DTYPES["bf16"]):
            return model_class.forward(model, images)

    model.train()
    predict(FastResNet)
    model.eval()
    logits: dict[type[ResNet], Tensor] = {}
    times_by_class: dict[type[ResNet], list[float]] = {ResNet: [], FastResNet: []}
    for _ in range(5):
        for model_class, times in times_by_class.items():
            logits[model_class] = predict(model_class)
            predict_all = partial(map, predict, [model_class] * EVALUATION_BATCHES)
            batches_ms = milliseconds(lambda: list(predict_all()))  # noqa: B023
            times.append(batches_ms / EVALUATION_BATCHES)
    with torch.no_grad():
        exact = ResNet.forward(copy.deepcopy(model).double(), images.double())
    kernels_error, torch_error = (
        (logits[model_class].double() - exact).norm() for model_class in (FastResNet, ResNet)
    )
    kernels_ms, torch_ms = (
        sorted(times_by_class[model_class])[2] for model_class in (FastResNet, ResNet)
    )
    row = {
        "batch": len(images), "kernels_ms": kernels_ms, "torch_ms": torch_ms,
        "error_ratio": float(kernels_error / torch_error),
    }  # fmt: skip
    RESULTS.setdefault("evaluation", []).append(row)
    print(
        f"  batch {len(images)}: torch {torch_ms:.2f} ms, kernels {kernels_ms:.2f} ms "
        f"({1e3 * len(images) / kernels_ms:,.0f} images/s), ×{torch_ms / kernels_ms:.2f}; "
        f"error over torch's {kernels_error / torch_error:.2f}"
    )


def _random(rows: int, channels: int) -> Tensor:
    return torch.randn(rows, channels, device=DEVICE).to(torch.bfloat16)


def milliseconds(call: Callable[[], object]) -> float:
    """Return the median of five runs after two warm-up runs."""
    times: list[float] = []
    for _ in range(7):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        call()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end))
    return sorted(times[2:])[2]


def _report_kernel(name: str, volume: float, call: Callable[[], object]) -> None:
    ms = milliseconds(call)
    RESULTS.setdefault("kernels", []).append((name, ms, volume))
    print(f"  {name:20s} {ms:7.3f} ms {volume / ms / 1e9:6.2f} TB/s")


def table(results: dict[str, Any]) -> str:
    """Format all versions beside the baseline, 80 columns."""
    lines = ["version      batch  ms/step   img/s  ×compile  watts  img/J   GiB    loss"]
    base = results.get(BASELINE, {}).get("samples_per_second")
    for name in VERSIONS:
        if name not in results:
            continue
        row = results[name]
        ratio = f"{row['samples_per_second'] / base:8.3f}" if base else "       –"
        watts = (
            f"{row['watts']:6.0f} {row['images_per_joule']:6.2f}"
            if "watts" in row
            else "not measured"
        )
        lines.append(
            f"{name:12s} {row['batch']:5d} {row['ms']:8.2f} {row['samples_per_second']:7.0f}"
            f"  {ratio} {watts} {row['GiB']:5.0f} {row['loss']:7.3f}"
        )
    return "\n".join(lines)


def begin() -> None:
    torch.backends.cudnn.benchmark = True
    torch.manual_seed(int(time.time()))


BENCHMARK = Benchmark(
    module="benchmarks.gpu.resnet",
    parts={"checks": checks, "curves": curves, "kernels": kernels, "evaluation": evaluation}
    | {name: partial(time_version, name) for name in VERSIONS},
    begin=begin,
    results=RESULTS,
    file=RESULTS_FILE,
    table=table,
    without_gpu="`python -m benchmarks.gpu.predictions` runs without one",
)


def main() -> None:
    parser = make_parser(BENCHMARK, __doc__)
    run_benchmark(BENCHMARK, parser, parser.parse_args())


if __name__ == "__main__":
    main()
