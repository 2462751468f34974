"""What a worker that starts (again) finds in its own history. Needs no torch."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from ai500.automl.history import Candidate, Ended, Line, Present, Work

MOST_STARTS = 3
"""A model that was taken up so often without a step's work is given up."""


@dataclass
class Past:
    """Of one worker, in all its attempts."""

    attempts: int = 0
    """How often it was started: the history's own number, a requeued job keeps its old one."""
    begun: bool = False
    """Whether any attempt came to its first batch."""
    rounds: int = 0
    """The last one that has a name: a name is never given twice."""
    seconds: float = 0.0
    """That it has searched: from each attempt's first batch to the last thing it told."""
    open: dict[str, Candidate] = field(default_factory=dict)
    """Models that were taken up and have not ended, in their order."""
    starts: dict[str, int] = field(default_factory=dict)
    """How often each was taken up since it last did some work."""

    def hopeless(self, model: str) -> bool:
        """Whether it kills whoever takes it up."""
        return self.starts.get(model, 0) >= MOST_STARTS


def number_of(model: str, *, worker: int) -> int:
    """The round in the name of a worker's model; 0: it is no such name."""
    first, _, number = model.partition("-")
    return int(number) if first == f"{worker:03d}" and number.isdecimal() else 0


def past_of(lines: Iterable[Line], *, worker: int) -> Past:
    """From all that the worker told before."""
    past, begun = Past(), None
    for line in lines:
        if line.worker != worker:
            continue
        entry, now = line.entry, float(line.event["monotonic"])
        if line.attempt != past.attempts:  # a killed attempt told no end: nothing counts until now
            past.attempts, begun = line.attempt, None
        if isinstance(entry, Present) and entry.what == "begin":
            past.begun = True
            begun = now  # each attempt has a clock of its own: only differences count
        if begun is not None:
            past.seconds += max(0.0, now - begun)
            begun = now
        if isinstance(entry, Present) and entry.what == "end":
            begun = None
        elif isinstance(entry, Candidate):
            past.rounds = max(past.rounds, entry.round)
            past.open.setdefault(entry.model, entry)
            past.starts[entry.model] = past.starts.get(entry.model, 0) + 1
        elif isinstance(entry, Work):
            past.starts[entry.model] = 0
        elif isinstance(entry, Ended):
            past.open.pop(entry.model, None)
    return past
