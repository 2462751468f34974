"""Signs of sick nodes: steps slower than on other nodes, and what the meters of a node counted.

Every limit is far from what healthy nodes of one kind record: a sign is a reason to test the node,
no proof. Nodes are compared with the median of all nodes of the trial, so that at least
MIN_NODES have to be there, and the sick ones have to be the minority.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from ai500.core.clocks import host_of
from ai500.core.events import TRAINING_EVENTS, Event
from ai500.core.units import human_seconds, human_si, ranges
from ai500.meters.growth import Growth, device_growths
from ai500.records import Plan
from ai500.records.run_folder import RunFolder

MIN_NODES = 3
MIN_EPOCHS = 3
"""Timed epochs of a node, without each member's first one, which reads cold data."""
SLOW_STEPS = 1.1
"""Time of a step, as a multiple of the median node's: accelerators of one kind differ by 1–3 %."""
# Deviations are normal only roughly; three would name healthy nodes of a large machine.
SIGMAS = 6.0
THROTTLED_SHARE = 0.02
"""Share of the metered time with reduced clocks: a brief excursion is normal."""
CORRECTED_ERRORS = 10
"""Corrected memory errors of a device in a trial; healthy memory has a few in a month."""
LINK_ERRORS, LINK_ERRORS_PER_HOUR = 10, 10.0
SLOW_DISK = 0.5
"""Bytes per busy second of a node's disks, as a fraction of the median node's."""
DISK_BUSY_SHARE = 0.2
"""Share of the time that a disk works; below it, its rate says little."""
MAD_TO_SIGMA = 1.4826
MEDIAN_ERROR = 1.2533
"""Standard error of a median, in standard errors of a mean (normal distribution)."""
COUNTED = {
    "memory_uncorrected_errors": (1, "uncorrectable memory (ECC) errors"),
    "memory_corrected_errors": (CORRECTED_ERRORS, "corrected memory (ECC) errors"),
    "xid_errors": (1, "errors in the driver's log (XID)"),
}
"""Counter → least growth that is a sign, and its name."""
SAME_EVERYWHERE = {"link_bits_per_second": "bit/s", "pcie_lanes": " PCIe lanes"}
"""Gauge that healthy devices of one kind share → its unit."""


@dataclass(frozen=True, slots=True)
class Sign:
    """One reason to test a node."""

    hosts: tuple[str, ...]
    """The node; all nodes of a member that spans several and is slow."""
    kind: str
    text: str

    def __str__(self) -> str:
        return f"{', '.join(self.hosts)}: {self.text}"


def trial_signs(
    run: RunFolder,
    plan: Plan,
    events: Iterable[Event],
    *,
    trial: int,
    most_bytes: float = math.inf,
) -> list[Sign]:
    """Read the signs of one trial from its folder and the run's events.

    Meters of more than `most_bytes` are not read. The workers of a search train different models:
    they log no epochs, and their steps are not compared.
    """
    folder = run.trial(trial)
    straddling = {entry.member for entry in plan.mapping if len(entry.shares) > 1}
    size = sum(file.stat().st_size for file in folder.meters.glob("*.jsonl"))
    return node_signs(
        events,
        device_growths(folder.meters) if size <= most_bytes else [],
        trial=trial,
        nodes_of_members={
            member: hosts
            for member, hosts in folder.hosts_of_members().items()
            if member in straddling
        },
    )


def node_signs(
    events: Iterable[Event],
    growths: Sequence[Growth],
    *,
    trial: int,
    nodes_of_members: Mapping[int, Sequence[str]],
) -> list[Sign]:
    """Return the signs of a trial; `nodes_of_members` names the nodes of members with several."""
    return [
        *_slow_steps(events, trial=trial, nodes_of_members=nodes_of_members),
        *_throttled(growths),
        *_counted(growths),
        *_link_errors(growths),
        *_unlike_others(growths),
        *_slow_disks(growths),
    ]


def timed_epochs(events: Sequence[Event]) -> Iterator[tuple[Event, Event]]:
    """Yield each epoch of a member with the event before it, where both clocks can be compared.

    An epoch that an interruption divided has no length.
    """
    for earlier, later in pairwise(events):
        if (
            later["event"] == "epoch"
            and earlier["event"] not in ("resumed", "interrupted")
            and host_of(earlier) == host_of(later)
        ):
            yield earlier, later


def _slow_steps(
    events: Iterable[Event], *, trial: int, nodes_of_members: Mapping[int, Sequence[str]]
) -> Iterator[Sign]:
    by_member: dict[int, list[Event]] = {}
    for event in events:
        if event.get("trial") == trial and event["event"] in TRAINING_EVENTS and "member" in event:
            by_member.setdefault(event["member"], []).append(event)
    paces: dict[tuple[str, ...], list[float]] = {}
    members: dict[tuple[str, ...], set[int]] = {}
    for member, own in by_member.items():
        for earlier, epoch in timed_epochs(own):
            steps = epoch.get("steps")
            if epoch.get("epoch", 0) > 1 and isinstance(steps, int) and steps > 0:
                hosts = tuple(nodes_of_members.get(member, ())) or (str(epoch["host"]),)
                pace = (epoch["monotonic"] - earlier["monotonic"]) / steps
                paces.setdefault(hosts, []).append(pace)
                members.setdefault(hosts, set()).add(member)
    paces = {hosts: values for hosts, values in paces.items() if len(values) >= MIN_EPOCHS}
    for hosts, pace, usual in _outliers(paces):
        yield Sign(
            hosts,
            "slow steps",
            f"a step takes {human_seconds(pace)}, {pace / usual:.2f} × the median of "
            f"{len(paces)} nodes (members {ranges(sorted(members[hosts]))})",
        )


def _outliers(
    samples: Mapping[tuple[str, ...], Sequence[float]],
) -> Iterator[tuple[tuple[str, ...], float, float]]:
    """Yield (nodes, their value, median of all) of those far above what scatter explains."""
    if len(samples) < MIN_NODES:
        return
    from statistics import median  # here: most runs have too few nodes to need it

    values = {hosts: median(series) for hosts, series in samples.items()}
    usual = median(values.values())
    between = MAD_TO_SIGMA * median(abs(value - usual) for value in values.values())
    for hosts, value in values.items():
        scatter = MAD_TO_SIGMA * median(abs(sample - value) for sample in samples[hosts])
        error = MEDIAN_ERROR * scatter / len(samples[hosts]) ** 0.5
        if value > SLOW_STEPS * usual and value - usual > SIGMAS * (between**2 + error**2) ** 0.5:
            yield hosts, value, usual


def _throttled(growths: Sequence[Growth]) -> Iterator[Sign]:
    for growth in _growths_of(growths, "throttled_seconds"):
        share = growth.growth / growth.seconds if growth.seconds > 0 else 0.0
        if share > THROTTLED_SHARE:
            yield Sign(
                (growth.host,),
                "throttled",
                f"{growth.column.device} ran with clocks reduced by heat or a power brake for "
                f"{share:.0%} of the time",
            )


def _counted(growths: Sequence[Growth]) -> Iterator[Sign]:
    codes = {(g.host, g.column.device): g.last for g in _growths_of(growths, "last_xid")}
    for quantity, (least, name) in COUNTED.items():
        for growth in _growths_of(growths, quantity):
            if growth.growth >= least:
                code = codes.get((growth.host, growth.column.device), 0)
                last = f", the last is {code:.0f}" if quantity == "xid_errors" and code else ""
                text = f"{growth.column.device} had {growth.growth:.0f} {name}{last}"
                yield Sign((growth.host,), quantity.replace("_", " "), text)


def _link_errors(growths: Sequence[Growth]) -> Iterator[Sign]:
    for growth in _growths_of(growths, "link_errors"):
        per_hour = 3600 * growth.growth / growth.seconds if growth.seconds > 0 else 0.0
        if growth.growth >= LINK_ERRORS and per_hour > LINK_ERRORS_PER_HOUR:
            text = f"{growth.column.device} had {growth.growth:.0f} link errors"
            yield Sign((growth.host,), "link errors", text)


def _unlike_others(growths: Sequence[Growth]) -> Iterator[Sign]:
    """Yield devices below the value that most devices of their kind have."""
    for quantity, unit in SAME_EVERYWHERE.items():
        groups: dict[tuple[str, str], list[Growth]] = {}
        for growth in _growths_of(growths, quantity):
            # An interface has its name on every node, an accelerator is known by its UUID.
            device = growth.column.device if quantity.startswith("link_") else ""
            groups.setdefault((growth.column.meter, device), []).append(growth)
        for group in groups.values():
            value, count = Counter(growth.last for growth in group).most_common(1)[0]
            if len(group) < MIN_NODES or 2 * count <= len(group):
                continue
            for growth in group:
                if growth.last < value:
                    yield Sign(
                        (growth.host,),
                        "slow link",
                        f"{growth.column.device} runs at {human_si(growth.last)}{unit}, the others "
                        f"at {human_si(value)}{unit}",
                    )


def _slow_disks(growths: Sequence[Growth]) -> Iterator[Sign]:
    """Yield nodes whose disks move fewer bytes in a busy second than the other nodes' disks."""
    moved: Counter[str] = Counter()
    busy: Counter[str] = Counter()
    metered: dict[str, float] = {}
    for growth in growths:
        if growth.column.quantity in ("disk_read_bytes", "disk_written_bytes"):
            moved[growth.host] += growth.growth  # type: ignore[assignment]
        elif growth.column.quantity == "disk_busy_seconds":
            busy[growth.host] += growth.growth  # type: ignore[assignment]
            metered[growth.host] = max(growth.seconds, metered.get(growth.host, 0.0))
    rates = {
        host: moved[host] / seconds
        for host, seconds in busy.items()
        if seconds > DISK_BUSY_SHARE * metered[host] > 0
    }
    if len(rates) < MIN_NODES:
        return
    from statistics import median

    usual = median(rates.values())
    for host, rate in rates.items():
        if rate < SLOW_DISK * usual:
            yield Sign(
                (host,),
                "slow disk",
                f"its disks move {human_si(rate)}B in a busy second, those of the median of "
                f"{len(rates)} nodes {human_si(usual)}B",
            )


def _growths_of(growths: Iterable[Growth], quantity: str) -> Iterator[Growth]:
    return (growth for growth in growths if growth.column.quantity == quantity)
