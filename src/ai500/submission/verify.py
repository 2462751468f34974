"""Does a submission's score follow from its raw events, and do its records tell one story?

Nothing that a submission says of its own score is believed: it is computed again from the events,
and every figure is compared. The same is done with the findings, the aggregated results and the
events of each member, which are there twice: in the member's own log and in the run's.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from ai500.bagging.data_sampler import SAMPLERS, described
from ai500.core import events, schema
from ai500.core.atomic import json_text
from ai500.core.errors import AI500Error
from ai500.core.events import Event
from ai500.core.randomness import Stream, derive
from ai500.metrics.trials import TRAINING_EVENTS
from ai500.pipeline import scoring
from ai500.records import BootstrapRecord, EnsembleResult, Plan, Score, run_folder
from ai500.records.findings import Judgement
from ai500.records.run_folder import RunFolder
from ai500.rules.evidence import reference_class
from ai500.submission.archive import printable
from ai500.submission.description import Wish, describe, run_script
from ai500.submission.manifest import INFO, SCRIPT, Info, Submission, explaining, info_problems

TOLERANCE = 1e-9
"""Relative. The equations are a few operations on doubles: another machine's rounding is far
below it, and a change that anybody would make for a better place far above."""
LATEST_EDITION_MONTHS = 24
"""After the run's end."""
MEMBERS_OWN = TRAINING_EVENTS | {"operations"}


@dataclass(frozen=True, slots=True)
class Difference:
    """A value that does not follow from the raw events."""

    file: str
    key: str
    claimed: str
    recomputed: str


@dataclass(frozen=True, slots=True)
class Verification:
    """What came out."""

    problems: tuple[str, ...]
    """Of the file itself, and of records that contradict each other."""
    differences: tuple[Difference, ...]
    compared: int
    """Values that were compared."""
    score: Score | None
    """Recomputed; None: the records don't allow it."""

    @property
    def confirmed(self) -> bool:
        """The score is what it says it is."""
        return self.score is not None and not self.problems and not self.differences


def recompute(submission: Submission) -> Verification:
    """Compute everything again from the raw events, and compare. Nothing is written."""
    problems = list(submission.problems)
    try:
        with explaining(submission.path.name):
            return _compared(submission.run, submission.known(), problems)
    except AI500Error as error:
        if not problems:  # otherwise they say already why, and better
            # Where it was unpacked is of no use to anybody, and differs each time.
            problems = [printable(str(error).replace(f"{submission.run.path}/", ""))]
        return Verification(tuple(problems), (), 0, None)


def _compared(run: RunFolder, info: Info, problems: list[str]) -> Verification:
    score, judgement = scoring.judge_run(run, level=info.level, rules=info.rule_set)
    problems += contradictions(run, run_folder.read(Plan, run.plan))
    compared, differences = 0, []
    for name, content in judged_files(score, judgement).items():
        path = run.path / name
        ours = dict(_leaves(json.loads(content)))
        theirs = dict(_leaves(run_folder.read_json(path))) if path.exists() else {}
        keys = dict.fromkeys([*ours, *theirs])
        compared += len(keys)
        differences += [
            Difference(name, key, _shown(theirs, key), _shown(ours, key))
            for key in keys
            if not _same(theirs.get(key, _ABSENT), ours.get(key, _ABSENT))
        ]
    return Verification(tuple(problems), tuple(differences), compared, score)


def judged_files(score: Score, judgement: Judgement) -> dict[str, bytes]:
    """Scores as they follow from the events now, and the findings of the level submitted to."""
    records: dict[str, object] = {
        "score.json": score,
        "judgement.json": judgement,
        "findings.json": judgement.findings,
    }
    records |= {f"trials/{one.trial:02d}/score.json": one for one in score.trials}
    return {name: json_text(schema.encode(one)).encode() for name, one in records.items()}


def contradictions(run: RunFolder, plan: Plan) -> Iterator[str]:
    """Records of one thing that don't agree."""
    yield from _contradicting_events(run, plan)
    for trial in range(1, plan.trials + 1):
        yield from _contradicting_bootstraps(run, plan, trial)
    if (run.path / INFO).exists():
        yield from _unfounded_claims(run, plan)


def _contradicting_events(run: RunFolder, plan: Plan) -> Iterator[str]:
    collected: dict[tuple[Any, Any], dict[Any, Event]] = {}
    results: dict[Any, Any] = {}
    for event in events.read(run.events):
        if event["event"] == "aggregate":
            results[event.get("trial")] = event.get("result")
        elif "member_sequence" in event:
            of = collected.setdefault((event.get("trial"), event.get("member")), {})
            number = event["member_sequence"]
            if number in of:
                kind = printable(event["event"])
                yield f"events.jsonl: an event {kind!r} of a member is there twice"
            of[number] = {key: event[key] for key in event if key != "member_sequence"}
        elif event["event"] in MEMBERS_OWN:
            yield f"events.jsonl: an event {event['event']!r} that no member's log accounts for"
    planned = {(t, m) for t in range(1, plan.trials + 1) for m in range(plan.ensemble_size)}
    for trial, member in sorted(set(collected) - planned, key=repr):
        yield (
            f"events.jsonl: events of member {printable(str(member))} of trial "
            f"{printable(str(trial))}, which is not planned"
        )
    for trial in range(1, plan.trials + 1):
        folder = run.trial(trial)
        told = schema.encode(run_folder.read(EnsembleResult, folder.ensemble))
        if results.get(trial) != told:
            yield f"{_name(run, folder.ensemble)}: not what events.jsonl says of trial {trial}"
        for member in range(plan.ensemble_size):
            path = folder.member(member).events
            told_by_it = {event.get("sequence"): event for event in events.read(path)}
            if told_by_it != collected.get((trial, member), {}):
                yield f"{_name(run, path)}: not the events that events.jsonl has of this member"


def _contradicting_bootstraps(run: RunFolder, plan: Plan, trial: int) -> Iterator[str]:
    """Bootstraps that do not follow from the trial's seed; they are drawn again."""
    path = run.trial(trial).bootstraps
    records = run_folder.read_all(BootstrapRecord, path)
    samples = reference_class(plan).train_samples
    if sorted(one.member for one in records) != list(range(plan.ensemble_size)):
        yield f"{_name(run, path)}: not one bootstrap of each of {plan.ensemble_size} members"
    if plan.sampler not in SAMPLERS or plan.definition.train_samples != samples:
        return  # the rules about bagging and data say what is wrong with it
    seed = derive(plan.seed, Stream.TRIAL, trial)
    for one in records:
        drawn = described(SAMPLERS[plan.sampler], samples, seed=seed, member=one.member)
        ours = (drawn.samples, drawn.drawn, drawn.distinct, drawn.sha256)
        if ours != (one.samples, one.drawn, one.distinct, one.sha256):
            yield f"{_name(run, path)}: member {one.member}'s does not follow from the seed"


def _unfounded_claims(run: RunFolder, plan: Plan) -> Iterator[str]:
    """What submission.json and run.sh say otherwise than the run; a person's words are theirs."""
    claimed = schema.decode(Info, run_folder.read_json(run.path / INFO))
    wish = Wish(
        level=claimed.level,
        name=claimed.name,
        organization=claimed.organization,
        system_name=claimed.system_name,
        contact=claimed.contact,
        edition=claimed.edition,
    )
    ours = describe(run, plan, wish, checkout=lambda: (None, None))
    source = replace(claimed.source, sha256=ours.source.sha256)  # its commit is a person's word
    ours = replace(ours, source=source, rule_set=claimed.rule_set)
    for field in fields(Info):
        said, found = getattr(claimed, field.name), getattr(ours, field.name)
        if said != found:
            yield (
                f"{INFO}: {field.name} is {printable(str(said))}, the run says "
                f"{printable(str(found))}"
            )
    if [key for key, _ in info_problems(claimed)]:
        return  # which are told as it is opened
    later = _months(claimed.edition) - _months(ours.created)
    if not 0 <= later <= LATEST_EDITION_MONTHS:
        yield (
            f"{INFO}: edition {printable(claimed.edition)} of a run that ended "
            f"{ours.created[:7]}: of that month, or up to {LATEST_EDITION_MONTHS} later"
        )
    script = run.path / SCRIPT
    if script.exists() and script.read_bytes() != run_script(claimed, plan).encode():
        yield f"{SCRIPT}: not the script that repeats this run"


def _months(date: str) -> int:
    year, month = date.split("-")[:2]
    return 12 * int(year) + int(month)


def _name(run: RunFolder, path: Path) -> str:
    return path.relative_to(run.path).as_posix()


_ABSENT = object()


def _leaves(value: Any, at: str = "") -> Iterator[tuple[str, Any]]:
    """Every single value of a JSON document with its path; an empty list or table is one, too."""
    if isinstance(value, dict) and value:
        for key, item in value.items():
            yield from _leaves(item, f"{at}.{key}" if at else str(key))
    elif isinstance(value, list) and value:
        for number, item in enumerate(value):
            yield from _leaves(item, f"{at}[{number}]")
    else:
        yield at, value


def _same(claimed: Any, recomputed: Any) -> bool:
    numbers = [type(value) in (int, float) for value in (claimed, recomputed)]
    if all(numbers):
        return math.isclose(claimed, recomputed, rel_tol=TOLERANCE, abs_tol=0.0)
    return bool(claimed == recomputed) and type(claimed) is type(recomputed)


def _shown(values: dict[str, Any], key: str) -> str:
    return printable(str(values[key])) if key in values else "not there"
