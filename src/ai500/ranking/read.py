"""Read a folder of submissions: rank each valid one, reject the others with reasons."""

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
from ai500.ranking.entries import (
    Origin,
    Ranked,
    Rejected,
    implausible,
    make_entry,
    rejection_reasons,
)
from ai500.records import Plan, Score, TrainRecord, run_folder
from ai500.records.run_folder import RunFolder
from ai500.report.run_data import read_run_data
from ai500.submission import manifest, signing
from ai500.submission.archive import printable
from ai500.submission.verify import TOLERANCE, contradictions

# Fewer submissions are read in less time than worker processes take to start.
MIN_FOR_WORKERS = 32


def find_submissions(folder: Path) -> list[Path]:
    """Find all submissions below a folder, in the order of their names."""
    if not folder.is_dir():
        remedy = "Name the folder that contains the submissions."
        raise InputError(f"{folder} is not a folder.", path=folder, remedy=remedy)
    paths = sorted(path for path in folder.rglob(f"*{manifest.SUFFIX}") if not path.is_dir())
    if not paths:
        raise InputError(
            f"{folder} contains no submission (*{manifest.SUFFIX}). {manifest.MADE_BY}.",
            path=folder,
        )
    return paths


RunIdentity = tuple[str, tuple[str, ...], tuple[str, ...]]
"""Level, weights of all members, times: they identify a run even if its files were rewritten.

Weights alone don't: a run that is repeated from the same seed may end with the same ones.
"""


@dataclass(frozen=True)
class Judged:
    """Result of one file."""

    result: Ranked | Rejected
    sha256: str = ""
    run: RunIdentity | None = None
    """Identity of the run; None: not ranked."""


def read_submissions(
    folder: Path, paths: Sequence[Path], *, trusted_keys: Path | None = None
) -> Iterator[Ranked | Rejected]:
    """Judge each submission, in the order of `paths`; a bad one is rejected, not an error.

    With `trusted_keys`, only submissions signed by one of them are ranked.
    """
    if trusted_keys is not None:
        # Bad keys are an error of the caller, not of a submission.
        signing.load_trusted_keys(trusted_keys)
    names = [printable(path.relative_to(folder).as_posix()) for path in paths]
    jobs = [
        (number, partial(judge_file, path, name=name, trusted_keys=trusted_keys))
        for number, (path, name) in enumerate(zip(paths, names, strict=True))
    ]
    workers = available_cores() if len(jobs) >= MIN_FOR_WORKERS else 1
    files: dict[str, str] = {}
    runs: dict[RunIdentity, str] = {}
    for name, judged in zip(names, _in_order(in_parallel(jobs, workers=workers)), strict=True):
        same_file = files.setdefault(judged.sha256, name) if judged.sha256 else name
        # One run is one result of a level, whatever the names of system and submitter.
        same_run = runs.setdefault(judged.run, name) if judged.run else name
        if same_file != name:
            yield Rejected(name, "", "", "", (f"the same file as {same_file}",))
        elif same_run != name:
            reason = f"the same run, at the same level, as {same_run}: equal weights and times"
            yield Rejected(name, "", "", "", (reason,))
        else:
            yield judged.result


def _in_order(results: Iterable[tuple[int, Judged]]) -> Iterator[Judged]:
    """Yield results by their numbers, whatever the order in which they were completed."""
    pending: dict[int, Judged] = {}
    next_number = 0
    for number, judged in results:
        pending[number] = judged
        while next_number in pending:
            yield pending.pop(next_number)
            next_number += 1


def judge_file(path: Path, *, name: str, trusted_keys: Path | None) -> Judged:
    """Judge one file; any exception is a reason to reject it."""
    try:
        sha256 = _sha256(path)
        with manifest.open_submission(path, trusted_keys=trusted_keys) as submission:
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
    except Exception as error:  # an untrusted file must not prevent the list of all others
        reason = printable(f"can't be read: {type(error).__name__}: {error}")
    return Judged(Rejected(name, "", "", "", (reason,)))


def _identity(run: RunFolder, *, level: str) -> RunIdentity:
    records = sorted(run.path.glob("trials/*/members/*/record.json"))
    weights = sorted(run_folder.read(TrainRecord, path).weights_sha256 or "" for path in records)
    trials = run_folder.read(Score, run.score).trials
    times = sorted(f"{trial.time_to_quality_seconds:.6g}" for trial in trials)
    return level, tuple(weights), tuple(times)


def judge(submission: manifest.Submission, *, name: str, sha256: str) -> Ranked | Rejected:
    """Rank an opened submission, or reject it with every reason."""
    info = submission.info
    reasons = list(submission.problems)
    if info is None:
        return Rejected(name, "", "", "", tuple(reasons))
    if not reasons:
        origin = Origin(name, sha256, submission.signed, submission.signature)
        try:
            with manifest.contradictions_as_errors(name):
                result = judge_run(submission.run, info, origin)
            if isinstance(result, Ranked):
                return result
            reasons = result
        except AI500Error as error:
            # The temporary folder is meaningless to a reader, and differs each time.
            folder = str(submission.run.path)
            reasons = [printable(str(error).replace(f"{folder}/", "").replace(folder, name))]
    return Rejected(name, info.system_name, info.organization, info.edition, tuple(reasons))


def judge_run(run: RunFolder, info: manifest.Info, origin: Origin) -> Ranked | list[str]:
    """Make an entry of a submission's run, or return the reasons against it."""
    claimed = run_folder.read(Score, run.score)
    score, judgement = scoring.judge_run(run, level=info.level, rules=info.rule_set)
    reasons = list(contradictions(run, run_folder.read(Plan, run.plan)))
    reasons += differing_figures(claimed, score)
    reasons += rejection_reasons(score, judgement)
    if reasons:
        return reasons
    # The report reads the temporary copy: store what was recomputed at the submission's level.
    run_folder.write(run.score, score)
    run_folder.write(run.findings, judgement.findings)
    data = read_run_data(run)
    entry = make_entry(data, info, sha256=origin.sha256, signed=origin.signed)
    if reasons := implausible(entry):
        return reasons
    return Ranked(entry, pages.body(run, data, judgement, info, origin), judgement.layers)


def differing_figures(claimed: Score, score: Score) -> Iterator[str]:
    """Yield the figures of score.json that don't follow from the events.

    Texts, and figures that a later version adds, may differ: a result stays in the list.
    """
    for field in dataclasses.fields(Score):
        value, recomputed = getattr(claimed, field.name), getattr(score, field.name)
        if isinstance(value, float) and not (
            isinstance(recomputed, float) and math.isclose(value, recomputed, rel_tol=TOLERANCE)
        ):
            text = "nothing" if recomputed is None else f"{recomputed:.6g}"
            yield f"score.json: {field.name} is {value:.6g}, the raw events give {text}"


def _sha256(path: Path) -> str:
    if path.exists() and not path.is_file():
        # Reading a pipe would not end.
        raise InputError("can't be read: it is not a regular file", path=path)
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
