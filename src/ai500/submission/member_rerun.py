"""Rerun of a few members: chosen by a seed that is drawn after submission, and recorded.

A whole rerun costs as much as the run. A few members cost a share of it, and a submitter who can't
know which they will be has to have trained them all. The seed is drawn when the rerun begins and
written before anything trains; the order that it gives is a hash that anyone can recompute.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ai500.core import events
from ai500.core.errors import InputError, RunFolderError
from ai500.core.reading import file_sha256
from ai500.metrics.equations import Direction
from ai500.records import Plan, TrainRecord, run_folder
from ai500.records.run_folder import RunFolder
from ai500.submission.replication import Comparison, Verdict, compare, overall

FILE_NAME = "members.json"


@dataclass(frozen=True, slots=True)
class ChosenMembers:
    """Members to repeat, and the seed that chose them."""

    submission_sha256: str
    seed: int
    members: tuple[tuple[int, int], ...]
    """(trial, member), in the order of the choice."""


@dataclass(frozen=True, slots=True)
class MemberReplication:
    """Verdict on the members that were repeated."""

    verdict: Verdict
    chosen: ChosenMembers
    comparisons: tuple[Comparison, ...]


def choose(plan: Plan, *, count: int, seed: int) -> tuple[tuple[int, int], ...]:
    """Choose members of all trials by the order of SHA-256("seed/trial/member")."""
    pairs = [
        (trial, member)
        for trial in range(1, plan.trials + 1)
        for member in range(plan.ensemble_size)
    ]
    if not 1 <= count <= len(pairs):
        raise InputError(
            f"--members {count}: the run has {len(pairs)} members.", key="--members", value=count
        )
    order = sorted(
        pairs, key=lambda pair: hashlib.sha256(f"{seed}/{pair[0]}/{pair[1]}".encode()).digest()
    )
    return tuple(order[:count])


def draw(submission: Path, plan: Plan, out: Path, *, count: int) -> ChosenMembers:
    """Draw the seed and record it in the run folder of the rerun, once.

    A rerun that is continued repeats the same members: a second draw could be a selection.
    """
    path, digest = out / FILE_NAME, file_sha256(submission)
    if path.exists():
        chosen = run_folder.read(ChosenMembers, path)
        if chosen.submission_sha256 != digest or len(chosen.members) != count:
            raise RunFolderError(
                f"{out} repeats other members, or those of another submission.",
                path=out,
                remedy="Choose another --out.",
            )
        return chosen
    seed = secrets.randbits(32)
    chosen = ChosenMembers(digest, seed, choose(plan, count=count, seed=seed))
    run_folder.write(path, chosen)
    return chosen


def judge_members(
    claimed: RunFolder, repeated: RunFolder, chosen: ChosenMembers, *, margin: float,
    penalty_exponent: float, quality_name: str, direction: Direction,
) -> MemberReplication:  # fmt: skip
    """Compare quality and speed of the repeated members with the submitted ones.

    Fewer members at once may train faster: only slower ones contradict the submission.
    """
    rates = [_rates(run, chosen.members) for run in (claimed, repeated)]
    qualities = [
        [run_folder.read(TrainRecord, _record(run, pair)).quality for pair in chosen.members]
        for run in (claimed, repeated)
    ]
    speed = compare("samples per second of a member", *rates, margin=margin)
    quality = compare(
        quality_name, *qualities, margin=margin / max(penalty_exponent, 1), direction=direction
    )
    faster = speed.verdict == "differs" and (speed.difference or 0.0) > 0
    verdict = overall([quality.verdict, "replicated" if faster else speed.verdict])
    return MemberReplication(verdict, chosen, (speed, quality))


def _record(run: RunFolder, pair: tuple[int, int]) -> Path:
    trial, member = pair
    return run.trial(trial).member(member).record


def _rates(run: RunFolder, members: Sequence[tuple[int, int]]) -> list[float]:
    """Return the samples per second of each member, from its first batch to its end."""
    rates = []
    for trial, member in members:
        log = list(events.read(run.trial(trial).member(member).events))
        start = next(event for event in log if event["event"] == "first_batch")
        end = [event for event in log if event["event"] == "end"][-1]
        samples = run_folder.read(TrainRecord, _record(run, (trial, member))).samples
        rates.append(samples / (end["wall"] - start["wall"]))
    return rates
