"""Identity of a run: which members of two submissions are the same work.

The intervals between the events of a member's log differ from run to run by more than a
microsecond, even where the same seeds on equal systems give the same weights. A member is known by
the digests of these intervals. Shifted clocks, another host, submitter, system or key change none
of them; a changed digit of one event changes two. So a member is the same work if half of its
marks are. Copies with a small change of every time are found by `near_copies`.

Only events that every training has count: others can be put between them, or left out.
"""

from __future__ import annotations

import hashlib
import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ai500.core import events
from ai500.core.events import Event
from ai500.ranking.entries import Claim, MemberWork
from ai500.ranking.near_copies import near_copies
from ai500.records import Plan, TrainRecord, run_folder
from ai500.records.run_folder import RunFolder

MARKS = 16
"""Marks kept per member: those with the smallest digests, a random sample that two copies share."""
KINDS = {"first_batch", "epoch", "quality", "end"}
"""Events of a member's log that time its work."""
MIN_INTERVAL_MICROSECONDS = 100
"""Shorter ones are those of events that one call writes, and alike in every run."""
MAX_EQUAL_MEMBERS = 64
"""Members of one submission with the same mark that are compared: a real run has one."""
MAX_INTERVALS = 512
"""Intervals kept per member for `near_copies`: 250 epochs."""
MIN_SHARED = 3
"""Fewer shared marks count only beside equal weights: two short logs may agree by chance."""


def work_of(run: RunFolder, plan: Plan) -> Iterator[MemberWork]:
    """Yield the identity of each member's training."""
    for trial in range(1, plan.trials + 1):
        for member in range(plan.ensemble_size):
            folder = run.trial(trial).member(member)
            record = run_folder.read(TrainRecord, folder.record)
            yield member_work(trial, member, record.weights_sha256, events.read(folder.events))


def member_work(
    trial: int, member: int, weights_sha256: str | None, log: Iterable[Event]
) -> MemberWork:
    """Return the identity of a member from its log."""
    log = list(log)
    return MemberWork(trial, member, weights_sha256, marks(log), *rhythm(log))


def rhythm(log: Iterable[Event]) -> tuple[str, tuple[int, ...]]:
    """Return the times between a member's successive events, kind by kind, and their digest."""
    intervals = list(itertools.islice(_intervals(log), MAX_INTERVALS))
    intervals.sort(key=lambda interval: interval[0])  # stable: in the order of the log otherwise
    text = "\n".join(f"{kind} {place}" for kind, place, _ in intervals)
    digest = hashlib.blake2b(text.encode(errors="replace"), digest_size=8).hexdigest()
    return digest, tuple(microseconds for *_, microseconds in intervals)


def _intervals(log: Iterable[Event]) -> Iterator[tuple[str, str, int]]:
    """Yield kind and place of each event that times the work, and the microseconds before it.

    The place is the epoch, and in a search the model by its order, whatever its name. An event that
    is logged again has no place of its own.
    """
    times: dict[tuple[str, str], float] = {}
    models: dict[str, int] = {}
    for event in log:
        if event["event"] in KINDS and isinstance(event.get("monotonic"), int | float):
            model = models.setdefault(str(event.get("model")), len(models))
            place = f"{event.get('epoch')} {model}"
            times.setdefault((event["event"], place), event["monotonic"])
    for (_, earlier), ((kind, place), later) in itertools.pairwise(times.items()):
        yield kind, place, round(1e6 * (later - earlier))


def marks(log: Iterable[Event]) -> tuple[int, ...]:
    """Return the smallest digests of the intervals between a member's successive events.

    Clocks of 10⁹ s have a resolution of 10⁻⁷ s: a microsecond survives a shift of the clock.
    """
    digests: set[int] = set()
    for kind, place, interval in _intervals(log):
        if abs(interval) >= MIN_INTERVAL_MICROSECONDS:
            text = f"{kind} {place} {interval}"
            digest = hashlib.blake2b(text.encode(errors="replace"), digest_size=8).digest()
            digests.add(int.from_bytes(digest, "big"))
    return tuple(sorted(digests)[:MARKS])


@dataclass(frozen=True, slots=True)
class Overlap:
    """Members of a submission that are the same work as another's."""

    first: int
    """Position of the submission that has the work first."""
    second: int
    """Position of the later submission."""
    members: tuple[tuple[int, int], ...]
    """Trial and member of the later submission that are not its own."""
    total: int
    """Members of the later submission."""

    @property
    def described(self) -> str:
        """The members in words."""
        if len(self.members) == self.total:
            return f"all {self.total} members"
        trials = sorted({trial for trial, _ in self.members})
        which = ", ".join(map(str, trials))
        plural = "s" * (len(trials) != 1)
        return f"{len(self.members)} of {self.total} members (trial{plural} {which})"


def overlaps(claims: Sequence[Claim]) -> list[Overlap]:
    """Find the submissions that contain work of an earlier one; the first claim is the earliest.

    Submissions of the same work are compared with its first one, not all with each other.
    """
    owners = [(position, work) for position, claim in enumerate(claims) for work in claim.work]
    counts = [len(work.marks) for _, work in owners]
    values = np.fromiter(
        (mark for _, work in owners for mark in work.marks), dtype=np.uint64, count=sum(counts)
    )
    of_member = np.repeat(np.arange(len(owners)), counts)
    order = np.argsort(values, kind="stable")  # equal marks: the first claim's comes first
    values, of_member = values[order], of_member[order]
    shared = _shared_marks(values, of_member, [position for position, _ in owners])
    members: dict[tuple[int, int], set[tuple[int, int]]] = {}
    for (earlier, later), count in shared.items():
        (first, work), (second, copy) = owners[earlier], owners[later]
        if first != second and same_work(work, copy, shared=count):
            members.setdefault((first, second), set()).add((copy.trial, copy.member))
    sources: dict[int, set[int]] = {}
    for first, second in members:
        sources.setdefault(second, set()).add(first)
    for first, second, copies in near_copies(claims):
        # Two copies of a third are compared with that one, not with each other.
        if not sources.get(first, set()) & sources.setdefault(second, set()):
            sources[second].add(first)
            members.setdefault((first, second), set()).update(copies)
    return [
        Overlap(first, second, tuple(sorted(copies)), len(claims[second].work))
        for (first, second), copies in sorted(members.items())
    ]


def _shared_marks(
    values: NDArray[np.uint64], of_member: NDArray[np.intp], submissions: Sequence[int]
) -> Counter[tuple[int, int]]:
    """Count the marks that each member has in common with members of the first submission."""
    starts = np.flatnonzero(np.concatenate(([True], values[1:] != values[:-1])))
    shared: Counter[tuple[int, int]] = Counter()
    for start, end in zip(starts, [*starts[1:], len(values)], strict=True):
        if end - start > 1:
            having = of_member[start:end].tolist()
            first = submissions[having[0]]
            own = [member for member in having if submissions[member] == first]
            later = having[len(own) :]
            shared.update(itertools.product(own[:MAX_EQUAL_MEMBERS], later))
    return shared


def same_work(work: MemberWork, copy: MemberWork, *, shared: int) -> bool:
    """Return True if two members with that many marks in common are one training."""
    if 2 * shared < min(len(work.marks), len(copy.marks)):
        return False
    weights = work.weights_sha256
    return shared >= MIN_SHARED or (weights is not None and weights == copy.weights_sha256)


def same_weights(claims: Sequence[Claim]) -> list[list[int]]:
    """Group the claims whose members have the same weights; return groups of two and more.

    The same seeds on equal systems give the same weights, so this alone proves nothing.
    """
    groups: dict[tuple[str, ...], list[int]] = {}
    for position, claim in enumerate(claims):
        weights = tuple(sorted(filter(None, (work.weights_sha256 for work in claim.work))))
        if weights and len(weights) == len(claim.work):
            groups.setdefault(weights, []).append(position)
    return [group for group in groups.values() if len(group) > 1]
