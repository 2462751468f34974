"""From a run folder to a submission, or to all the reasons why it can't be one.

The same run gives the same bytes: the time of a submission is the end of its run.
"""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Iterator
from pathlib import Path

from ai500.core import schema
from ai500.core.atomic import json_text
from ai500.core.errors import AI500Error, InputError, RuleError
from ai500.pipeline import scoring
from ai500.pipeline.programs import PROGRAMS
from ai500.records import Plan, run_folder
from ai500.records.findings import Finding
from ai500.records.run_folder import RunFolder
from ai500.submission import archive, signing, untrusted
from ai500.submission import manifest as submission
from ai500.submission.archive import Digest
from ai500.submission.description import Wish, describe, run_script
from ai500.submission.manifest import Info, Manifest
from ai500.submission.verify import judged_files, recompute

PATTERNS = (
    "run.json", "config.toml", "plan.json", "system.json", "events.jsonl",
    *(f"trials/*/{name}" for name in submission.TRIAL_NEEDS),
    "trials/*/systems/*.json", "trials/*/meters/*.jsonl", "trials/*/slurm/*.sh",
    *(f"trials/*/members/*/{name}" for name in submission.MEMBER_NEEDS),
    "trials/*/members/*/log.txt",
    *(f"trials/*/members/*/{name}" for program in PROGRAMS for name in program.member_files),
)  # fmt: skip
"""What of a run folder is submitted. Not: data, checkpoints, predictions, the barrier server's
secret; bootstraps are in it by their hashes, and follow from the seeds."""
LOG_HEAD_BYTES = 16_384
LOG_TAIL_BYTES = 49_152


def submit(run: RunFolder, out: Path, *, wish: Wish, key: Path | None = None) -> Info:
    """Check the run by the rules of the level, pack it, and verify what was packed."""
    if run.holder() is not None:
        raise RuleError(f"{run.path} is still running ({run.owner()}). Submit it when it is done.")
    if out.suffix != submission.SUFFIX:
        raise InputError(f"--out {out}: a submission's name ends in {submission.SUFFIX}.")
    if out.exists():
        raise InputError(f"{out} exists. Name another file, or remove it.")
    plan = run_folder.read(Plan, run.plan)
    reasons = list(unfinished(run, plan))
    try:
        score, judgement = scoring.judge_run(run, level=wish.level)
        reasons += [_said(one) for one in judgement.findings if one.severity == "violation"]
        info = describe(run, plan, wish)
        files = collect(run) | judged_files(score, judgement)
        files |= added_files(info, plan, notes=wish.notes)
    except AI500Error as error:
        raise _refusal(run, wish, [*reasons, str(error)]) from error
    seal(files, key=key)
    with tempfile.TemporaryDirectory(prefix="ai500-submit-") as folder:
        draft = Path(folder) / out.name
        archive.pack(draft, files)
        with submission.opened(draft) as packed:
            reasons += recompute(packed).problems
    if reasons:
        raise _refusal(run, wish, reasons)
    archive.pack(out, files)
    return info


def _refusal(run: RunFolder, wish: Wish, reasons: list[str]) -> RuleError:
    different = list(dict.fromkeys(reasons))
    listed = "".join(f"\n  - {reason}" for reason in different)
    return RuleError(
        f"{run.path} can't be submitted at level {wish.level}; {len(different)} reason(s):{listed}"
    )


def unfinished(run: RunFolder, plan: Plan) -> Iterator[str]:
    """Trials that are not whole."""
    for trial in range(1, plan.trials + 1):
        if not run.trial(trial).score.exists():
            yield (
                f"trial {trial} of {plan.trials} is not finished. "
                f"`ai500 resume {run.path}` goes on with it."
            )


def _said(one: Finding) -> str:
    layer = "" if one.layer is None else f"layer {one.layer}, "
    return f"{one.message} ({layer}{one.source})"


def collect(run: RunFolder) -> dict[str, bytes]:
    """The files of the run that are submitted; logs cut and without control characters."""
    files: dict[str, bytes] = {}
    for pattern in PATTERNS:
        for path in sorted(run.path.glob(pattern)):
            name = path.relative_to(run.path).as_posix()
            try:
                data = path.read_bytes()
            except OSError as error:
                raise InputError(f"{path}: can't be read: {error.strerror}.") from error
            files[name] = _text(data) if path.suffix in (".txt", ".sh") else data
    return files


def added_files(info: Info, plan: Plan, *, notes: str | None) -> dict[str, bytes]:
    """What is in a submission and in no run folder, but for the manifest."""
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
    manifest = json_text(schema.encode(Manifest(submission.FORMAT, digests))).encode()
    files[submission.MANIFEST] = manifest
    if key is not None:
        signature = signing.sign(manifest, key)
        files[submission.SIGNATURE] = json_text(schema.encode(signature)).encode()


def _text(data: bytes) -> bytes:
    """A log's beginning and end: what a person looks for is there."""
    if len(data) > LOG_HEAD_BYTES + LOG_TAIL_BYTES:
        left_out = len(data) - LOG_HEAD_BYTES - LOG_TAIL_BYTES
        gap = f"\n… {left_out} bytes are left out here …\n".encode()
        data = data[:LOG_HEAD_BYTES] + gap + data[-LOG_TAIL_BYTES:]
    return untrusted.without_control_characters(data)
