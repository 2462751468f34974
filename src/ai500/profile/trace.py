"""One rank's trace (Chrome's format, as torch's profiler writes it), read without torch.

Host events of a thread are nested; a correlation number ties a kernel of an accelerator to the call
that launched it. Times are whole nanoseconds of the rank's wall clock.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ai500.core.errors import RunFolderError
from ai500.core.reading import open_regular
from ai500.parallel.spans import EXCHANGE, Mark, parse
from ai500.profile.categories import Category, category_of_kernel, category_of_operators
from ai500.profile.intervals import Interval, common, union

Event = dict[str, Any]

DEVICE_WORK = ("kernel", "gpu_memcpy", "gpu_memset")
_HOST_WORK = ("cpu_op", "user_annotation")
_STEP = re.compile(r"ProfilerStep#\d+$")
_OPERATOR = re.compile(
    r"^(?!autograd::|torch::autograd::|FSDP::)\w+::|^(gloo|nccl):|^(triton|cpp)_"
)
"""Host events that are work. Others contain operators (`Optimizer.step`, a Python function,
`ConvolutionBackward0`): their own time is the framework's, or a wait."""


@dataclass(frozen=True, slots=True)
class Kernel:
    """One run of a kernel, or on a CPU of an operator."""

    name: str
    category: Category | None
    operator: str | None
    interval: Interval
    busy: int
    """Nanoseconds without those of the operators inside it."""
    launched: int
    """Time of the launch on the host."""
    marks: tuple[int, ...]
    """Spans it was launched in, by their index in `RankTrace.spans`."""


@dataclass(frozen=True, slots=True)
class Span:
    """A marked part on the host, with the spans around it."""

    mark: Mark
    interval: Interval
    inside: tuple[int, ...]


@dataclass(slots=True)
class RankTrace:
    """Kernels, spans and steps of one rank."""

    on_accelerator: bool
    kernels: list[Kernel] = field(default_factory=list)
    spans: list[Span] = field(default_factory=list)
    steps: list[Interval] = field(default_factory=list)

    @property
    def window(self) -> Interval:
        """Time from the first kernel to the last; on a CPU from the first step to the last."""
        if self.on_accelerator or not self.steps:
            intervals = [kernel.interval for kernel in self.kernels]
        else:
            intervals = self.steps
        return min(start for start, _ in intervals), max(end for _, end in intervals)


def load(path: Path) -> tuple[list[Event], int]:
    """Read a trace file: its events, and the nanoseconds that its times count from."""
    try:
        with open_regular(path) as file:
            content = json.loads(file.read().decode("utf-8", errors="replace"))
        return list(content["traceEvents"]), int(content.get("baseTimeNanoseconds", 0))
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise RunFolderError(
            f"{path} is not a trace of torch's profiler: {error}", path=path
        ) from error


def read(events: Iterable[Event], *, base: int = 0, shift: int = 0) -> RankTrace:
    """Extract the kernels and spans of a rank; `shift` nanoseconds are subtracted from times."""
    threads: dict[Any, list[Event]] = defaultdict(list)
    work: list[Event] = []
    for event in events:
        if event.get("ph") != "X":
            continue
        category = event.get("cat", "")
        if category in DEVICE_WORK:
            work.append(event)
        elif category in _HOST_WORK or _is_launch(event):
            threads[event["pid"], event["tid"]].append(event)
    reader = _Reader(base - shift, on_accelerator=bool(work))
    for thread in threads.values():
        reader.read_thread(thread)
    for event in work:
        reader.read_kernel(event)
    _drop_duplicates(reader.trace)
    reader.trace.kernels.sort(key=lambda kernel: kernel.interval)
    reader.trace.steps.sort()
    return reader.trace


def _drop_duplicates(trace: RankTrace) -> None:
    """Drop events of Gloo's threads inside a marked exchange, which covers the same time."""
    marked = union(span.interval for span in trace.spans if span.mark.phase == EXCHANGE)
    trace.kernels = [
        kernel
        for kernel in trace.kernels
        if not (kernel.name.startswith("gloo:") and common([kernel.interval], marked))
    ]


def _is_launch(event: Event) -> bool:
    category = event.get("cat", "")
    return category.endswith(("_runtime", "_driver")) and "correlation" in event.get("args", {})


@dataclass(slots=True)
class _Open:
    """A host event that may contain others."""

    name: str
    interval: Interval
    span: int | None
    is_operator: bool
    inner: int = 0
    """Nanoseconds of operators inside it."""


class _Reader:
    def __init__(self, base: int, *, on_accelerator: bool) -> None:
        self.trace = RankTrace(on_accelerator)
        self._base = base
        self._launches: dict[int, tuple[int, tuple[str, ...], tuple[int, ...]]] = {}

    def _interval(self, event: Event) -> Interval:
        start = self._base + round(event["ts"] * 1000)
        return start, start + round(event.get("dur", 0) * 1000)

    def read_thread(self, thread: list[Event]) -> None:
        """Follow the nesting: outer events begin no later and end no earlier."""
        stack: list[_Open] = []
        timed = [(self._interval(event), event) for event in thread]
        for interval, event in sorted(timed, key=lambda event: (event[0][0], -event[0][1])):
            while stack and stack[-1].interval[1] <= interval[0]:
                self._close(stack)
            if _is_launch(event):
                operators, marks = _operators(stack), _marks(stack)
                self._launches[event["args"]["correlation"]] = interval[0], operators, marks
            else:
                self._open(stack, event["name"], interval)
        while stack:
            self._close(stack)

    def _open(self, stack: list[_Open], name: str, interval: Interval) -> None:
        mark = parse(name)
        if _STEP.match(name):
            self.trace.steps.append(interval)
            return  # contains everything, and distinguishes nothing
        place = None
        if mark is not None:
            place = len(self.trace.spans)
            self.trace.spans.append(Span(mark, interval, _marks(stack)))
        # On a CPU an exchange is work of the library, as NCCL's kernels are on a GPU.
        exchange = mark is not None and mark.phase == EXCHANGE
        operator = exchange or (mark is None and _OPERATOR.match(name) is not None)
        stack.append(_Open("c10d::exchange" if exchange else name, interval, place, operator))

    def _close(self, stack: list[_Open]) -> None:
        done = stack.pop()
        length = done.interval[1] - done.interval[0]
        if stack:
            stack[-1].inner += length if done.is_operator else done.inner
        if self.trace.on_accelerator or not done.is_operator:
            return
        operators = (done.name, *_operators(stack))
        self.trace.kernels.append(
            Kernel(
                name=done.name,
                category=category_of_operators(operators),
                operator=None,
                interval=done.interval,
                busy=max(0, length - done.inner),
                launched=done.interval[0],
                marks=_marks([*stack, done]),
            )
        )

    def read_kernel(self, event: Event) -> None:
        """Add a kernel of an accelerator, with the operators that launched it."""
        interval = self._interval(event)
        launched, operators, marks = self._launches.get(
            event.get("args", {}).get("correlation"), (interval[0], (), ())
        )
        self.trace.kernels.append(
            Kernel(
                name=event["name"],
                category=category_of_kernel(event["name"], operators),
                operator=next((name for name in operators if _OPERATOR.match(name)), None),
                interval=interval,
                busy=interval[1] - interval[0],
                launched=launched,
                marks=marks,
            )
        )


def _operators(stack: list[_Open]) -> tuple[str, ...]:
    """Return the names of open operators, innermost first."""
    return tuple(event.name for event in reversed(stack) if event.span is None or event.is_operator)


def _marks(stack: list[_Open]) -> tuple[int, ...]:
    return tuple(event.span for event in stack if event.span is not None)


def spans_of(trace: RankTrace, phase: str) -> Iterator[tuple[int, Span]]:
    """Yield the spans of a phase with their indices, in the order of time."""
    spans = [(index, span) for index, span in enumerate(trace.spans) if span.mark.phase == phase]
    yield from sorted(spans, key=lambda entry: entry[1].interval)
