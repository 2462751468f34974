"""Verify that a submission's score follows from its raw events, and that its records agree.

The score is computed again from the events, and every figure is compared with the submitted one.
So are the findings, the aggregated results, and the events of each member, which are recorded
twice: in the member's own log and in the run's.
"""

from __future__ import annotations

import contextlib
import gc
import hashlib
import json
import marshal
import math
import time
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from itertools import chain, islice, product
from pathlib import Path
from typing import Any

from ai500.bagging.data_sampler import SAMPLERS, bootstrap_header
from ai500.core import editions, events, schema
from ai500.core.atomic import json_text
from ai500.core.errors import AI500Error
from ai500.core.events import TRAINING_EVENTS, Event
from ai500.core.randomness import Stream, derive
from ai500.pipeline import scoring
from ai500.pipeline.programs import program_of
from ai500.records import BootstrapRecord, EnsembleResult, Plan, Score, run_folder
from ai500.records.findings import Judgement
from ai500.records.run_folder import RunFolder
from ai500.rules.evidence import reference_class
from ai500.submission.archive import MAX_PROBLEMS, printable
from ai500.submission.consistency import LoggedJob, contradicting_records
from ai500.submission.description import SubmitOptions, describe, run_script
from ai500.submission.manifest import (
    INFO,
    SCRIPT,
    Info,
    Submission,
    contradictions_as_errors,
    info_problems,
)

# Relative. The equations are a few operations on doubles: the rounding of another machine is far
# below it, a manipulation that improves a rank far above.
TOLERANCE = 1e-9
# Months that a run may end before the edition of the list, or after it as a late entry.
MAX_EDITION_MONTHS, MAX_LATE_MONTHS = 24, 12
# Time zones make a computer's date differ by a day; its clock may be wrong by as much.
MAX_CLOCK_ERROR_SECONDS = 86_400.0
# A file of results is compared value by value unless it is so many times larger than its own.
MAX_GROWTH = 8
MEMBER_EVENTS = TRAINING_EVENTS | {"operations"}


@dataclass(frozen=True, slots=True)
class Difference:
    """Value that does not follow from the raw events."""

    file: str
    key: str
    claimed: str
    recomputed: str


@dataclass(frozen=True, slots=True)
class Verification:
    """Result of recomputing a submission."""

    problems: tuple[str, ...]
    """Problems of the file, and records that contradict each other."""
    differences: tuple[Difference, ...]
    compared: int
    """Number of values that were compared."""
    score: Score | None
    """Recomputed score; None: it could not be computed from the records."""
    broken: tuple[str, ...] = ()
    """Rules that the run breaks at the submission's level, or that could not be checked."""

    @property
    def confirmed(self) -> bool:
        """True if the submitted score follows from the events."""
        return self.score is not None and not self.problems and not self.differences

    @property
    def valid(self) -> bool:
        """True if the score is confirmed and no rule is broken: the list ranks it."""
        return self.confirmed and not self.broken


def recompute(submission: Submission, *, now: float | None = None) -> Verification:
    """Compute everything again from the raw events, and compare; write nothing.

    `now` is today's date in seconds since 1970; the computer's own by default.
    """
    problems = list(submission.problems)
    try:
        with contradictions_as_errors(submission.path.name), _without_collector():
            return _compare(submission.run, submission.require_info(), problems, now=now)
    except AI500Error as error:
        if not problems:  # otherwise the problems explain the error
            # The temporary folder is meaningless to a reader, and differs each time.
            problems = [printable(str(error).replace(f"{submission.run.path}/", ""))]
        return Verification(tuple(problems), (), 0, None)


@contextlib.contextmanager
def _without_collector() -> Iterator[None]:
    """Don't look for cycles of references: records have none, and a long log has many objects."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _compare(run: RunFolder, info: Info, problems: list[str], *, now: float | None) -> Verification:
    score, judgement = scoring.judge_run(run, level=info.level, rules=info.rule_set)
    problems += contradictions(run, run_folder.read(Plan, run.plan), now=now)
    compared, differences = 0, list[Difference]()
    for name, content in result_files(score, judgement).items():
        path = run.path / name
        size = path.stat().st_size if path.exists() else 0
        if size > MAX_GROWTH * len(content):
            differences.append(Difference(name, "bytes", str(size), str(len(content))))
            continue
        recomputed = dict(_leaves(json.loads(content)))
        claimed = dict(_leaves(run_folder.read_json(path))) if path.exists() else {}
        keys = dict.fromkeys([*recomputed, *claimed])
        compared += len(keys)
        differences += [
            Difference(name, key, _format(claimed, key), _format(recomputed, key))
            for key in keys
            if not _equal(claimed.get(key, _ABSENT), recomputed.get(key, _ABSENT))
        ]
    broken = tuple(finding.cited for finding in judgement.violations)
    return Verification(tuple(problems), tuple(differences), compared, score, broken)


def result_files(score: Score, judgement: Judgement) -> dict[str, bytes]:
    """Return the files with the scores and the findings of the submission's level."""
    records: dict[str, object] = {
        "score.json": score,
        "judgement.json": judgement,
        "findings.json": judgement.findings,
    }
    records |= {f"trials/{trial.trial:02d}/score.json": trial for trial in score.trials}
    return {name: json_text(schema.encode(record)).encode() for name, record in records.items()}


def contradictions(run: RunFolder, plan: Plan, *, now: float | None = None) -> Iterator[str]:
    """Yield the records that don't agree with each other or with today, a thousand at most."""
    logged: set[LoggedJob] = set()
    trials = range(1, plan.trials + 1)
    problems = chain(
        _contradicting_events(run, plan, logged=logged, now=time.time() if now is None else now),
        *(_contradicting_bootstraps(run, plan, trial) for trial in trials),
        *(contradicting_records(run, plan, trial, logged=logged) for trial in trials),
        _unfounded_claims(run, plan) if (run.path / INFO).exists() else (),
    )
    return islice(problems, MAX_PROBLEMS)


def _contradicting_events(
    run: RunFolder, plan: Plan, *, logged: set[LoggedJob], now: float
) -> Iterator[str]:
    """Compare the run's log with the members' own and with today; add its jobs to `logged`."""
    collected: dict[tuple[Any, Any], dict[Any, bytes]] = {}
    results: dict[Any, Any] = {}
    latest = now
    for event in events.read(run.events):
        if isinstance(wall := event.get("wall"), float):
            latest = max(latest, wall)
        if event["event"].startswith("job_"):
            logged.add((str(event.get("trial")), str(event.get("member")), str(event.get("job"))))
        if event["event"] == "aggregate":
            results[event.get("trial")] = event.get("result")
        elif "member_sequence" in event:
            if "model" in event and program_of(plan).trains_class_model:
                yield f"events.jsonl: event {printable(event['event'])!r} names a model of a search"
            member_log = collected.setdefault((event.get("trial"), event.get("member")), {})
            number = event["member_sequence"]
            if number in member_log:
                kind = printable(event["event"])
                yield f"events.jsonl: duplicate event {kind!r} of a member"
            del event["member_sequence"]
            member_log[number] = _fingerprint(event)
        elif event["event"] in MEMBER_EVENTS:
            yield f"events.jsonl: event {event['event']!r} is in no member's log"
    if latest > now + MAX_CLOCK_ERROR_SECONDS:
        yield f"events.jsonl: an event is {(latest - now) / 86_400:.4g} days after today"
    planned = set(product(range(1, plan.trials + 1), range(plan.ensemble_size)))
    for trial, member in sorted(set(collected) - planned, key=repr):
        yield (
            f"events.jsonl: events of member {printable(str(member))} of trial "
            f"{printable(str(trial))}, which is not planned"
        )
    for trial in range(1, plan.trials + 1):
        folder = run.trial(trial)
        result = schema.encode(run_folder.read(EnsembleResult, folder.ensemble))
        if results.get(trial) != result:
            yield f"{_name(run, folder.ensemble)}: differs from events.jsonl on trial {trial}"
        for member in range(plan.ensemble_size):
            path = folder.member(member).events
            member_log = {event.get("sequence"): _fingerprint(event) for event in events.read(path)}
            if member_log != collected.get((trial, member), {}):
                yield f"{_name(run, path)}: differs from events.jsonl on this member"


def _fingerprint(event: Event) -> bytes:
    """Return a digest of an event, for comparison: two logs of events would fill the memory."""
    return hashlib.blake2b(marshal.dumps(sorted(event.items()), 2), digest_size=16).digest()


def _contradicting_bootstraps(run: RunFolder, plan: Plan, trial: int) -> Iterator[str]:
    """Draw the bootstraps again, and yield those that don't follow from the trial's seed."""
    path = run.trial(trial).bootstraps
    records = run_folder.read_all(BootstrapRecord, path)
    samples = reference_class(plan).train_samples
    if sorted(record.member for record in records) != list(range(plan.ensemble_size)):
        yield f"{_name(run, path)}: not one bootstrap of each of {plan.ensemble_size} members"
        return  # drawing them all again could take any time
    if plan.sampler not in SAMPLERS or plan.definition.train_samples != samples:
        return  # the rules "own bootstraps" and "same data" report it
    seed = derive(plan.seed, Stream.TRIAL, trial)
    for record in records:
        drawn = bootstrap_header(SAMPLERS[plan.sampler], samples, seed=seed, member=record.member)
        names = ("samples", "drawn", "distinct", "sha256")
        if any(getattr(drawn, name) != getattr(record, name) for name in names):
            yield f"{_name(run, path)}: member {record.member}'s does not follow from the seed"


def _unfounded_claims(run: RunFolder, plan: Plan) -> Iterator[str]:
    """Yield what submission.json and run.sh state in contradiction to the run."""
    claimed = schema.decode(Info, run_folder.read_json(run.path / INFO))
    # The fields that only the submitter knows are not checked.
    options = SubmitOptions(
        level=claimed.level,
        name=claimed.name,
        organization=claimed.organization,
        system_name=claimed.system_name,
        contact=claimed.contact,
        edition=claimed.edition,
    )
    derived = replace(describe(run, plan, options), rule_set=claimed.rule_set)
    for field in fields(Info):
        claimed_value, value = getattr(claimed, field.name), getattr(derived, field.name)
        if claimed_value != value:
            yield (
                f"{INFO}: {field.name} is {printable(str(claimed_value))}, the run has "
                f"{printable(str(value))}"
            )
    if any(info_problems(claimed)):
        return  # reported when the submission was opened
    if claimed.edition != plan.edition:
        yield (
            f"{INFO}: edition {claimed.edition}; the run's seeds are those of edition "
            f"{printable(plan.edition)} (run.edition, decision D22)"
        )
    months = editions.months_of(claimed.edition) - editions.months_of(derived.created)
    if not -MAX_LATE_MONTHS <= months <= MAX_EDITION_MONTHS:
        yield (
            f"{INFO}: edition {claimed.edition} of a run that ended {derived.created[:7]}; a run "
            f"ends at most {MAX_EDITION_MONTHS} months before its edition and {MAX_LATE_MONTHS} "
            "after it"
        )
    script = run.path / SCRIPT
    if script.exists() and script.read_bytes() != run_script(claimed, plan).encode():
        yield f"{SCRIPT}: not the script that repeats this run"


def _name(run: RunFolder, path: Path) -> str:
    return path.relative_to(run.path).as_posix()


_ABSENT = object()


def _leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield every scalar, empty list and empty object of a JSON document with its path."""
    if isinstance(value, dict) and value:
        for key, item in value.items():
            yield from _leaves(item, f"{path}.{key}" if path else str(key))
    elif isinstance(value, list) and value:
        for index, item in enumerate(value):
            yield from _leaves(item, f"{path}[{index}]")
    else:
        yield path, value


def _equal(claimed: Any, recomputed: Any) -> bool:
    types = {type(claimed), type(recomputed)}
    if types <= {int, float} and float in types:  # counts are exact
        return math.isclose(claimed, recomputed, rel_tol=TOLERANCE, abs_tol=0.0)
    return bool(claimed == recomputed) and type(claimed) is type(recomputed)


def _format(values: dict[str, Any], key: str) -> str:
    return printable(str(values[key])) if key in values else "missing"
