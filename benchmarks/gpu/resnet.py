"""ResNet-50 v1.5 training on one GPU, version by version: checks, then times, in one call.

    PYTHONPATH=src python3 -m benchmarks.gpu.resnet [--only checks,curves,kernels,compile,...]

Parts, in order: `checks` (kernels against float64), `curves` (training against the plain model),
`kernels` (each one's bandwidth), `evaluation` (by the kernels beside torch's operators), then the
versions of VERSIONS. A part that fails prints its error and the next one runs, in a new process
where the GPU's state was lost.
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
from benchmarks.gpu import kernel_checks
from benchmarks.gpu.energy import spending
from benchmarks.gpu.supervisor import Benchmark, conduct, parser_of
from torch import Tensor, nn

from ai500.parallel.cuda_graph import Graphed
from ai500.workloads.kernels.fused import PRODUCT_TILE, Fused
from ai500.workloads.kernels.plain import Extra, Normal, Size, Slopes, pooled
from ai500.workloads.models.fast_resnet import FastResNet, fast
from ai500.workloads.models.resnet import ResNet, resnet50

DEVICE = torch.device("cuda", 0)
RESULTS: dict[str, Any] = {}
RESULTS_FILE = Path(os.environ.get("OUT", ".")) / "resnet.json"
BASELINE = "compile"
WAYS = {
    "library": Fused,
    "tiles": lambda: Fused(tile=PRODUCT_TILE),
}
"""Joins behind cuBLAS's products, or in Triton's where these are faster."""
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
"""Name → model, how it is launched, batch, precision."""
WORKING = {"bf16": torch.bfloat16, "fp16": torch.float16}


def model_of(kind: str, precision: str) -> nn.Module:
    """A fresh model in that version."""
    model = resnet50(classes=1000).to(DEVICE, memory_format=torch.channels_last)
    if kind in WAYS:
        return fast(model, WAYS[kind](), working=WORKING[precision])
    return torch.compile(model) if kind == "compiled" else model  # type: ignore[return-value]


def step_of(
    model: nn.Module, optimizer: torch.optim.Optimizer, precision: str
) -> Callable[..., Tensor]:
    """The whole step; weight decay is on every parameter. FP16's gradients need a loss scale."""
    working = WORKING.get(precision)
    scaler = torch.amp.GradScaler("cuda", enabled=precision == "fp16")

    def step(images: Tensor, labels: Tensor) -> Tensor:
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cuda", working, enabled=working is not None, cache_enabled=False):
            loss = F.cross_entropy(model(images).float(), labels, label_smoothing=0.1)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        return loss.detach()

    return step


def sgd(model: nn.Module, *, rate: float) -> torch.optim.SGD:
    """Its rate is on the device, where a graph finds it. Velocities begin at zero: torch's fused
    step leaves them as the memory was, if the first step of all is skipped for an overflow."""
    on_device = torch.tensor(rate, device=DEVICE)
    optimizer = torch.optim.SGD(
        model.parameters(), lr=on_device, momentum=0.9, weight_decay=5e-5, fused=True
    )
    for one in model.parameters():
        optimizer.state[one]["momentum_buffer"] = torch.zeros_like(one)
    return optimizer


def timed(name: str) -> None:
    """One row of the table."""
    kind, how, batch, precision = VERSIONS[name]
    began = time.perf_counter()
    torch._dynamo.reset()
    fp32 = "tf32" if precision == "tf32" else "ieee"
    torch.backends.cuda.matmul.fp32_precision = fp32
    torch.backends.cudnn.conv.fp32_precision = fp32  # type: ignore[attr-defined]
    model = model_of(kind, precision)
    images = torch.randn(batch, 3, 224, 224, device=DEVICE)
    images = images.contiguous(memory_format=torch.channels_last)
    labels = torch.randint(0, 1000, (batch,), device=DEVICE)
    plain_step = step_of(model, sgd(model, rate=0.1), precision)
    step = Graphed(plain_step) if how == "graph" else plain_step
    for _ in range(6):
        step(images, labels)
    torch.cuda.synchronize()
    ready = time.perf_counter() - began
    rounds, steps = [], 10 if precision in ("fp32", "tf32") else max(5, 25 * 512 // batch)
    with spending() as spent:
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
        "images_per_second": 1e3 * batch / median,
        "loss": float(loss), "ready_s": ready, "GiB": torch.cuda.max_memory_allocated() / 2**30,
    }  # fmt: skip
    RESULTS[name] = row | spent.power(3 * steps * batch)
    print(f"{name:12s} {median:7.2f} ms  ready after {ready:.0f} s", flush=True)
    if name in ("library", "tiles"):
        _profile(name, lambda: step(images, labels))


def _profile(name: str, call: Callable[[], object]) -> None:
    """Where the time goes, by kernel."""
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
    """Every kernel against float64."""
    found = list(kernel_checks.failures(DEVICE))
    RESULTS["checks"] = found
    print("\n".join(found[:20]) if found else "kernels: all agree with float64")


CURVE_STEPS, CURVE_SEEDS, CURVE_RATE = 240, (1, 2, 3, 4, 5, 6), 0.004
SHOWN_STEPS = 24
"""A curve is printed as the means of so many."""
NOISE = 6.0
"""Over patterns of deviation one: a loss that is still falling at the end."""
CURVES = {
    "fp32": ("plain", "fp32"),
    "plain": ("plain", "bf16"),
    "tiles": ("tiles", "bf16"),
    "plain-fp16": ("plain", "fp16"),
    "tiles-fp16": ("tiles", "fp16"),
}
"""Name → model and precision."""


def curves() -> None:
    """Losses on images one can learn: plain in FP32, BF16 and FP16, and ours, by seed; then how
    far they are from the plain model's, as means over all steps and seeds."""
    everyone: dict[int, dict[str, list[float]]] = {}
    RESULTS["curves"] = everyone
    for seed in CURVE_SEEDS:
        torch.manual_seed(seed)
        patterns = F.interpolate(torch.randn(10, 3, 8, 8, device=DEVICE), size=96)
        first = resnet50(classes=10).to(DEVICE, memory_format=torch.channels_last)
        losses = {}
        for name, (kind, precision) in CURVES.items():
            generator = torch.Generator(DEVICE).manual_seed(seed)
            model = copy.deepcopy(first)
            if kind in WAYS:
                model = fast(model, WAYS[kind](), working=WORKING[precision])
            losses[name] = _curve(model, precision, patterns, generator)
        everyone[seed] = losses
        print(f"losses, seed {seed}, means of {SHOWN_STEPS} steps:")
        for name, found in losses.items():
            starts = range(0, CURVE_STEPS, SHOWN_STEPS)
            means = (f"{mean(found[first : first + SHOWN_STEPS]):.3f}" for first in starts)
            print(f"  {name:10s} {' '.join(means)}", flush=True)
    for name, other in (
        ("plain", "fp32"), ("tiles", "plain"), ("plain-fp16", "fp32"), ("tiles-fp16", "plain-fp16")
    ):  # fmt: skip
        off = [mean(losses[name]) - mean(losses[other]) for losses in everyone.values()]
        error = stdev(off) / len(off) ** 0.5
        print(f"  {name} − {other}: {mean(off):+.4f}, standard error {error:.4f}")


def _curve(
    model: ResNet, precision: str, patterns: Tensor, generator: torch.Generator
) -> list[float]:
    optimizer, found = sgd(model, rate=0.0), []
    step = Graphed(step_of(model, optimizer, precision))
    for number in range(CURVE_STEPS):
        optimizer.param_groups[0]["lr"].fill_(CURVE_RATE * min(1.0, (number + 1) / 60))
        labels = torch.randint(0, 10, (128,), device=DEVICE, generator=generator)
        noise = torch.randn(128, 3, 96, 96, device=DEVICE, generator=generator)
        images = (patterns[labels] + NOISE * noise).contiguous(memory_format=torch.channels_last)
        found.append(step(images, labels).clone())
    return torch.stack(found).tolist()


def kernels() -> None:
    """Milliseconds and bandwidth of each kernel on stage 1's tensors of batch 512."""
    for channels in (64, 256):
        _kernel_rows(Fused(), Size(512, 56, 56), channels)
    _pool_rows(Fused(), Size(512, 112, 112))


def _kernel_rows(fused: Fused, size: Size, channels: int) -> None:
    x, skip, dy = (_random(size.rows, channels) for _ in range(3))
    norm = nn.BatchNorm2d(channels).to(DEVICE)
    parts = fused.statistics(x)
    normal: Normal = fused.normal(parts, norm, size.rows)
    sums = fused.reduce(dy, x, normal)
    slopes: Slopes = fused.slopes(sums, normal, norm.weight, size.rows)
    bits = torch.zeros(size.rows, channels // 8, dtype=torch.uint8, device=DEVICE)
    bit = 1 / 16
    for name, passes, call in (
        ("statistics", 1, lambda: fused.statistics(x)),
        ("normal", 0, lambda: fused.normal(parts, norm, size.rows)),
        ("slopes", 0, lambda: fused.slopes(sums, normal, norm.weight, size.rows)),
        ("apply", 2, lambda: fused.apply(x, normal)),
        ("apply_summed", 2, lambda: fused.apply_summed(x, normal)),
        ("join", 3 + bit, lambda: fused._join(x, normal, skip, None, bits)),
        ("reduce", 2, lambda: fused.reduce(dy, x, normal)),
        ("join_masked", 3 + bit, lambda: fused._join_masked(dy, Extra(skip, 1), size, bits)),
        ("spread", 3, lambda: fused.spread(dy, x, normal, slopes)),
    ):
        _tell_kernel(f"{name} ×{channels}", passes * x.nbytes, call)


def _pool_rows(fused: Fused, size: Size) -> None:
    x, dy = _random(size.rows, 64), _random(pooled(size).rows, 64)
    norm = nn.BatchNorm2d(64).to(DEVICE)
    normal = fused.normal(fused.statistics(x), norm, size.rows)
    _, taps, chosen = fused.pool(x, normal, size)
    slopes = fused.slopes(fused.reduce(dy, chosen, normal), normal, norm.weight, size.rows)
    images = torch.randn(512, 3, 224, 224, device=DEVICE)
    small = dy.nbytes + taps.nbytes
    for name, volume, call in (
        ("pool", x.nbytes + small + dy.nbytes, lambda: fused.pool(x, normal, size)),
        ("pool_spread", 2 * x.nbytes + small,
         lambda: fused.pool_spread(dy, taps, x, normal, slopes, size)),
        ("space_to_depth", images.nbytes + 512 * 115 * 115 * 32,
         lambda: fused.space_to_depth(images, torch.bfloat16)),
    ):  # fmt: skip
        _tell_kernel(name, volume, call)


EVALUATED_BATCHES = 8
"""In a row: a run does not wait for each."""


def evaluation() -> None:
    """Some batches of an evaluation by torch's operators and by the kernels, by turns, as a run
    evaluates: weights cast for each batch, cuDNN's algorithms not tried. The ratio of the times,
    and the distance of the kernels' logits from float64's over that of torch's."""
    model = model_of("tiles", "bf16")
    assert isinstance(model, FastResNet)
    torch.backends.cudnn.benchmark = False
    try:
        for batch in (128, 512):
            images = torch.randn(batch, 3, 224, 224, device=DEVICE)
            _evaluated(model, images.contiguous(memory_format=torch.channels_last))
    finally:
        torch.backends.cudnn.benchmark = True


def _evaluated(model: FastResNet, images: Tensor) -> None:
    def predict(by: type[ResNet]) -> Tensor:
        with torch.no_grad(), torch.autocast("cuda", WORKING["bf16"]):
            return by.forward(model, images)

    model.train()
    predict(FastResNet)
    model.eval()
    found: dict[type[ResNet], Tensor] = {}
    taken: dict[type[ResNet], list[float]] = {ResNet: [], FastResNet: []}
    for _ in range(5):
        for by, times in taken.items():
            found[by] = predict(by)
            together = milliseconds(lambda: [predict(by) for _ in range(EVALUATED_BATCHES)])  # noqa: B023
            times.append(together / EVALUATED_BATCHES)
    with torch.no_grad():
        exact = ResNet.forward(copy.deepcopy(model).double(), images.double())
    ours, theirs = ((found[one].double() - exact).norm() for one in (FastResNet, ResNet))
    kernels_ms, torch_ms = (sorted(taken[one])[2] for one in (FastResNet, ResNet))
    row = {
        "batch": len(images), "kernels_ms": kernels_ms, "torch_ms": torch_ms,
        "error_ratio": float(ours / theirs),
    }  # fmt: skip
    RESULTS.setdefault("evaluation", []).append(row)
    print(
        f"  batch {len(images)}: torch {torch_ms:.2f} ms, kernels {kernels_ms:.2f} ms "
        f"({1e3 * len(images) / kernels_ms:,.0f} images/s), ×{torch_ms / kernels_ms:.2f}; "
        f"error over torch's {ours / theirs:.2f}"
    )


def _random(rows: int, channels: int) -> Tensor:
    return torch.randn(rows, channels, device=DEVICE).to(torch.bfloat16)


def milliseconds(call: Callable[[], object]) -> float:
    """The median of five runs after two."""
    times: list[float] = []
    for _ in range(7):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        call()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end))
    return sorted(times[2:])[2]


def _tell_kernel(name: str, volume: float, call: Callable[[], object]) -> None:
    ms = milliseconds(call)
    RESULTS.setdefault("kernels", []).append((name, ms, volume))
    print(f"  {name:20s} {ms:7.3f} ms {volume / ms / 1e9:6.2f} TB/s")


def table(results: dict[str, Any]) -> str:
    """All versions beside the baseline, 80 columns."""
    lines = ["version      batch  ms/step   img/s  ×compile  watts  img/J   GiB    loss"]
    base = results.get(BASELINE, {}).get("images_per_second")
    for name in VERSIONS:
        if name not in results:
            continue
        row = results[name]
        ratio = f"{row['images_per_second'] / base:8.3f}" if base else "       –"
        watts = (
            f"{row['watts']:6.0f} {row['images_per_joule']:6.2f}"
            if "watts" in row
            else "not measured"
        )
        lines.append(
            f"{name:12s} {row['batch']:5d} {row['ms']:8.2f} {row['images_per_second']:7.0f}"
            f"  {ratio} {watts} {row['GiB']:5.0f} {row['loss']:7.3f}"
        )
    return "\n".join(lines)


def begin() -> None:
    torch.backends.cudnn.benchmark = True
    torch.manual_seed(int(time.time()))


BENCHMARK = Benchmark(
    module="benchmarks.gpu.resnet",
    parts={"checks": checks, "curves": curves, "kernels": kernels, "evaluation": evaluation}
    | {name: partial(timed, name) for name in VERSIONS},
    begin=begin,
    results=RESULTS,
    file=RESULTS_FILE,
    table=table,
    without_gpu="`python -m benchmarks.gpu.predictions` runs without one",
)


def main() -> None:
    parser = parser_of(BENCHMARK, __doc__)
    conduct(BENCHMARK, parser, parser.parse_args())


if __name__ == "__main__":
    main()
