"""Synthetic traces in the format of torch's profiler, whose analysis has known results."""

from __future__ import annotations

from typing import Any

from ai500.profile.trace import Event

HOST, DEVICE, MAIN, STREAM, COMM = 4711, 0, 1, 7, 20


class Builder:
    """Builder of a trace; times are in microseconds."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self._correlation = 0

    def _add(self, category: str, name: str, start: float, end: float, **more: Any) -> None:
        place = {"pid": HOST, "tid": MAIN} | more
        event = {"ph": "X", "cat": category, "name": name, "ts": start, "dur": end - start}
        self.events.append(event | place)

    def operator(self, name: str, start: float, end: float, *, thread: int = MAIN) -> None:
        """Add an operator of the host."""
        self._add("cpu_op", name, start, end, tid=thread)

    def annotation(self, name: str, start: float, end: float, *, thread: int = MAIN) -> None:
        """Add a `record_function` annotation."""
        self._add("user_annotation", name, start, end, tid=thread)

    def kernel(
        self, name: str, launched: float, start: float, end: float, *, stream: int = STREAM
    ) -> None:
        """Add a launch of the host's main thread and its kernel on the accelerator."""
        self._correlation += 1
        arguments = {"correlation": self._correlation}
        self._add("cuda_runtime", "cudaLaunchKernel", launched, launched + 1, args=arguments)
        category = "gpu_memcpy" if name.startswith("Memcpy") else "kernel"
        self._add(category, name, start, end, pid=DEVICE, tid=stream, args=arguments)


def accelerator_step(*, ready: float, enter: float, all_in: float) -> Builder:
    """Build a step: computation until `ready`, one bucket from `enter` to 100 after `all_in`.

    The host is far ahead of the device; 30 µs of computation overlap the exchange.
    """
    trace = Builder()
    trace.annotation("ProfilerStep#2", 0, 90)
    trace.annotation("ai500 data |  | ", 0, 5)
    trace.operator("aten::conv2d", 10, 20)
    trace.operator("aten::cudnn_convolution", 11, 19)
    trace.kernel("void cutlass::Kernel2<x>", 12, 100, ready)
    trace.annotation("ai500 ready | bucket 0 | ", 30, 31)
    trace.annotation("ai500 reduce | bucket 0 | ", 32, 50)
    trace.operator("aten::mul_", 33, 35)
    trace.kernel("void at::native::vectorized_elementwise_kernel<4>", 34, enter - 10, enter,
                stream=COMM)  # fmt: skip
    trace.annotation("ai500 exchange |  | 0,1", 36, 48)
    trace.operator("c10d::allreduce_", 37, 47)
    trace.kernel("ncclDevKernel_AllReduce_Sum_f32_RING_LL", 40, enter, all_in + 100, stream=COMM)
    trace.operator("aten::mm", 60, 70)
    trace.kernel("nvjet_hsh_128x128", 65, all_in, all_in + 30)
    return trace
