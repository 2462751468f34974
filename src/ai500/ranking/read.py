"""From a folder of submissions to what the site shows of each."""

from __future__ import annotations

import dataclasses
import hashlib
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from ai500.core.errors import AI500Error, InputError
from ai500.data.resumable_work import available_cores, in_parallel
from ai500.pipeline import scoring
from ai500.ranking import pages
from ai500.ranking.entries import Origin, Ranked, Rejected, implausible, make_entry, reasons_against
from ai500.records import Plan, Score, TrainRecord, run_folder
from ai500.records.run_folder import RunFolder
from ai500.report.run_data import read_run_data
from ai500.submission import signing
from ai500.submission.archive import printable
from ai500.submission.manifest import (
    MADE_BY,
    SUFFIX,
    Info,
    Submission,
    contradictions_as_errors,
    open_submission,
)
from ai500.submission.verify import TOLERANCE, contradictions

LEAST_FOR_WORKERS = 32
"""Fewer are read before a worker process has started."""


def find_submissions(folder: Path) -> list[Path]:
    """All submissions below `folder`, in the order of their names."""
    if not folder.is_dir():
        raise InputError(f"{folder} is not a folder. Name the one that holds the submissions.")
    found = sorted(path for path in folder.rglob(f"*{SUFFIX}") if not path.is_dir())
    if not found:
        raise InputError(f"{folder} holds no submission (*{SUFFIX}). {MADE_BY}.")
    return found


Run = tuple[str, tuple[str, ...], tuple[str, ...]]
"""What makes a run the same however its files are written: level, weights of all members, times.

The weights alone don't: a run that is repeated from the same seed may end with the same ones.
"""


@dataclass(frozen=True)
class Judged:
    """What became of one file."""

    result: Ranked | Rejected
    sha256: str = ""
    run: Run | None = None
    """None: not ranked."""


def read_submissions(
    folder: Path, paths: Sequence[Path], *, trusted_keys: Path | None = None
) -> Iterator[Ranked | Rejected]:
    """Each submission, judged, in the order of `paths`; a bad one never ends the list.

    With `trusted_keys`, only what is signed by one of them is ranked.
    """
    if trusted_keys is not None:
        # Bad keys are an error of the caller, not of a submission.
        signing.load_trusted_keys(trusted_keys)
    names = [printable(path.relative_to(folder).as_posix()) for path in paths]
    jobs = [
        (number, partial(judge_file, path, name=name, trusted_keys=trusted_keys))
        for number, (path, name) in enumerate(zip(paths, names, strict=True))
    ]
    workers = available_cores() if len(jobs) >= LEAST_FOR_WORKERS else 1
    files: dict[str, str] = {}
    runs: dict[Run, str] = {}
    for name, judged in zip(names, _in_order(in_parallel(jobs, workers=workers)), strict=True):
        same_file = files.setdefault(judged.sha256, name) if judged.sha256 else name
        # One run, however it is labelled, is one result of a level.
        same_run = runs.setdefault(judged.run, name) if judged.run else name
        if same_file != name:
            yield Rejected(name, "", "", "", (f"the same file as {same_file}",))
        elif same_run != name:
            reason = f"the same run, at the same level, as {same_run}: equal weights and times"
            yield Rejected(name, "", "", "", (reason,))
        else:
            yield judged.result


def _in_order(results: Iterable[tuple[int, Judged]]) -> Iterator[Judged]:
    """Results as their turn comes, whoever was ready first."""
    early: dict[int, Judged] = {}
    turn = 0
    for number, judged in results:
        early[number] = judged
        while turn in early:
            yield early.pop(turn)
            turn += 1


def judge_file(path: Path, *, name: str, trusted_keys: Path | None) -> Judged:
    """One file, whatever is in it."""
    try:
        sha256 = _sha256(path)
        with open_submission(path, trusted_keys=trusted_keys) as submission:
            result = judge(submission, name=name, sha256=sha256)
            if isinstance(result, Rejected):
                return Judged(result, sha256)
            return Judged(result, sha256, _identity(submission.run, level=result.entry.level))
    except OSError as error:
        reason = f"can't be read: {error.strerror}"
    except AI500Error as error:
        reason = printable(str(error))
    except MemoryError:
        reason = "can't be read: this machine has too little memory for it"
    except Exception as error:  # one stranger's file must not end the list of all others
        reason = printable(f"can't be read: {type(error).__name__}: {error}")
    return Judged(Rejected(name, "", "", "", (reason,)))


def _identity(run: RunFolder, *, level: str) -> Run:
    records = sorted(run.path.glob("trials/*/members/*/record.json"))
    weights = sorted(run_folder.read(TrainRecord, path).weights_sha256 for path in records)
    trials = run_folder.read(Score, run.score).trials
    times = sorted(f"{one.time_to_quality_seconds:.6g}" for one in trials)
    return level, tuple(weights), tuple(times)


def judge(submission: Submission, *, name: str, sha256: str) -> Ranked | Rejected:
    """A submission's place among the ranked, or every reason why it has none."""
    info = submission.info
    reasons = list(submission.problems)
    if info is None:
        return Rejected(name, "", "", "", tuple(reasons))
    if not reasons:
        origin = Origin(name, sha256, submission.signed, submission.signature)
        try:
            with contradictions_as_errors(name):
                result = judge_run(submission.run, info, origin)
            if isinstance(result, Ranked):
                return result
            reasons = result
        except AI500Error as error:
            # Where it was unpacked is of no use to anybody, and differs each time.
            where = str(submission.run.path)
            reasons = [printable(str(error).replace(f"{where}/", "").replace(where, name))]
    return Rejected(name, info.system_name, info.organization, info.edition, tuple(reasons))


def judge_run(run: RunFolder, info: Info, origin: Origin) -> Ranked | list[str]:
    """A submission's run as an entry, or all that is against it."""
    claimed = run_folder.read(Score, run.score)
    score, judgement = scoring.judge_run(run, level=info.level, rules=info.rule_set)
    reasons = list(contradictions(run, run_folder.read(Plan, run.plan)))
    reasons += unfounded(claimed, score)
    reasons += reasons_against(score, judgement)
    if reasons:
        return reasons
    # The copy is private; from here on it says what was recomputed, at the level submitted to.
    run_folder.write(run.score, score)
    run_folder.write(run.findings, judgement.findings)
    contents = read_run_data(run)
    entry = make_entry(contents, info, sha256=origin.sha256, signed=origin.signed)
    if reasons := implausible(entry):
        return reasons
    return Ranked(entry, pages.body(run, contents, judgement, info, origin), judgement.layers)


def unfounded(claimed: Score, score: Score) -> Iterator[str]:
    """Figures of score.json that don't follow from the events.

    Wording and figures that a later version adds may differ: a result stays in the list.
    """
    for field in dataclasses.fields(Score):
        theirs, ours = getattr(claimed, field.name), getattr(score, field.name)
        if isinstance(theirs, float) and not (
            isinstance(ours, float) and math.isclose(theirs, ours, rel_tol=TOLERANCE)
        ):
            found = "nothing" if ours is None else f"{ours:.6g}"
            yield f"score.json: {field.name} is {theirs:.6g}, the raw events give {found}"


def _sha256(path: Path) -> str:
    if path.exists() and not path.is_file():
        raise InputError("can't be read: it is no file")  # of a pipe, reading would not end
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
