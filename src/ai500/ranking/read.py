"""Read a submission: an entry of the list, or every reason against it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from ai500.core.errors import AI500Error
from ai500.core.reading import file_sha256
from ai500.ranking import pages
from ai500.ranking.entries import (
    Claim,
    Judged,
    Origin,
    Ranked,
    Rejected,
    make_entry,
)
from ai500.ranking.identity import work_of
from ai500.records import Plan, run_folder
from ai500.records.findings import Judgement
from ai500.records.run_folder import RunFolder
from ai500.report.run_data import read_run_data
from ai500.submission import manifest
from ai500.submission.archive import MAX_ARCHIVE_BYTES, printable
from ai500.submission.verify import Verification, recompute

DIFFERENCES_SHOWN = 20


def judge_file(path: Path, *, name: str, trusted_keys: Path | None) -> Judged:
    """Judge one file; any exception but a lack of memory is a reason to reject it."""
    try:
        sha256 = archive_sha256(path)
        with manifest.open_submission(path, trusted_keys=trusted_keys) as submission:
            result = judge(submission, name=name, sha256=sha256)
            if isinstance(result, Rejected):
                return Judged(rejected=result, sha256=sha256)
            return Judged(ranked=result, sha256=sha256)
    except MemoryError:
        raise
    except OSError as error:
        reason = f"can't be read: {error.strerror}"
    except AI500Error as error:
        # Where the list's own files are is of no interest to a reader.
        reason = printable(str(error).replace(str(path), name))
    except Exception as error:  # an untrusted file must not prevent the list of all others
        reason = printable(f"can't be read: {type(error).__name__}: {error}")
    return Judged(rejected=Rejected(name, "", "", "", (reason,)))


def judge(submission: manifest.Submission, *, name: str, sha256: str) -> Ranked | Rejected:
    """Rank an opened submission, or reject it with every reason.

    `recompute` decides, as for `ai500 verify`: what it does not confirm is not ranked.
    """
    info = submission.info
    if info is None:
        return Rejected(name, "", "", "", tuple(submission.problems))
    verification = recompute(submission)
    reasons = [*verification.problems, *differing_values(verification), *verification.broken]
    if verification.valid:
        origin = Origin(name, sha256, submission.signed, submission.signature)
        try:
            with manifest.contradictions_as_errors(name):
                return rank_run(submission.run, info, origin, submission.fingerprint)
        except AI500Error as error:
            # The temporary folder is meaningless to a reader, and differs each time.
            folder = str(submission.run.path)
            reasons.append(printable(str(error).replace(f"{folder}/", "").replace(folder, name)))
    return Rejected(name, info.system_name, info.organization, info.edition, tuple(reasons))


def rank_run(
    run: RunFolder, info: manifest.Info, origin: Origin, fingerprint: str | None
) -> Ranked:
    """Make an entry of a valid submission's run."""
    # As recomputed: a confirmed submission contains the same.
    judgement = run_folder.read(Judgement, run.judgement)
    data = read_run_data(run)
    entry = make_entry(data, info, sha256=origin.sha256, signed=origin.signed)
    work = tuple(work_of(run, run_folder.read(Plan, run.plan)))
    claim = Claim(origin.file, origin.sha256, fingerprint, work)
    roofline = pages.roofline_section(run)
    body = pages.body(run, data, judgement, info, origin, roofline=roofline)
    return Ranked(entry, body, judgement.layers, claim, pages.drawn(roofline))


def differing_values(verification: Verification) -> Iterator[str]:
    """Yield the first values that do not follow from the events."""
    for each in verification.differences[:DIFFERENCES_SHOWN]:
        yield (f"{each.file}: {each.key} is {each.claimed}, the raw events give {each.recomputed}")
    if (more := len(verification.differences) - DIFFERENCES_SHOWN) > 0:
        yield f"{more:,} more values do not follow from the raw events"


def archive_sha256(path: Path) -> str:
    """Return the SHA-256 of a regular file that is no larger than a submission may be.

    The process that calls this has no limits of its own.
    """
    return file_sha256(path, limit=MAX_ARCHIVE_BYTES)
