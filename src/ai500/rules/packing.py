"""From a run folder to a submission, or to all the reasons why it can't be one.

The same run gives the same bytes: the time of a submission is the end of its run.
"""

from __future__ import annotations

import hashlib
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from ai500 import events, rundir, schema, scoring
from ai500.atomic import json_text
from ai500.errors import AI500Error, InputError, RuleError
from ai500.records import (
    Plan,
    RunState,
    TrainRecord,
    TrialRecord,
)
from ai500.rules import archive, layers, signing, strangers, submission
from ai500.rules.archive import Digest, printable
from ai500.rules.judgement import Finding
from ai500.rules.layers import Level
from ai500.rules.submission import Info, Manifest, Source
from ai500.rules.verify import judged_files, recompute
from ai500.rundir import RunFolder
from ai500.source import PACKAGE, source_sha256

PATTERNS = (
    "run.json", "config.toml", "plan.json", "system.json", "events.jsonl",
    *(f"trials/*/{name}" for name in submission.TRIAL_NEEDS),
    "trials/*/systems/*.json", "trials/*/meters/*.jsonl", "trials/*/slurm/*.sh",
    *(f"trials/*/members/*/{name}" for name in submission.MEMBER_NEEDS),
    "trials/*/members/*/log.txt",
)  # fmt: skip
"""What of a run folder is submitted. Not: data, checkpoints, predictions, the meeting point's
secret; bootstraps are in it by their hashes, and follow from the seeds."""
LOG_HEAD_BYTES = 16_384
LOG_TAIL_BYTES = 49_152


@dataclass(frozen=True)
class Wish:
    """What a submitter says that no run knows."""

    level: Level
    name: str = ""
    organization: str = ""
    system_name: str = ""
    """Left out: the cluster's name, or the host's."""
    contact: str = ""
    edition: str = ""
    """Left out: year and month of the run's end."""
    notes: str | None = None


def submit(run: RunFolder, out: Path, *, wish: Wish, key: Path | None = None) -> Info:
    """Check the run by the rules of the level, pack it, and verify what was packed."""
    if run.holder() is not None:
        raise RuleError(f"{run.path} is still running ({run.owner()}). Submit it when it is done.")
    if out.suffix != submission.SUFFIX:
        raise InputError(f"--out {out}: a submission's name ends in {submission.SUFFIX}.")
    if out.exists():
        raise InputError(f"{out} exists. Name another file, or remove it.")
    plan = rundir.read(Plan, run.plan)
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


def describe(run: RunFolder, plan: Plan, wish: Wish) -> Info:
    """submission.json"""
    ended = _end(run)
    seen = {
        rundir.read(TrialRecord, path).store_sha256
        for path in sorted(run.path.glob("trials/*/trial.json"))
    }
    return Info(
        level=wish.level,
        rule_set=layers.CURRENT,
        edition=wish.edition or ended.strftime("%Y-%m"),
        name=wish.name,
        organization=wish.organization,
        system_name=wish.system_name or (plan.cluster.name if plan.cluster else plan.nodes[0].name),
        contact=wish.contact,
        created=ended.strftime("%Y-%m-%dT%H:%M:%SZ"),
        ai500_version=rundir.read(RunState, run.state).version,
        workload=plan.workload,
        problem_class=plan.problem_class,
        source=_source(run),
        data_sha256=tuple(sorted(seen)),
    )


def added_files(info: Info, plan: Plan, *, notes: str | None) -> dict[str, bytes]:
    """What is in a submission and in no run folder, but for the manifest."""
    files = {
        submission.INFO: json_text(schema.encode(info)).encode(),
        submission.SCRIPT: run_script(info, plan).encode(),
    }
    if notes is not None:
        files[submission.NOTES] = strangers.without_control_characters(notes.encode())
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


def run_script(info: Info, plan: Plan) -> str:
    """The script that repeats the run from the configuration beside it."""
    source = info.source.sha256 or "not recorded"
    lines = [
        "#!/bin/sh",
        f"# Repeats this run: {plan.workload}, class {plan.problem_class}, {plan.trials} trials of",
        f"# M = {plan.ensemble_size} members, P_degree = {plan.parallel_degree}.",
        f"# It ran with ai500 {info.ai500_version}, source SHA-256 {source},",
        f"# commit {info.source.commit or 'not known'}, data SHA-256 {' '.join(info.data_sha256)}.",
    ]
    seed = f"run.seed={plan.seed}"
    command = ["ai500", "run", "--config", "config.toml", "--runs", str(plan.trials), "--set", seed]
    lines += [
        "set -eu",
        'cd "$(dirname "$0")"',
        f'exec {shlex.join(command)} --out "${{1:-rerun}}"',
    ]
    return "".join(printable(line) + "\n" for line in lines)


def _text(data: bytes) -> bytes:
    """A log's beginning and end: what a person looks for is there."""
    if len(data) > LOG_HEAD_BYTES + LOG_TAIL_BYTES:
        left_out = len(data) - LOG_HEAD_BYTES - LOG_TAIL_BYTES
        gap = f"\n… {left_out} bytes are left out here …\n".encode()
        data = data[:LOG_HEAD_BYTES] + gap + data[-LOG_TAIL_BYTES:]
    return strangers.without_control_characters(data)


def _end(run: RunFolder) -> datetime:
    """When the run ended, by its own events."""
    told = [event for event in events.read(run.events) if isinstance(event.get("wall"), float)]
    ends = [event for event in told if event["event"] == "run_end"] or told
    if not ends:
        raise RuleError(f"{run.events} has no events: nothing ran. `ai500 resume {run.path}`.")
    return datetime.fromtimestamp(ends[-1]["wall"], tz=UTC)


def _source(run: RunFolder) -> Source:
    """As the workers told it; git is asked only if the files here are the same."""
    records = sorted(run.path.glob("trials/*/members/*/record.json"))
    told = {rundir.read(TrainRecord, path).versions.get("source") for path in records}
    if len(told) > 1:
        raise RuleError(
            f"{run.path}: its members trained with {len(told)} different versions of the source "
            "code; that is no one result. Run again, without a change in between."
        )
    sha256 = told.pop() if told else None
    commit, dirty = _git() if sha256 == source_sha256() else (None, None)
    return Source(sha256=sha256, commit=commit, dirty=dirty)


def _git() -> tuple[str | None, bool | None]:
    """Commit, and whether files are changed, of the checkout the package is in."""
    git = shutil.which("git")

    def ask(*arguments: str) -> str | None:
        if git is None:
            return None
        try:
            done = subprocess.run(
                [git, "-C", str(PACKAGE), *arguments],
                capture_output=True, text=True, timeout=30, check=True,
            )  # fmt: skip
        except (OSError, subprocess.SubprocessError):
            return None
        return done.stdout.strip()

    # An installed package may lie inside somebody's checkout of something else.
    if ask("ls-files", "--error-unmatch", "__init__.py") is None:
        return None, None
    changed = ask("status", "--porcelain", "--", ".")
    return ask("rev-parse", "HEAD"), None if changed is None else bool(changed)
