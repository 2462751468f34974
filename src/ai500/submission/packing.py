"""Pack a run folder into a submission, or list all the reasons why that is not possible.

The same run gives the same bytes: the time of a submission is the end of its run.
"""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Iterator
from pathlib import Path

from ai500.core import schema
from ai500.core.atomic import explaining_write_errors, json_text
from ai500.core.errors import AI500Error, InputError, RuleError
from ai500.core.reading import read_bytes
from ai500.core.sealed_json import KEY
from ai500.core.shell import quoted
from ai500.pipeline import scoring
from ai500.pipeline.programs import PROGRAMS
from ai500.records import Plan, run_folder
from ai500.records.findings import Finding
from ai500.records.run_folder import RunFolder
from ai500.submission import archive, redaction, signing, untrusted
from ai500.submission import manifest as submission
from ai500.submission.archive import Digest
from ai500.submission.description import SubmitOptions, describe, run_script
from ai500.submission.manifest import Info, Manifest
from ai500.submission.verify import recompute, result_files

PATTERNS = (
    "run.json", "config.toml", "plan.json", "system.json", "events.jsonl",
    submission.ROOFLINE,
    *(f"trials/*/{name}" for name in submission.TRIAL_FILES),
    "trials/*/systems/*.json", "trials/*/meters/*.jsonl", "trials/*/slurm/*.sh",
    *(f"trials/*/members/*/{name}" for name in submission.MEMBER_FILES),
    "trials/*/members/*/log.txt", "trials/*/members/*/graph.json",
    *(f"trials/*/members/*/{name}" for program in PROGRAMS for name in program.member_files),
)  # fmt: skip
"""Files of a run folder that are submitted: not data, checkpoints, predictions, nor the secret of
the barrier server. Bootstraps are submitted as digests; they follow from the seeds."""
LOG_HEAD_BYTES = 16_384
LOG_TAIL_BYTES = 49_152


def submit(
    run: RunFolder,
    out: Path,
    *,
    options: SubmitOptions,
    key: Path | None = None,
    redact: bool = False,
) -> Info:
    """Check the run by the rules of the level, pack it, and verify the result.

    `redact` replaces the names of hosts, users and folders, before all else.
    """
    if run.holder() is not None:
        message = f"{run.path} is still running ({run.owner()})."
        raise RuleError(message, key="holder", path=run.path, remedy="Submit it when it has ended.")
    if out.suffix != submission.SUFFIX:
        message = f"--out {out}: the name of a submission ends in {submission.SUFFIX}."
        raise InputError(message, key="--out", value=str(out))
    if out.exists():
        raise InputError(f"{out} exists.", path=out, remedy="Name another file, or remove it.")
    if redact:
        with tempfile.TemporaryDirectory(prefix="ai500-redacted-") as folder:
            return _submit(redacted_copy(run, Path(folder)), out, options=options, key=key)
    return _submit(run, out, options=options, key=key)


def redacted_copy(run: RunFolder, folder: Path) -> RunFolder:
    """Write the files of a run that are submitted, redacted and scored again, into a folder."""
    for name, data in redaction.redacted(collect(run)).items():
        path = folder / name
        with explaining_write_errors(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
    copy = RunFolder(folder)
    scoring.score_run(copy)
    return copy


def _submit(run: RunFolder, out: Path, *, options: SubmitOptions, key: Path | None) -> Info:
    plan = run_folder.read(Plan, run.plan)
    reasons = list(unfinished_trials(run, plan))
    try:
        score, judgement = scoring.judge_run(run, level=options.level)
        reasons += map(_reason, judgement.violations)
        info = describe(run, plan, options)
        files = collect(run) | result_files(score, judgement)
        files |= added_files(info, plan, notes=options.notes)
    except AI500Error as error:
        raise _refusal(run, options, [*reasons, str(error)]) from error
    seal(files, key=key)
    with tempfile.TemporaryDirectory(prefix="ai500-submit-") as folder:
        draft = Path(folder) / out.name
        archive.pack(draft, files)
        with submission.open_submission(draft) as packed:
            reasons += recompute(packed).problems
    if reasons:
        raise _refusal(run, options, reasons)
    archive.pack(out, files)
    return info


def _refusal(run: RunFolder, options: SubmitOptions, reasons: list[str]) -> RuleError:
    unique = dict.fromkeys(reasons)
    listed = "".join(f"\n  - {reason}" for reason in unique)
    message = f"{run.path} can't be submitted at level {options.level}; {len(unique)} reason(s):"
    return RuleError(message + listed, key="reasons", value=list(unique), path=run.path)


def unfinished_trials(run: RunFolder, plan: Plan) -> Iterator[str]:
    """Yield a reason for each trial that has no score."""
    for trial in range(1, plan.trials + 1):
        if not run.trial(trial).score.exists():
            yield (
                f"trial {trial} of {plan.trials} is not finished. "
                f"`ai500 resume {quoted(run.path)}` continues it."
            )


def _reason(finding: Finding) -> str:
    layer = "" if finding.layer is None else f"layer {finding.layer}, "
    return f"{finding.message} ({layer}{finding.source})"


def collect(run: RunFolder) -> dict[str, bytes]:
    """Read the files of the run that are submitted; shorten logs and remove control characters."""
    files: dict[str, bytes] = {}
    folder = run.path.resolve()
    for pattern in PATTERNS:
        for path in sorted(run.path.glob(pattern)):
            name = path.relative_to(run.path).as_posix()
            if not path.resolve().is_relative_to(folder):
                message = f"{path} is a link out of the run folder; it is not submitted."
                raise InputError(message, path=path, remedy="Put the file itself there.")
            try:
                data = read_bytes(path, limit=untrusted.MAX_LINES_BYTES)
            except OSError as error:
                raise InputError(f"{path}: can't be read: {error.strerror}.", path=path) from error
            if path.suffix in (".txt", ".sh"):
                data = _shorten_log(data)
            elif path.suffix == ".json" and KEY.encode() in data:
                # The manifest has the digests of a submission; the record's own is checked here.
                data = json_text(run_folder.read_json(path)).encode()
            files[name] = data
    return files


def added_files(info: Info, plan: Plan, *, notes: str | None) -> dict[str, bytes]:
    """Return the files that a run folder does not have, except the manifest."""
    files = {
        submission.INFO: json_text(schema.encode(info)).encode(),
        submission.SCRIPT: run_script(info, plan).encode(),
    }
    if notes is not None:
        files[submission.NOTES] = untrusted.without_control_characters(notes.encode())
    return files


def seal(files: dict[str, bytes], *, key: Path | None) -> None:
    """Add the manifest of all files, and its signature if there is a key."""
    digests = {
        name: Digest(len(files[name]), hashlib.sha256(files[name]).hexdigest())
        for name in sorted(files)
    }
    manifest = json_text(schema.encode(Manifest(Manifest.FORMAT, digests))).encode()
    files[submission.MANIFEST] = manifest
    if key is not None:
        signature = signing.sign(manifest, key)
        files[submission.SIGNATURE] = json_text(schema.encode(signature)).encode()


def _shorten_log(data: bytes) -> bytes:
    """Keep the beginning and the end of a log, where errors and settings are."""
    if len(data) > LOG_HEAD_BYTES + LOG_TAIL_BYTES:
        omitted = len(data) - LOG_HEAD_BYTES - LOG_TAIL_BYTES
        gap = f"\n… {omitted} bytes are omitted here …\n".encode()
        data = data[:LOG_HEAD_BYTES] + gap + data[-LOG_TAIL_BYTES:]
    return untrusted.without_control_characters(data)
