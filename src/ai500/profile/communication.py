"""V2 Table 12: the stages of communication, from the marks of all ranks on one clock.

Events of one buffer on one rank, in the order of time:

    ready     its gradients are computed (on an accelerator: the kernels before it have ended)
    begin     its turn: the buffers before it are done
    enter_k   the k-th exchange among some ranks begins on this rank, exit_k it ends
    end       the mean is ready for the optimizer

    queueing            begin − ready
    wait_k              max over the exchange's ranks of enter_k, less this rank's enter_k
    waiting for others  Σ_k of that part of wait_k in which some rank's gradients are not ready
    negotiation         Σ_k of the rest of wait_k: all gradients are ready, some rank is not there
    all-reduce          Σ_k (exit_k − enter_k − wait_k)
    copy out            decompression and means of what was received
    copy in             end − begin, less all of the above: scaling, compression
    hidden              time in which begin…end of some buffer and computation of the rank overlap

On a CPU times are the host's; on an accelerator those of the kernels launched in each part.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass

from ai500.parallel.spans import COPY_OUT, DATA, EXCHANGE, READY, REDUCE
from ai500.profile.intervals import Interval, common, length, union
from ai500.profile.record import CommunicationTime, Stages
from ai500.profile.trace import RankTrace, spans_of

Name = tuple[str, int]
"""A buffer's key, and its number of reductions before this one."""


@dataclass(frozen=True, slots=True)
class Exchange:
    """One call of the communication library."""

    ranks: tuple[int, ...]
    enter: int
    exit: int


@dataclass(frozen=True, slots=True)
class Buffer:
    """The life of one buffer in one step on one rank."""

    ready: int
    begin: int
    end: int
    exchanges: tuple[Exchange, ...]
    copy_out: int


def table(traces: Sequence[RankTrace], *, steps: int, uncertainty: float) -> CommunicationTime:
    """Compute the stages of every rank and their mean; `traces` are in the order of the ranks."""
    lives = [buffers_of(trace) for trace in traces]
    ranks = tuple(_stages(rank, lives, trace, steps=steps) for rank, trace in enumerate(traces))
    mean = (sum(values) / len(ranks) for values in zip(*map(astuple, ranks), strict=True))
    return CommunicationTime(
        mean=Stages(*mean),
        ranks=ranks,
        buffers_per_step=sum(map(len, lives)) / len(lives) / steps,
        clock_uncertainty_seconds=uncertainty,
    )


def waiting_for_data(trace: RankTrace, *, steps: int) -> float:
    """Return the seconds per step that the training loop waits for its next batch."""
    waited = sum(span.interval[1] - span.interval[0] for _, span in spans_of(trace, DATA))
    return waited / 1e9 / steps


def buffers_of(trace: RankTrace) -> dict[Name, Buffer]:
    """Return every buffer that was reduced, by its name."""
    times = _times(trace)
    ready = _ready_times(trace)
    seen: dict[str, int] = defaultdict(int)
    buffers: dict[Name, Buffer] = {}
    inner: dict[int, list[int]] = defaultdict(list)
    for place, span in enumerate(trace.spans):
        for outer in span.inside:
            inner[outer].append(place)
    for place, span in spans_of(trace, REDUCE):
        if place not in times:
            continue
        name = (span.mark.key, seen[span.mark.key])
        seen[span.mark.key] += 1
        begin, end = times[place]
        parts = [(trace.spans[i].mark, times[i]) for i in inner[place] if i in times]
        buffers[name] = Buffer(
            ready=min(ready.get(name, begin), begin),
            begin=begin,
            end=end,
            exchanges=tuple(
                Exchange(mark.ranks, *time) for mark, time in parts if mark.phase == EXCHANGE
            ),
            copy_out=sum(t[1] - t[0] for mark, t in parts if mark.phase == COPY_OUT),
        )
    return buffers


def _times(trace: RankTrace) -> dict[int, Interval]:
    """Return each span's time: on an accelerator from its first kernel to the end of its last."""
    if not trace.on_accelerator:
        return {place: span.interval for place, span in enumerate(trace.spans)}
    times: dict[int, Interval] = {}
    for kernel in trace.kernels:
        start, end = kernel.interval
        for place in kernel.marks:
            before = times.get(place, kernel.interval)
            times[place] = min(start, before[0]), max(end, before[1])
    return times


def _ready_times(trace: RankTrace) -> dict[Name, int]:
    """Return the time at which each buffer's gradients were computed."""
    computing = sorted(
        (kernel.launched, kernel.interval[1]) for kernel in trace.kernels if not kernel.marks
    )
    launches, ends, latest = [launch for launch, _ in computing], [], 0
    for _, end in computing:
        latest = max(latest, end)
        ends.append(latest)
    seen: dict[str, int] = defaultdict(int)
    ready: dict[Name, int] = {}
    for _, span in spans_of(trace, READY):
        time = span.interval[0]
        if trace.on_accelerator:
            before = bisect_right(launches, time)
            time = ends[before - 1] if before else time
        ready[span.mark.key, seen[span.mark.key]] = time
        seen[span.mark.key] += 1
    return ready


def _stages(
    rank: int, lives: Sequence[Mapping[Name, Buffer]], trace: RankTrace, *, steps: int
) -> Stages:
    queueing = copy_in = waiting = negotiation = all_reduce = copy_out = 0
    for name, buffer in lives[rank].items():
        queueing += buffer.begin - buffer.ready
        exchanging = sum(exchange.exit - exchange.enter for exchange in buffer.exchanges)
        copy_out += buffer.copy_out
        copy_in += max(0, buffer.end - buffer.begin - exchanging - buffer.copy_out)
        for number, exchange in enumerate(buffer.exchanges):
            peers = [lives[r][name] for r in exchange.ranks if name in lives[r]]
            entered = [b.exchanges[number].enter for b in peers if number < len(b.exchanges)]
            wait = _within(max(entered) - exchange.enter, exchange.exit - exchange.enter)
            unready = _within(max(b.ready for b in peers) - exchange.enter, wait)
            waiting += unready
            negotiation += wait - unready
            all_reduce += exchange.exit - exchange.enter - wait
    communicating = union((buffer.begin, buffer.end) for buffer in lives[rank].values())
    hidden = common(communicating, _computing(trace))
    times = (queueing, copy_in, waiting, negotiation, all_reduce, copy_out)
    each = (time / 1e9 / steps for time in (*times, hidden, length(communicating) - hidden))
    return Stages(waiting_for_data(trace, steps=steps), *each)


def _within(value: int, most: int) -> int:
    return max(0, min(value, most))


def _computing(trace: RankTrace) -> list[Interval]:
    """Return the time of all kernels that are neither an exchange nor a part of one."""
    return union(
        kernel.interval
        for kernel in trace.kernels
        if not kernel.marks and kernel.category not in (None, "all-reduce")
    )
