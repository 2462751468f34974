"""Kernels that say what a device can do: matrix products, convolutions, passes over memory.

How a number comes about: random values (zeros run faster), inputs that rotate through more memory
than the last-level cache holds, sustained work (timing.py), the median of many samples. Forward
only; cuDNN tries its algorithms. Operations are 2 for each multiply-add.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from statistics import median
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from ai500.roofline.records import KernelTime, MemoryTime
from ai500.roofline.theory import available_memory_bytes, last_level_cache_bytes, memory_sizes
from ai500.roofline.timing import Calls, timed

DTYPES = {
    "fp32": torch.float32,
    "tf32": torch.float32,
    "fp16": torch.float16,
    "bf16": torch.bfloat16,
    "fp8": torch.float8_e4m3fn,
    "int8": torch.int8,
}
LEAST_CAPABILITY = {"tf32": (8, 0), "bf16": (8, 0), "fp8": (8, 9)}
"""Of NVIDIA's; older ones emulate it, if at all."""
UNKNOWN_CACHE_BYTES = 64 * 2**20
SHAPES_AT_LEAST = 3
"""The smallest are measured however little time there is."""
TIMED_SHARE = 0.85
"""Of the time; the rest is for random values, and for cuDNN to choose its algorithms."""
BY_COLUMNS = {"tf32": (False, True), "fp8": (True,), "int8": (True,)}
"""Whether the second matrix lies column by column: so FP8 and INT8 units take it, and TF32's are
faster with one or the other."""


@dataclass(frozen=True, slots=True)
class Gemm:
    """[m, k] × [k, n]."""

    m: int
    k: int
    n: int

    @property
    def name(self) -> str:
        """As records have it."""
        return f"{self.m}×{self.k}×{self.n}"

    @property
    def operations(self) -> int:
        """Multiply and add."""
        return 2 * self.m * self.k * self.n

    @property
    def values(self) -> int:
        """Of one set of inputs."""
        return self.k * (self.m + self.n)

    @property
    def results(self) -> int:
        """Values of the output."""
        return self.m * self.n


@dataclass(frozen=True, slots=True)
class Conv:
    """Square images and kernels, as many pixels out as in."""

    batch: int
    channels: int
    filters: int
    pixels: int
    kernel: int

    @property
    def name(self) -> str:
        """As records have it."""
        image = f"{self.batch}×{self.channels}×{self.pixels}×{self.pixels}"
        return f"{image}, {self.kernel}×{self.kernel}, {self.filters}"

    @property
    def operations(self) -> int:
        """Multiply and add."""
        window = self.channels * self.kernel**2
        return 2 * self.batch * self.pixels**2 * window * self.filters

    @property
    def values(self) -> int:
        """Of one set of inputs."""
        images = self.batch * self.channels * self.pixels**2
        return images + self.filters * self.channels * self.kernel**2

    @property
    def results(self) -> int:
        """Values of the output."""
        return self.batch * self.filters * self.pixels**2


def gemm_shapes(device: torch.device) -> list[Gemm]:
    """Squares, and ResNet-50's 1×1 convolutions and classifier as products."""
    batch, sizes = (256, (1024, 2048, 4096, 8192, 16384))
    if device.type == "cpu":
        batch, sizes = (8, (512, 1024, 2048, 4096, 8192))
    return [
        *(Gemm(size, size, size) for size in sizes),
        Gemm(batch * 56 * 56, 64, 256),
        Gemm(batch * 14 * 14, 1024, 256),
        Gemm(batch, 2048, 1024),
    ]


def conv_shapes(device: torch.device) -> list[Conv]:
    """ResNet-50's layers (channels, filters, pixels, kernel), and a larger one of each kind."""
    batch = 8 if device.type == "cpu" else 256
    layers = (
        (64, 64, 56, 3), (128, 128, 28, 3), (256, 256, 14, 3), (512, 512, 7, 3),
        (64, 256, 56, 1), (512, 128, 28, 1), (1024, 256, 14, 1), (2048, 512, 7, 1),
        (512, 512, 28, 3), (1024, 1024, 28, 1),
    )  # fmt: skip
    return [Conv(batch, *layer) for layer in layers]


class Pool:
    """Random values of one type that fill more memory than the last-level cache."""

    def __init__(self, dtype: torch.dtype, *, device: torch.device, least_values: int) -> None:
        size = torch.empty(0, dtype=dtype).element_size()
        count = max(least_values, int(1.25 * cache_bytes(device)) // size)
        self.values = _random(count, dtype, device)
        self._next = 0

    def take(self, *shape: int) -> Tensor:
        """The next values; from the first again when they are all used up."""
        count = math.prod(shape)
        if self._next + count > len(self.values):
            self._next = 0
        first, self._next = self._next, self._next + -(-count // 256) * 256
        return self.values[first : first + count].view(shape)

    def sets(self, values: int) -> int:
        """How many sets of inputs go through all of it; not more than are worth the views."""
        return min(64, max(2, len(self.values) // values))


_pools: dict[torch.device, Pool] = {}


def pool_of(dtype: torch.dtype, *, device: torch.device, least_values: int) -> Pool:
    """The device's pool, filled anew for another type or a larger shape."""
    there = _pools.get(device)
    if there is None or there.values.dtype != dtype or len(there.values) < least_values:
        there = None
        _pools.pop(device, None)  # not both at once
        _pools[device] = Pool(dtype, device=device, least_values=least_values)
    return _pools[device]


def _random(count: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Normal values, part by part: in FP32 the whole might not fit."""
    made = torch.empty(count, dtype=dtype, device=device)
    generator = torch.Generator(device).manual_seed(1)
    for part in torch.split(made, 2**24):
        values = torch.randn(len(part), device=device, generator=generator)
        part.copy_(values.mul_(32).clamp_(-127, 127) if dtype == torch.int8 else values)
    return made


def cache_bytes(device: torch.device) -> int:
    """Of the last level, as the hardware tells it."""
    if device.type == "cpu":
        return last_level_cache_bytes() or UNKNOWN_CACHE_BYTES
    told = torch.get_device_module(device).get_device_properties(device)
    return int(getattr(told, "L2_cache_size", 0)) or UNKNOWN_CACHE_BYTES


def memory_bytes(device: torch.device) -> int:
    """Free memory."""
    if device.type == "cpu":
        return available_memory_bytes()
    free, _ = torch.get_device_module(device).mem_get_info(device)
    return int(free)


def why_not(kernel: str, precision: str, device: torch.device) -> str | None:
    """Why this device has no such kernel; None: it may have."""
    nvidia = device.type == "cuda" and torch.version.hip is None
    if kernel == "conv" and precision in ("fp8", "int8"):
        return "torch has no such convolution"
    if precision == "tf32" and not nvidia:
        return "a format of NVIDIA's tensor cores"
    if precision == "fp8" and device.type == "cpu":
        return "torch computes it on CPUs by way of other formats"
    if nvidia and precision in LEAST_CAPABILITY:
        least, found = LEAST_CAPABILITY[precision], torch.cuda.get_device_capability(device)
        if found < least:
            return f"needs compute capability {least[0]}.{least[1]}, found {found[0]}.{found[1]}"
    return None


def gemm_calls(shape: Gemm, precision: str, pool: Pool, *, by_columns: bool) -> Calls:
    """The product of one set of inputs after the other, for ever."""
    pairs = []
    for _ in range(pool.sets(shape.values)):
        b = pool.take(shape.n, shape.k).t() if by_columns else pool.take(shape.k, shape.n)
        pairs.append((pool.take(shape.m, shape.k), b))
    device = pairs[0][0].device
    if precision == "fp8":
        one = torch.ones((), device=device)
        for a, b in itertools.cycle(pairs):
            # Sums as exact as those of training (train/precision/fp8.py).
            yield lambda a=a, b=b: torch._scaled_mm(  # type: ignore[misc]
                a, b, scale_a=one, scale_b=one, out_dtype=torch.bfloat16, use_fast_accum=False
            )
    out_type = torch.int32 if precision == "int8" else DTYPES[precision]
    out = torch.empty(shape.m, shape.n, dtype=out_type, device=device)
    product = torch._int_mm if precision == "int8" else torch.mm
    for a, b in itertools.cycle(pairs):
        yield lambda a=a, b=b: product(a, b, out=out)  # type: ignore[misc]


def conv_calls(shape: Conv, precision: str, pool: Pool) -> Calls:
    """The convolution of one set of inputs after the other; channels are innermost in memory."""
    side, size = shape.pixels, shape.kernel
    pairs = [
        (
            pool.take(shape.batch, side, side, shape.channels).permute(0, 3, 1, 2),
            pool.take(shape.filters, size, size, shape.channels).permute(0, 3, 1, 2),
        )
        for _ in range(pool.sets(shape.values))
    ]
    for images, weights in itertools.cycle(pairs):
        yield lambda x=images, w=weights: F.conv2d(x, w, padding=size // 2)  # type: ignore[misc]


def measure_kernel(
    kernel: Literal["gemm", "conv"], precision: str, *, device: torch.device, seconds: float
) -> Iterator[KernelTime]:
    """Each shape in turn, smallest first, that fits memory and the time for each."""
    shapes: list[Any] = gemm_shapes(device) if kernel == "gemm" else conv_shapes(device)
    room = memory_bytes(device) // 4
    shapes = [shape for shape in shapes if 4 * (shape.values + shape.results) <= room]
    shapes.sort(key=lambda shape: int(shape.operations))
    each, fastest = TIMED_SHARE * seconds / max(1, len(shapes)), 0.0
    _set_precision(precision)
    with torch.inference_mode():
        for place, shape in enumerate(shapes):
            if place >= SHAPES_AT_LEAST and shape.operations / fastest > 2 * each:
                continue  # one call would take longer than all its samples may
            pool = pool_of(DTYPES[precision], device=device, least_values=2 * shape.values)
            found = _measure_shape(shape, kernel, precision, pool, device=device, seconds=each)
            fastest = max(fastest, found.flops)
            yield found


def _measure_shape(
    shape: Any, kernel: Literal["gemm", "conv"], precision: str, pool: Pool,
    *, device: torch.device, seconds: float,
) -> KernelTime:  # fmt: skip
    """The fastest layout there is to choose."""
    layouts = BY_COLUMNS.get(precision, (False,)) if kernel == "gemm" else (False,)
    found = []
    for by_columns in layouts:
        calls = (
            gemm_calls(shape, precision, pool, by_columns=by_columns)
            if kernel == "gemm"
            else conv_calls(shape, precision, pool)
        )
        times = timed(calls, device, seconds=seconds / len(layouts))
        name = f"{shape.name}, B by columns" if by_columns and len(layouts) > 1 else shape.name
        found.append(
            KernelTime(
                kernel, precision, name, shape.operations,
                median(times.sustained), len(times.sustained), times.burst,
            )
        )  # fmt: skip
    return max(found, key=lambda one: one.best_flops)


def _set_precision(precision: str) -> None:
    """FP32 is IEEE's; torch would let convolutions round to TF32. cuDNN may try its algorithms."""
    chosen = "tf32" if precision == "tf32" else "ieee"
    torch.backends.cuda.matmul.fp32_precision = chosen
    torch.backends.cudnn.conv.fp32_precision = chosen  # type: ignore[attr-defined]
    torch.backends.cudnn.benchmark = True


def measure_memory(*, device: torch.device, seconds: float) -> Iterator[MemoryTime]:
    """Copy (one read, one write) and triad (two reads, one write) over arrays beyond the cache.

    A MemoryError where memory has no room for three arrays of at least twice the cache.
    """
    sizes = memory_sizes(device.type, memory=memory_bytes(device), cache=cache_bytes(device))
    pool = pool_of(torch.float32, device=device, least_values=2**20)
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

        each = seconds / (2 * len(sizes))
        samples = timed(itertools.repeat(copy), device, seconds=each).sustained
        yield MemoryTime("copy", 2 * 4 * count, median(samples), len(samples))
        samples = timed(itertools.repeat(triad), device, seconds=each).sustained
        yield MemoryTime("triad", 3 * 4 * count, median(samples), len(samples))
        del a, b, c, copy, triad
