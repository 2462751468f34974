"""Benchmarks of a device: matrix products, convolutions, passes over memory.

Inputs are random values (zeros run faster) that rotate through more memory than the last-level
cache holds; a result is the median of many samples of sustained work. Forward only; cuDNN
benchmarks its algorithms. Operations are 2 per multiply-add.

A device that has rested runs at its highest clock for some milliseconds, until power or heat
reaches a limit: the burst. Then each shape is timed for its share of the time after an untimed
warm-up, at the clocks of sustained work. Short calls are captured in a CUDA graph and replayed, so
that events time the kernels and not the host that launches them.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from statistics import median
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from ai500.roofline.peaks import available_memory_bytes, last_level_cache_bytes, memory_sizes
from ai500.roofline.records import KernelTime, MemoryTime

DTYPES = {
    "fp32": torch.float32,
    "tf32": torch.float32,
    "fp16": torch.float16,
    "bf16": torch.bfloat16,
    "fp8": torch.float8_e4m3fn,
    "int8": torch.int8,
}
# NVIDIA compute capability from which the hardware has the format.
MIN_CAPABILITY = {"tf32": (8, 0), "bf16": (8, 0), "fp8": (8, 9)}
UNKNOWN_CACHE_BYTES = 64 * 2**20
# The smallest shapes are measured however short the time is.
MIN_SHAPES = 3
# Fraction of the time that is timed; the rest is for random values and cuDNN's algorithm search.
TIMED_FRACTION = 0.85
# Layouts of the second matrix to try, column-major or not: FP8 and INT8 units require column-major,
# and TF32 is faster with one or the other.
BY_COLUMNS = {"tf32": (False, True), "fp8": (True,), "int8": (True,)}


@dataclass(frozen=True, slots=True)
class Shape:
    """Dimensions of a matrix product or a convolution."""

    dimensions: tuple[int, ...]
    name: str
    """Name in records."""
    operations: int
    """Operations of one call."""
    inputs: int
    """Values of one set of inputs."""
    outputs: int
    """Values of the result."""


def gemm_shape(m: int, k: int, n: int) -> Shape:
    """Return the matrix product [m, k] × [k, n]."""
    return Shape((m, k, n), f"{m}×{k}×{n}", 2 * m * k * n, k * (m + n), m * n)


def conv_shape(batch: int, channels: int, filters: int, side: int, kernel: int) -> Shape:
    """Return the convolution of square images and kernels, as many pixels out as in."""
    pixels, weights = batch * side**2, channels * kernel**2 * filters
    return Shape(
        (batch, channels, filters, side, kernel),
        f"{batch}×{channels}×{side}×{side}, {kernel}×{kernel}, {filters}",
        operations=2 * pixels * weights,
        inputs=pixels * channels + weights,
        outputs=pixels * filters,
    )


def gemm_shapes(device: torch.device) -> list[Shape]:
    """Return squares, and ResNet-50's 1×1 convolutions and classifier as products."""
    batch, sizes = (256, (1024, 2048, 4096, 8192, 16384))
    if device.type == "cpu":
        batch, sizes = (8, (512, 1024, 2048, 4096, 8192))
    return [
        *(gemm_shape(size, size, size) for size in sizes),
        gemm_shape(batch * 56 * 56, 64, 256),
        gemm_shape(batch * 14 * 14, 1024, 256),
        gemm_shape(batch, 2048, 1024),
    ]


def conv_shapes(device: torch.device) -> list[Shape]:
    """Return ResNet-50's layers (channels, filters, pixels, kernel), and two larger ones."""
    batch = 8 if device.type == "cpu" else 256
    layers = (
        (64, 64, 56, 3), (128, 128, 28, 3), (256, 256, 14, 3), (512, 512, 7, 3),
        (64, 256, 56, 1), (512, 128, 28, 1), (1024, 256, 14, 1), (2048, 512, 7, 1),
        (512, 512, 28, 3), (1024, 1024, 28, 1),
    )  # fmt: skip
    return [conv_shape(batch, *layer) for layer in layers]


class InputPool:
    """Random values of one type that fill more memory than the last-level cache."""

    def __init__(self, dtype: torch.dtype, *, device: torch.device, min_values: int) -> None:
        size = torch.empty(0, dtype=dtype).element_size()
        count = max(min_values, int(1.25 * cache_bytes(device)) // size)
        self.values = _random(count, dtype, device)
        self._next = 0

    def take(self, *shape: int) -> Tensor:
        """Return the next values, starting over when all are used up."""
        count = math.prod(shape)
        if self._next + count > len(self.values):
            self._next = 0
        first, self._next = self._next, self._next + -(-count // 256) * 256
        return self.values[first : first + count].view(shape)

    def sets(self, values: int) -> int:
        """Return how many sets of inputs cover the pool; at most 64 views are made."""
        return min(64, max(2, len(self.values) // values))


class InputPools:
    """The pool of a device, filled again for another type or a larger shape."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._pool: InputPool | None = None

    def get(self, dtype: torch.dtype, *, min_values: int) -> InputPool:
        """Return a pool of this type with at least `min_values` values."""
        pool = self._pool
        if pool is None or pool.values.dtype != dtype or len(pool.values) < min_values:
            self._pool = pool = None  # frees the old values before the new ones are allocated
            self._pool = pool = InputPool(dtype, device=self.device, min_values=min_values)
        return pool


def _random(count: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Return normal values, generated in parts: in FP32 the whole might not fit."""
    pool = torch.empty(count, dtype=dtype, device=device)
    generator = torch.Generator(device).manual_seed(1)
    for part in torch.split(pool, 2**24):
        values = torch.randn(len(part), device=device, generator=generator)
        part.copy_(values.mul_(32).clamp_(-127, 127) if dtype == torch.int8 else values)
    return pool


def cache_bytes(device: torch.device) -> int:
    """Return the size of the last-level cache."""
    if device.type == "cpu":
        return last_level_cache_bytes() or UNKNOWN_CACHE_BYTES
    properties = torch.get_device_module(device).get_device_properties(device)
    return int(getattr(properties, "L2_cache_size", 0)) or UNKNOWN_CACHE_BYTES


def memory_bytes(device: torch.device) -> int:
    """Return the free memory."""
    if device.type == "cpu":
        return available_memory_bytes()
    free, _ = torch.get_device_module(device).mem_get_info(device)
    return int(free)


def unsupported_reason(kernel: str, precision: str, device: torch.device) -> str | None:
    """Return why this device has no such kernel; None: it may have."""
    nvidia = device.type == "cuda" and torch.version.hip is None
    if kernel == "conv" and precision in ("fp8", "int8"):
        return "torch has no such convolution"
    if precision == "tf32" and not nvidia:
        return "a format of NVIDIA's tensor cores"
    if precision == "fp8" and device.type == "cpu":
        return "torch emulates it on CPUs"
    if nvidia and precision in MIN_CAPABILITY:
        least, capability = MIN_CAPABILITY[precision], torch.cuda.get_device_capability(device)
        if capability < least:
            return "needs compute capability {}.{}, found {}.{}".format(*least, *capability)
    return None


def gemm_calls(shape: Shape, precision: str, pool: InputPool, *, by_columns: bool) -> Calls:
    """Yield products of one set of inputs after the other, without end."""
    m, k, n = shape.dimensions
    pairs = []
    for _ in range(pool.sets(shape.inputs)):
        b = pool.take(n, k).t() if by_columns else pool.take(k, n)
        pairs.append((pool.take(m, k), b))
    device = pairs[0][0].device
    if precision == "fp8":
        unit_scale = torch.ones((), device=device)
        for a, b in itertools.cycle(pairs):
            # Accumulates as exactly as training does (train/precision/fp8.py).
            yield lambda a=a, b=b: torch._scaled_mm(  # type: ignore[misc]
                a,
                b,
                scale_a=unit_scale,
                scale_b=unit_scale,
                out_dtype=torch.bfloat16,
                use_fast_accum=False,
            )
    out_type = torch.int32 if precision == "int8" else DTYPES[precision]
    out = torch.empty(m, n, dtype=out_type, device=device)
    product = torch._int_mm if precision == "int8" else torch.mm
    for a, b in itertools.cycle(pairs):
        yield lambda a=a, b=b: product(a, b, out=out)  # type: ignore[misc]


def conv_calls(shape: Shape, precision: str, pool: InputPool) -> Calls:
    """Yield convolutions of one set of inputs after the other, without end; channels-last."""
    batch, channels, filters, side, size = shape.dimensions
    pairs = [
        (
            pool.take(batch, side, side, channels).permute(0, 3, 1, 2),
            pool.take(filters, size, size, channels).permute(0, 3, 1, 2),
        )
        for _ in range(pool.sets(shape.inputs))
    ]
    for images, weights in itertools.cycle(pairs):
        yield lambda x=images, w=weights: F.conv2d(x, w, padding=size // 2)  # type: ignore[misc]


def measure_kernel(
    kernel: Literal["gemm", "conv"], precision: str, *, pools: InputPools, seconds: float
) -> Iterator[KernelTime]:
    """Measure each shape that fits memory and its share of the time, smallest first."""
    device = pools.device
    shapes = gemm_shapes(device) if kernel == "gemm" else conv_shapes(device)
    room = memory_bytes(device) // 4
    shapes = [shape for shape in shapes if 4 * (shape.inputs + shape.outputs) <= room]
    shapes.sort(key=lambda shape: shape.operations)
    seconds_each, fastest = TIMED_FRACTION * seconds / max(1, len(shapes)), 0.0
    _set_precision(precision)
    with torch.inference_mode():
        for number, shape in enumerate(shapes):
            if number >= MIN_SHAPES and shape.operations / fastest > 2 * seconds_each:
                continue  # a single call would take longer than all samples may
            pool = pools.get(DTYPES[precision], min_values=2 * shape.inputs)
            kernel_time = _measure_shape(
                shape, kernel, precision, pool, device=device, seconds=seconds_each
            )
            fastest = max(fastest, kernel_time.flops)
            yield kernel_time


def _measure_shape(
    shape: Shape, kernel: Literal["gemm", "conv"], precision: str, pool: InputPool,
    *, device: torch.device, seconds: float,
) -> KernelTime:  # fmt: skip
    """Return the time of the fastest layout."""
    layouts = BY_COLUMNS.get(precision, (False,)) if kernel == "gemm" else (False,)
    kernel_times = []
    for by_columns in layouts:
        calls = (
            gemm_calls(shape, precision, pool, by_columns=by_columns)
            if kernel == "gemm"
            else conv_calls(shape, precision, pool)
        )
        times = time_calls(calls, device, seconds=seconds / len(layouts))
        name = f"{shape.name}, B by columns" if by_columns and len(layouts) > 1 else shape.name
        kernel_times.append(
            KernelTime(
                kernel, precision, name, shape.operations,
                median(times.sustained), len(times.sustained), times.burst,
            )
        )  # fmt: skip
    return max(kernel_times, key=lambda kernel_time: kernel_time.best_flops)


def _set_precision(precision: str) -> None:
    """Compute FP32 as IEEE does (torch would round convolutions to TF32); let cuDNN benchmark."""
    precision_name = "tf32" if precision == "tf32" else "ieee"
    torch.backends.cuda.matmul.fp32_precision = precision_name
    torch.backends.cudnn.conv.fp32_precision = precision_name  # type: ignore[attr-defined]
    torch.backends.cudnn.benchmark = True


def measure_memory(*, pools: InputPools, seconds: float) -> Iterator[MemoryTime]:
    """Measure copy (one read, one write) and triad (two reads, one write) beyond the cache.

    Raises MemoryError where memory has no room for three arrays of at least twice the cache.
    """
    device = pools.device
    sizes = memory_sizes(device.type, memory=memory_bytes(device), cache=cache_bytes(device))
    pool = pools.get(torch.float32, min_values=2**20)
    for size in sizes:
        count = size // 4
        a, b, c = (torch.empty(count, device=device) for _ in range(3))
        for array in (a, b, c):
            for part in torch.split(array, len(pool.values)):
                part.copy_(pool.take(len(part)))

        def copy(a: Tensor = a, b: Tensor = b) -> object:
            return a.copy_(b)

        def triad(a: Tensor = a, b: Tensor = b, c: Tensor = c) -> object:
            return torch.add(b, c, alpha=3.0, out=a)

        seconds_each = seconds / (2 * len(sizes))
        samples = time_calls(itertools.repeat(copy), device, seconds=seconds_each).sustained
        yield MemoryTime("copy", 2 * 4 * count, median(samples), len(samples))
        samples = time_calls(itertools.repeat(triad), device, seconds=seconds_each).sustained
        yield MemoryTime("triad", 3 * 4 * count, median(samples), len(samples))
        del a, b, c, copy, triad


SAMPLES = 30
MIN_SAMPLES = 5
# Fraction of the time spent on warm-up.
WARM_UP_FRACTION = 0.25
# A host launches a call in less time than this.
SHORT_CALL_SECONDS = 3e-4
REPLAY_SECONDS = 2e-3
# Calls in a graph: at least as many as there are sets of inputs.
MIN_REPLAYED = 64

REST_SECONDS = 0.3
BURST_SAMPLES = 10

Calls = Iterator[Callable[[], object]]
Run = Callable[[], object]


@dataclass(frozen=True, slots=True)
class CallTimes:
    """Durations of a warm call in seconds."""

    sustained: list[float]
    burst: float | None
    """None: a CPU, whose clocks fall more slowly."""


def time_calls(calls: Calls, device: torch.device, *, seconds: float) -> CallTimes:
    """Time calls for about `seconds`."""
    for call in itertools.islice(calls, 2):
        call()
    if device.type == "cpu":
        return CallTimes(_time_by_clock(calls, seconds=seconds), None)
    with torch.get_device_module(device).device(device):
        return _time_by_events(calls, device, seconds=seconds)


def _time_by_clock(calls: Calls, *, seconds: float) -> list[float]:
    samples: list[float] = []
    start = time.perf_counter()
    warm_at = start + WARM_UP_FRACTION * seconds
    for call in calls:
        before = time.perf_counter()
        call()
        now = time.perf_counter()
        if before >= warm_at or now - before > seconds / MIN_SAMPLES:
            samples.append(now - before)  # a long call needs no further warm-up
        if now - start > seconds and len(samples) >= MIN_SAMPLES:
            return samples
    raise AssertionError("calls never end")


def _time_by_events(calls: Calls, device: torch.device, *, seconds: float) -> CallTimes:
    module = torch.get_device_module(device)

    def samples(run: Run, *, count: int, runs: int) -> list[float]:
        marks = [(module.Event(enable_timing=True), module.Event(enable_timing=True))
                 for _ in range(count)]  # fmt: skip
        for first, last in marks:
            first.record()
            for _ in range(runs):
                run()
            last.record()
        module.synchronize(device)
        return [first.elapsed_time(last) / 1e3 / runs for first, last in marks]

    run, calls_of_run = _next_call(calls), 1
    call_seconds = median(samples(run, count=3, runs=1))
    if call_seconds < SHORT_CALL_SECONDS and device.type == "cuda":
        count = max(MIN_REPLAYED, math.ceil(REPLAY_SECONDS / call_seconds))
        replay = _capture(calls, count, module)
        if replay is not None:
            run, calls_of_run = replay, count
    module.synchronize(device)
    time.sleep(REST_SECONDS)
    burst = median(samples(run, count=2 + BURST_SAMPLES, runs=1)[2:])
    call_seconds = max(1e-7, median(samples(run, count=3, runs=1)))
    for _ in range(math.ceil(WARM_UP_FRACTION * seconds / call_seconds)):
        run()  # no synchronization: the samples follow at once
    runs = max(1, round((1 - WARM_UP_FRACTION) * seconds / SAMPLES / call_seconds))
    count = int((1 - WARM_UP_FRACTION) * seconds / (call_seconds * runs))
    durations = samples(run, count=min(SAMPLES, max(MIN_SAMPLES, count)), runs=runs)
    return CallTimes([duration / calls_of_run for duration in durations], burst / calls_of_run)


def _next_call(calls: Calls) -> Run:
    return lambda: next(calls)()


def _capture(calls: Calls, count: int, module: Any) -> Run | None:
    """Capture `count` calls in a CUDA graph; None: they cannot be captured."""
    graph = module.CUDAGraph()
    try:
        with module.graph(graph):
            for call in itertools.islice(calls, count):
                call()
        graph.replay()
        module.synchronize()
    except RuntimeError:
        return None
    replay: Run = graph.replay
    return replay
