"""A submission: one file with all that others need to check, verify and rank a run.

It is laid out as the run folder it comes from (docs/submission.md), and holds besides

    submission.json   who submits which run at which level; `Info`
    run.sh            the script that repeats the run
    notes.md          what the submitter has to say, such as a learning-rate policy of their own
    manifest.json     size and SHA-256 of every other file; `Manifest`
    signature.json    Ed25519 over the bytes of manifest.json, if the submitter has a key

A submission is data from a stranger. `opened` runs and unpickles nothing, writes nothing outside
a folder of its own, and turns all that is wrong into sentences that name the file.
"""

from __future__ import annotations

import contextlib
import re
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from ai500.core import schema
from ai500.core.atomic import json_text
from ai500.core.errors import InputError
from ai500.core.schema import SchemaError
from ai500.inventory.description import NodeDescription
from ai500.pipeline.programs import program_of
from ai500.records import (
    BootstrapRecord,
    EnsembleResult,
    JobRecord,
    Placement,
    Plan,
    RunState,
    Score,
    System,
    Task,
    TrainRecord,
    TrialRecord,
    TrialScore,
)
from ai500.records.findings import Finding, Judgement
from ai500.records.run_folder import RunFolder
from ai500.rules.layers import Level
from ai500.submission import archive, file_type, signing, untrusted
from ai500.submission.archive import Digest, Unpacked, printable

T = TypeVar("T")
FORMAT = 1
SUFFIX = ".ai500"
MADE_BY = "`ai500 submit RUN --level LEVEL --out FILE` makes one"
INFO = "submission.json"
MANIFEST = "manifest.json"
SIGNATURE = "signature.json"
SCRIPT = "run.sh"
NOTES = "notes.md"
NEEDED = (INFO, MANIFEST, SCRIPT, "run.json", "config.toml", "plan.json", "system.json",
          "events.jsonl", "score.json", "findings.json", "judgement.json")  # fmt: skip
TRIAL_NEEDS = ("trial.json", "bootstraps.json", "placement.json", "jobs.json", "ensemble.json",
               "score.json")  # fmt: skip
MEMBER_NEEDS = ("task.json", "events.jsonl", "record.json")
"""Of each worker of a search besides: its score is computed from it."""
MAX_TEXT = 200


class SubmissionError(InputError):
    """What a submission says can't be true, or can't be read."""


@dataclass(frozen=True, slots=True)
class Source:
    """Which source code it was (SPEC §5: a submission carries the identity of the source)."""

    sha256: str | None
    """Over the package's files, told by the workers of all members; None: they did not tell."""
    commit: str | None
    """Of the checkout with just these files; None: not packed from a checkout with these."""
    dirty: bool | None
    """Whether that checkout had changes that are in no commit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Info:
    """Who submits which run, at which level."""

    format: int = FORMAT
    level: Level
    rule_set: str
    """Version of the rules it was checked by."""
    edition: str
    """Of the list: year and month."""
    name: str
    """Of the submitter."""
    organization: str
    system_name: str
    contact: str
    created: str
    """End of the run, UTC."""
    ai500_version: str
    """That made the run."""
    workload: str
    problem_class: str
    source: Source
    data_sha256: tuple[str, ...]
    """Identities of the stores that the trials read."""
    script: str = SCRIPT
    """The file that repeats the run."""


@dataclass(frozen=True, slots=True)
class Manifest:
    """Every file of the submission but the manifest and its signature."""

    format: int
    files: dict[str, Digest]


@dataclass(frozen=True)
class Submission:
    """An opened submission; its files are there as long as the context lasts.

    What is wrong stands in `problems`, one sentence each that begins with the file's name; a
    submission is intact if there are none. A file that would be dangerous or meaningless to read
    is withheld: to a reader of `run` it is missing.
    """

    path: Path
    run: RunFolder
    """A private copy: whoever recomputes may write into it."""
    info: Info | None
    """None: submission.json is missing or not valid, which is one of the problems."""
    manifest: Manifest | None
    problems: list[str] = field(default_factory=list)
    signature: str = ""
    """What is known about the signer, as a sentence."""
    signed: bool = False
    """There is a signature, and it is of this very manifest."""
    fingerprint: str | None = None
    """SHA-256 of the public key that signed; None: not signed, or not checked."""
    signer: str | None = None
    """The name under which that key is trusted; None: nobody vouches for it."""
    foreign: bool = False
    """It never was a submission: its only problem says what it is."""

    @property
    def intact(self) -> bool:
        """Nothing is wrong with it as a file; what the rules say is another matter."""
        return not self.problems

    def known(self) -> Info:
        """`info`, or an error that says why there is none."""
        if self.info is None:
            raise SubmissionError(f"{self.path}: " + "; ".join(self.problems[:3]))
        return self.info

    def refuse_foreign(self) -> None:
        """Who gave another file made a mistake; a damaged submission is none of theirs."""
        if self.foreign:
            raise InputError(self.problems[0])


@contextlib.contextmanager
def opened(path: Path, *, trusted_keys: Path | None = None) -> Iterator[Submission]:
    """The submission, unpacked into a temporary folder and checked.

    Raises only if there is no such file, or this machine can't hold it; all else is a problem.
    With `trusted_keys` (a public key, or a folder of them) it has to be signed by one of those.
    """
    known = None if trusted_keys is None else signing.trusted(trusted_keys)
    if path.is_dir():
        raise InputError(f"{path} is a folder. {MADE_BY} of a run folder.")
    if not path.is_file():
        raise InputError(f"{path}: no such file. {MADE_BY}.")
    with tempfile.TemporaryDirectory(prefix="ai500-submission-") as folder:
        run = RunFolder(Path(folder) / "run")
        run.path.mkdir()
        unpacked = archive.unpack(path, run.path)
        if not unpacked.files and (kind := file_type.kind_of(path)):
            problems = [
                f"{printable(path.name)}: not a submission but {kind}. {file_type.EXPECTED}"
            ]
            yield Submission(path, run, None, None, problems, "not signed", foreign=True)
            return
        opening = _Opening(run.path, unpacked)
        opening.check_contents()
        manifest = opening.check_manifest()
        info = opening.check_records()
        found = Submission(
            path=path, run=run, info=info, manifest=manifest, problems=unpacked.problems
        )
        yield _with_signature(found, known)


@contextlib.contextmanager
def explaining(what: str) -> Iterator[None]:
    """Turn what a stranger's records make our code stumble over into a SubmissionError.

    Types are checked as a file is opened; this is for records that are valid each by itself and
    contradict each other, or say something that no run can say.
    """
    try:
        yield
    except (ArithmeticError, AssertionError, AttributeError, LookupError, TypeError, ValueError,
            RecursionError) as error:  # fmt: skip
        reason = printable(f"{type(error).__name__}: {error}")
        raise SubmissionError(f"{what}: its records contradict each other ({reason}).") from error


class _Opening:
    """The files of one submission, and what is wrong with them."""

    def __init__(self, folder: Path, unpacked: Unpacked) -> None:
        self._folder = folder
        self._files = unpacked.files
        self._problems = unpacked.problems
        self._readable = set(unpacked.files)
        self._missing: set[str] = set()

    def check_contents(self) -> None:
        """Withhold what would be dangerous to read."""
        for name in sorted(self._files):
            if reason := untrusted.objection(self._folder / name):
                self._withhold(name, reason)

    def check_manifest(self) -> Manifest | None:
        """Every file against its hash."""
        manifest = self._decoded(Manifest, MANIFEST)
        if manifest is None:
            return None
        raw = (self._folder / MANIFEST).read_bytes()
        if json_text(schema.encode(manifest)).encode() != raw:
            self._problems.append(f"{MANIFEST}: it is not as `ai500 submit` writes it")
        listed, there = manifest.files, set(self._files) - {MANIFEST, SIGNATURE}
        for name in sorted(listed):
            self._require(name)
        for name in sorted(there - set(listed)):
            self._problems.append(f"{name}: {MANIFEST} does not list it")
        for name in sorted(there & set(listed)):
            if listed[name] != self._files[name]:
                self._problems.append(f"{name}: {_difference(listed[name], self._files[name])}")
        return manifest

    def check_records(self) -> Info | None:
        """The records that everything else is read by, and whether all files are there."""
        for name in NEEDED:
            self._require(name)
        info = self._info()
        plan = self._decoded(Plan, "plan.json")
        if plan is not None and (reason := self._implausible(plan)):
            self._withhold("plan.json", reason)
        elif plan is not None:
            for name in needed_files(plan):
                self._require(name)
        for name in sorted(self._readable):
            if (kind := _record_kind(name)) is not None:
                self._decoded(kind, name)
        if plan is not None and info is not None:
            ours = (info.workload, info.problem_class)
            if ours != (plan.workload, plan.problem_class):
                self._problems.append(
                    f"{INFO}: it says {printable(' '.join(ours))}, plan.json "
                    f"{printable(plan.workload)} {printable(plan.problem_class)}"
                )
        return info

    def _info(self) -> Info | None:
        info = self._decoded(Info, INFO)
        if info is None:
            return None
        if info.format != FORMAT:
            self._problems.append(
                f"{INFO}: it has format {info.format}, this version reads {FORMAT}: "
                f"it was made for ai500 {printable(info.ai500_version)}"
            )
        for key, reason in info_problems(info):
            self._problems.append(f"{INFO}: {key} {reason}")
        return info

    def _implausible(self, plan: Plan) -> str | None:
        """Counts that no file bears out; to loop over them would never end."""
        members = plan.trials * plan.ensemble_size
        if plan.trials < 1 or plan.ensemble_size < 1 or members > len(self._files):
            return (
                f"it speaks of {plan.trials} trials of {plan.ensemble_size} members, which "
                f"{len(self._files)} files can't hold"
            )
        epochs, events = plan.hyperparameters.epochs, self._files.get("events.jsonl")
        if epochs > (events.bytes if events else 0):
            return f"it speaks of {epochs} epochs, which events.jsonl can't hold"
        return None

    def _decoded(self, kind: type[T], name: str) -> T | None:
        """The file as a record (or a list of them); withheld where it is none."""
        if name not in self._readable:
            return None
        try:
            value = untrusted.parse((self._folder / name).read_text(encoding="utf-8"))
            return schema.decode(kind, value)
        except SchemaError as error:
            self._withhold(name, printable(str(error)))
            return None

    def _require(self, name: str) -> None:
        if name not in self._files and name not in self._missing:
            self._missing.add(name)
            self._problems.append(f"{printable(name)}: missing")

    def _withhold(self, name: str, reason: str) -> None:
        self._problems.append(f"{name}: {reason}")
        self._readable.discard(name)
        (self._folder / name).unlink()


def needed_files(plan: Plan) -> Iterator[str]:
    """What the trials and members of a plan leave behind, and a submission must hold."""
    for trial in range(1, plan.trials + 1):
        yield from (f"trials/{trial:02d}/{name}" for name in TRIAL_NEEDS)
        for member in range(plan.ensemble_size):
            needs = (*MEMBER_NEEDS, *program_of(plan).member_files)
            yield from (f"trials/{trial:02d}/members/{member:03d}/{n}" for n in needs)


def info_problems(info: Info) -> Iterator[tuple[str, str]]:
    """What of a person's own words does not fit on a list."""
    for key in ("name", "organization", "system_name", "contact", "rule_set", "ai500_version"):
        text = getattr(info, key)
        if len(text) > MAX_TEXT:
            yield key, f"has more than {MAX_TEXT} characters"
        elif not text.isprintable():
            yield key, "has characters that can't be shown"
    if not re.fullmatch(r"20\d\d-(0[1-9]|1[0-2])", info.edition):
        yield "edition", f"= {printable(info.edition)!r} is not a year and a month such as 2026-11"
    if not re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", info.created):
        yield "created", f"= {printable(info.created)!r} is not a time such as 2026-11-15T09:00:00Z"


_KINDS: list[tuple[re.Pattern[str], Any]] = [
    (re.compile(pattern), kind)
    for pattern, kind in (
        (r"run\.json", RunState),
        (r"system\.json", System),
        (r"score\.json", Score),
        (r"trials/\d+/score\.json", TrialScore),
        (r"findings\.json", list[Finding]),
        (r"judgement\.json", Judgement),
        (r"trials/\d+/trial\.json", TrialRecord),
        (r"trials/\d+/bootstraps\.json", list[BootstrapRecord]),
        (r"trials/\d+/placement\.json", list[Placement]),
        (r"trials/\d+/jobs\.json", list[JobRecord]),
        (r"trials/\d+/ensemble\.json", EnsembleResult),
        (r"trials/\d+/systems/[^/]+\.json", NodeDescription),
        (r"trials/\d+/members/\d+/task\.json", Task),
        (r"trials/\d+/members/\d+/record\.json", TrainRecord),
    )
]


def _record_kind(name: str) -> Any:
    return next((kind for pattern, kind in _KINDS if pattern.fullmatch(name)), None)


def _difference(listed: Digest, found: Digest) -> str:
    if listed.bytes != found.bytes:
        return f"it has {found.bytes} bytes, {MANIFEST} says {listed.bytes}"
    return (
        f"its SHA-256 is {found.sha256[:16]}…, {MANIFEST} says {printable(listed.sha256[:16])}…: "
        "one of the two was changed"
    )


def _with_signature(found: Submission, known: dict[str, str] | None) -> Submission:
    """Who signed it, if anybody did."""
    path, problems = found.run.path / SIGNATURE, found.problems
    if not path.exists():
        if known is not None:
            problems.append(f"{SIGNATURE}: missing; a known signer was asked for")
        return replace(found, signature="not signed: only accidents are detected, not intent")
    if not signing.available():
        return replace(
            found, signature="signed, but not checked: that needs the package `cryptography`"
        )
    manifest = found.run.path / MANIFEST
    try:
        fingerprint = signing.verified(
            path.read_bytes(), manifest=manifest.read_bytes() if manifest.exists() else b""
        )
    except signing.BadSignatureError as error:
        problems.append(f"{SIGNATURE}: {error}")
        return replace(found, signature="the signature is not valid")
    signer = (known or {}).get(fingerprint)
    if known is not None and signer is None:
        problems.append(f"{SIGNATURE}: key {fingerprint} is not among the trusted ones")
    key = f"key sha256:{fingerprint}"
    said = f"{key}; whose it is, only a comparison of fingerprints tells"
    return replace(
        found,
        signature=f"signed by {signer} ({key})" if signer else f"signed by {said}",
        signed=True,
        fingerprint=fingerprint,
        signer=signer,
    )
