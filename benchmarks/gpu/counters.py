"""ncu's counters of operations on work whose operations are known: which metrics count what.

    PYTHONPATH=src:. python3 -m benchmarks.gpu.counters [--size 2048]

Runs products and element-wise kernels of known operations under ncu with every metric that the chip
has for additions, multiplications and multiply-adds of its CUDA cores and for operations of its
tensor cores. Printed: for each kind of work the expected operations, the sum that
`ai500 profile --counters` would report, their ratio, and every metric that counted anything, over
the expected operations. ncu's page and the chip's list of metrics go to $OUT.

Prediction for one H200 (ncu 2025.3): ratio 1.00 for products by tensor cores in BF16, FP16, TF32,
FP8 and INT8, and for FP32 products by FFMA; the metrics of halves count a packed instruction of two
numbers once, so that element-wise FP16 has a ratio of 0.5 (1.0 if each number counts).
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from ai500.profile import counters, operation_counters

OUT = Path(os.environ.get("OUT", "."))
WANTED = re.compile(
    r"sm__ops_path_tensor_\w+|smsp__sass_thread_inst_executed_op_[fhd](add|mul|fma)2?_pred_on"
)
MARKER = "FillFunctor<double>"
"""In the name of the kernel that separates two kinds of work."""
LIMIT_SECONDS = 120.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--size", type=int, default=2048, help="side of the matrices")
    parser.add_argument("--work", action="store_true", help="only run the kernels")
    options = parser.parse_args()
    if options.work:
        run_work(options.size)
        return
    if counters.find_ncu() is None:
        sys.exit(f"not measured: {counters.missing_requirement(device='cuda', scheduler='local')}")
    began = time.monotonic()
    listed = operation_counters.known_metrics()
    first_words = {line.split()[0] for line in listed.splitlines() if line.strip()}
    found = sorted(name for name in first_words if WANTED.fullmatch(name))
    (OUT / "metrics.txt").write_text("\n".join(found) + "\n")
    seconds = time.monotonic() - began
    print(f"{counters.find_ncu()}: {len(found)} metrics of operations, listed in {seconds:.0f} s")
    weights = operation_counters.metrics_of(listed)
    print("requested by ai500 profile --counters:", *(weights or ["none"]), sep="\n  ", flush=True)
    if not found:
        sys.exit("not measured: ncu lists no metrics of operations for this device")
    log = OUT / "known-operations.csv"
    arguments = [
        *counters.command(log, [f"{name}.sum" for name in found]),
        *(sys.executable, "-m", "benchmarks.gpu.counters", "--work", "--size", str(options.size)),
    ]
    finished = subprocess.run(
        arguments, capture_output=True, text=True, timeout=LIMIT_SECONDS, check=False
    )
    names = [line.removeprefix("WORK ").split(" | ") for line in finished.stdout.splitlines()
             if line.startswith("WORK ")]  # fmt: skip
    text = log.read_text(errors="replace") if log.exists() else finished.stdout + finished.stderr
    if (reason := counters.refusal(text, metric="_pred_on")) is not None:
        print(f"not measured: {reason}\n{finished.stdout[-500:]}{finished.stderr[-1500:]}")
        return
    for (name, expected), kernels in zip(names, pieces(text), strict=False):
        show(name, float(expected), kernels, weights=weights)
    print(f"all: {time.monotonic() - began:.0f} s", flush=True)


def pieces(text: str) -> Iterator[list[dict[str, str]]]:
    """Split ncu's kernels at the markers; what precedes the first marker is preparation."""
    piece: list[dict[str, str]] | None = None
    for row in counters.raw_rows(text)[1]:
        if MARKER in row["Kernel Name"].replace(" ", ""):
            if piece is not None:
                yield piece
            piece = []
        elif piece is not None:
            piece.append(row)
    if piece:
        yield piece


def show(
    name: str, expected: float, kernels: Sequence[Mapping[str, str]], *, weights: Mapping[str, int]
) -> None:
    """Print what was counted over what is expected."""
    sums: dict[str, float] = {}
    for row in kernels:
        for metric, value in row.items():
            if metric and metric.removesuffix(".sum") != metric and WANTED.match(metric):
                try:
                    sums[metric] = sums.get(metric, 0.0) + float(value.replace(",", ""))
                except (ValueError, AttributeError):
                    print(f"  {metric}: {value!r} in {row['Kernel Name'][:60]}")
    total = sum(sums.get(metric, 0.0) * weight for metric, weight in weights.items())
    ratio = total / expected if expected else float("nan")
    print(f"{name}: expected {expected:.4g}, counted {total:.4g}, ratio {ratio:.4f}")
    for metric, value in sums.items():
        if value:
            print(f"    {value / (expected or 1):10.4f}  {metric}")
    for row in kernels[:4]:
        print(f"    kernel {row['Kernel Name'][:100]}", flush=True)


def run_work(size: int) -> None:
    """Run each kind of work once between two markers, profiled; warm-up comes before."""
    import torch

    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.backends.cudnn.benchmark = False

    def mark() -> None:
        torch.full((1,), 2.0, dtype=torch.float64, device=device)

    kinds = list(work(size, device))
    for name, _, run in kinds:
        try:
            run()
        except (RuntimeError, NotImplementedError) as error:
            print(f"{name}: {str(error).splitlines()[0]}")
    if device == "cuda":
        torch.cuda.synchronize()
        torch.cuda.profiler.start()
    for name, expected, run in kinds:
        mark()
        print(f"WORK {name} | {expected}", flush=True)
        try:
            run()
        except (RuntimeError, NotImplementedError) as error:
            print(f"{name}: {str(error).splitlines()[0]}")
    mark()
    if device == "cuda":
        torch.cuda.synchronize()
        torch.cuda.profiler.stop()


def work(size: int, device: str) -> Iterator[tuple[str, float, Callable[[], object]]]:
    """Yield kinds of work: name, operations, function."""
    import torch

    def random(*shape: int, dtype: torch.dtype) -> torch.Tensor:
        return torch.randn(shape, device=device).to(dtype)

    def product(dtype: torch.dtype, *, tf32: bool = False) -> Callable[[], object]:
        a, b = random(size, size, dtype=dtype), random(size, size, dtype=dtype)

        def run() -> object:
            torch.backends.cuda.matmul.allow_tf32 = tf32
            return a @ b

        return run

    operations = 2.0 * size**3
    yield "GEMM BF16", operations, product(torch.bfloat16)
    yield "GEMM FP16", operations, product(torch.float16)
    yield "GEMM TF32", operations, product(torch.float32, tf32=True)
    yield "GEMM FP32", operations, product(torch.float32)
    yield "GEMM FP64", operations, product(torch.float64)
    if device == "cuda":
        eight = torch.float8_e4m3fn
        a, b = random(size, size, dtype=eight), random(size, size, dtype=eight).t()
        scale = torch.ones((), device=device)
        yield (
            "GEMM FP8",
            operations,
            lambda: torch._scaled_mm(a, b, scale, scale, out_dtype=torch.bfloat16),
        )
    bytes_a = torch.randint(-9, 9, (size, size), device=device, dtype=torch.int8)
    bytes_b = torch.randint(-9, 9, (size, size), device=device, dtype=torch.int8).t()
    yield "GEMM INT8", operations, lambda: torch._int_mm(bytes_a, bytes_b)
    for name, dtype in (("BF16", torch.bfloat16), ("FP16", torch.float16), ("FP32", torch.float32)):
        images = random(16, 64, 56, 56, dtype=dtype).contiguous(memory_format=torch.channels_last)
        kernel = random(64, 64, 3, 3, dtype=dtype).contiguous(memory_format=torch.channels_last)
        convolution = 2.0 * 16 * 56 * 56 * 64 * 64 * 9

        def convolve(images: torch.Tensor = images, kernel: torch.Tensor = kernel) -> object:
            torch.backends.cudnn.allow_tf32 = False
            return torch.conv2d(images, kernel, padding=1)

        yield f"CONV 3×3 {name} (zeros at the rim are counted)", convolution, convolve
    for name, dtype in (("FP32", torch.float32), ("FP16", torch.float16), ("BF16", torch.bfloat16)):
        x, y = random(1 << 24, dtype=dtype), random(1 << 24, dtype=dtype)
        yield f"multiplication {name}", float(1 << 24), lambda x=x, y=y: x * y


if __name__ == "__main__":
    main()
