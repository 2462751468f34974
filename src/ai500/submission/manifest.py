"""A submission: one file that contains everything to check, verify and rank a run.

It has the layout of the run folder (docs/submission.md), and in addition

    submission.json   submitter, run and level; `Info`
    run.sh            script that repeats the run
    notes.md          notes of the submitter, such as the description of a learning-rate policy
    manifest.json     size and SHA-256 of every other file; `Manifest`
    signature.json    Ed25519 over the bytes of manifest.json, if the submitter has a key

A submission is untrusted. `open_submission` runs and unpickles nothing, writes only into a
temporary folder, and reports each problem with the name of the file.
"""

from __future__ import annotations

import contextlib
import re
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from ai500 import records
from ai500.core import editions, schema
from ai500.core.atomic import json_text
from ai500.core.errors import AI500Error, InputError
from ai500.core.reading import FORBIDDEN, read_json
from ai500.inventory.description import NodeDescription
from ai500.pipeline.programs import program_of
from ai500.records.findings import Finding, Judgement
from ai500.records.run_folder import RunFolder
from ai500.rules.layers import Level
from ai500.submission import archive, signing, untrusted
from ai500.submission.archive import MAX_PROBLEMS, Digest, Unpacked, printable

T = TypeVar("T")
SUFFIX = ".ai500"
MADE_BY = "`ai500 submit RUN --level LEVEL --out FILE` makes one"
EXPECTED = (
    "Expected: a file that `ai500 submit RUN --level hardware --out FILE.ai500` wrote; "
    "`ai500 check RUN` judges a run folder."
)
INFO = "submission.json"
MANIFEST = "manifest.json"
SIGNATURE = "signature.json"
SCRIPT = "run.sh"
NOTES = "notes.md"
REQUIRED_FILES = (INFO, MANIFEST, SCRIPT, "run.json", "config.toml", "plan.json", "system.json",
                  "events.jsonl", "score.json", "findings.json", "judgement.json")  # fmt: skip
TRIAL_FILES = ("trial.json", "bootstraps.json", "placement.json", "jobs.json", "ensemble.json",
               "score.json")  # fmt: skip
MEMBER_FILES = ("task.json", "events.jsonl", "record.json")
OPTIONAL_MEMBER_FILES = ("log.txt", "graph.json")
OF_TRIAL = re.compile(r"/(systems/[^/]+\.json|meters/[^/]+\.jsonl|slurm/[^/]+\.sh)$")
"""Files of a trial whose names follow from its nodes and jobs."""
ROOFLINE = "roofline.json"
MAX_TEXT = 200
# Events of the run about one member that its own log does not have: its jobs, its requeues.
MANIFEST_BYTES_PER_FILE = 400
EVENT_BYTES_PER_MEMBER = 16_384
_MEMBER_EVENTS = re.compile(r"trials/\d+/members/\d+/events\.jsonl")


class SubmissionError(InputError):
    """Records of a submission are impossible, contradict each other, or can't be read."""


@dataclass(frozen=True, slots=True)
class Source:
    """Identity of the source code of a run (SPEC §5)."""

    sha256: str | None
    """Digest of the tree of the package's files, as all workers recorded it; None: not recorded."""
    commit: str | None
    """Commit of the checkout that the run was started from; None: there was none with these files.
    """
    dirty: bool | None
    """True if that checkout had uncommitted changes: the digest, not the commit, is exact."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Info:
    """Submitter, run and level of a submission."""

    FORMAT: ClassVar[int] = 1
    format: int = FORMAT
    level: Level
    rule_set: str
    """Version of the rule set that it was checked by."""
    edition: str
    """Edition of the list: year and month."""
    name: str
    """Name of the submitter."""
    organization: str
    system_name: str
    contact: str
    created: str
    """End of the run, UTC."""
    ai500_version: str
    """Version that made the run."""
    workload: str
    problem_class: str
    source: Source
    data_sha256: tuple[str, ...]
    """Identities of the stores that the trials read."""
    script: str = SCRIPT
    """Name of the script that repeats the run."""


@dataclass(frozen=True, slots=True)
class Manifest:
    """Every file of the submission except the manifest and its signature."""

    FORMAT: ClassVar[int] = 1
    format: int
    files: dict[str, Digest]


@dataclass(frozen=True)
class Submission:
    """Opened submission; its files exist until the context ends.

    A problem is a sentence that begins with the file's name. A file that is unsafe or invalid is
    deleted from `run`.
    """

    path: Path
    run: RunFolder
    """Temporary copy, which may be changed."""
    info: Info | None
    """Content of submission.json; None: missing or invalid, which is one of the problems."""
    manifest: Manifest | None
    problems: list[str] = field(default_factory=list)
    signature: str = ""
    """Sentence about the signature."""
    signed: bool = False
    """True if the signature is valid for this manifest."""
    fingerprint: str | None = None
    """SHA-256 of the public key that signed; None: not signed, or not checked."""
    signer: str | None = None
    """Name under which that key is trusted; None: the key is not among the trusted ones."""
    is_submission: bool = True
    """False: the file is of another type, which is the only problem."""

    @property
    def intact(self) -> bool:
        """True if the file has no problem; the rules are checked separately."""
        return not self.problems

    def require_info(self) -> Info:
        """Return `info`, or raise an error that lists the first problems."""
        if self.info is None:
            raise SubmissionError(f"{self.path}: " + "; ".join(self.problems[:3]))
        return self.info

    def require_submission(self) -> None:
        """Raise an InputError if the file is of another type."""
        if not self.is_submission:
            raise InputError(self.problems[0])


@contextlib.contextmanager
def open_submission(path: Path, *, trusted_keys: Path | None = None) -> Iterator[Submission]:
    """Unpack a submission into a temporary folder and check it.

    Raises an error only if the file can't be read or unpacked here; all else is a problem.
    With `trusted_keys` (a public key, or a folder of them), one of them has to have signed it.
    """
    trusted = None if trusted_keys is None else signing.load_trusted_keys(trusted_keys)
    if path.is_dir():
        raise InputError(f"{path} is a folder. {MADE_BY} of a run folder.", path=path)
    if not path.exists() and not path.is_symlink():
        raise InputError(f"{path}: no such file. {MADE_BY}.", path=path)
    with tempfile.TemporaryDirectory(prefix="ai500-submission-") as folder:
        run = RunFolder(Path(folder) / "run")
        run.path.mkdir()
        unpacked = archive.unpack(path, run.path)
        if not unpacked.files and (file_type := archive.other_file_type(path)):
            problems = [f"{printable(path.name)}: not a submission but {file_type}. {EXPECTED}"]
            yield Submission(path, run, None, None, problems, "not signed", is_submission=False)
            return
        checker = _Checker(run.path, unpacked)
        checker.check_contents()
        manifest = checker.check_manifest()
        info = checker.check_records()
        submission = Submission(
            path=path, run=run, info=info, manifest=manifest, problems=unpacked.problems
        )
        yield _with_signature(submission, trusted)


@contextlib.contextmanager
def contradictions_as_errors(name: str) -> Iterator[None]:
    """Turn exceptions caused by untrusted records into a SubmissionError.

    Types are checked when a file is opened; this is for records that are valid each by itself but
    contradict each other, or have impossible values.
    """
    try:
        yield
    except (ArithmeticError, AssertionError, AttributeError, LookupError, TypeError, ValueError,
            RecursionError) as error:  # fmt: skip
        reason = printable(f"{type(error).__name__}: {error}")
        raise SubmissionError(f"{name}: its records contradict each other ({reason}).") from error


class _Checker:
    """Checks the files of one submission and collects their problems."""

    def __init__(self, folder: Path, unpacked: Unpacked) -> None:
        self._folder = folder
        self._files = unpacked.files
        self._problems = unpacked.problems
        self._readable = set(unpacked.files)
        self._missing: set[str] = set()

    def check_contents(self) -> None:
        """Delete files that are unsafe to read."""
        budget = untrusted.Budget.of(sum(digest.bytes for digest in self._files.values()))
        for name in sorted(self._files):
            if reason := untrusted.refusal(self._folder / name, budget):
                self._withhold(name, reason)
        if budget.is_spent and "events.jsonl" in self._readable:
            self._withhold("events.jsonl", "not read: other files are too long to be judged")

    def check_manifest(self) -> Manifest | None:
        """Compare every file with its digest in the manifest."""
        size = self._files[MANIFEST].bytes if MANIFEST in self._readable else 0
        if size > MANIFEST_BYTES_PER_FILE * (len(self._files) + 100):
            self._withhold(MANIFEST, f"{size} bytes are too many for {len(self._files)} files")
        manifest = self._decoded(Manifest, MANIFEST)
        if manifest is None:
            return None
        raw = (self._folder / MANIFEST).read_bytes()
        if json_text(schema.encode(manifest)).encode() != raw:
            self._report(f"{MANIFEST}: it is not as `ai500 submit` writes it")
        listed, present = manifest.files, set(self._files) - {MANIFEST, SIGNATURE}
        for name in sorted(listed):
            self._require(name)
        for name in sorted(present - set(listed)):
            self._report(f"{name}: {MANIFEST} does not list it")
        for name in sorted(present & set(listed)):
            if listed[name] != self._files[name]:
                self._report(f"{name}: {_difference(listed[name], self._files[name])}")
        return manifest

    def check_records(self) -> Info | None:
        """Decode the records, and require every file that the plan implies."""
        for name in REQUIRED_FILES:
            self._require(name)
        info = self._info()
        plan = self._decoded(records.Plan, "plan.json")
        if plan is not None and (reason := self._implausible(plan)):
            self._withhold("plan.json", reason)
        elif plan is not None:
            for name in required_files(plan):
                self._require(name)
            self._refuse_others(plan)
            self._check_size_of_events()
        for name in sorted(self._readable):
            if (kind := _record_kind(name)) is not None:
                self._decoded(kind, name)
        if plan is not None and info is not None:
            names = (info.workload, info.problem_class)
            if names != (plan.workload, plan.problem_class):
                self._report(
                    f"{INFO}: it says {printable(' '.join(names))}, plan.json "
                    f"{printable(plan.workload)} {printable(plan.problem_class)}"
                )
        return info

    def _refuse_others(self, plan: records.Plan) -> None:
        """Refuse files that no submission of this plan has: no check reads them."""
        required = {*REQUIRED_FILES, SIGNATURE, *required_files(plan)}
        folders = {f"trials/{trial:02d}" for trial in range(1, plan.trials + 1)}
        members = {name.rpartition("/")[0] for name in required if "/members/" in name}
        for name in sorted(self._files.keys() - required - {NOTES, ROOFLINE}):
            folder, _, file = name.rpartition("/")
            of_member = folder in members and file in OPTIONAL_MEMBER_FILES
            of_trial = folder.rpartition("/")[0] in folders and OF_TRIAL.search(name)
            if not of_member and not of_trial:
                self._report(f"{name}: no file of a submission of this plan")

    def _info(self) -> Info | None:
        info = self._decoded(Info, INFO)
        if info is None:
            return None
        for key, reason in info_problems(info):
            self._report(f"{INFO}: {key} {reason}")
        return info

    def _implausible(self, plan: records.Plan) -> str | None:
        """Return why the plan has no class, or its counts, which bound loops, exceed the files."""
        try:
            program_of(plan)
        except AI500Error as error:
            return printable(str(error))
        members = plan.trials * plan.ensemble_size
        if plan.trials < 1 or plan.ensemble_size < 1 or members > len(self._files):
            return (
                f"it plans {plan.trials} trials of {plan.ensemble_size} members, which "
                f"{len(self._files)} files can't contain"
            )
        epochs, events = plan.hyperparameters.epochs, self._files.get("events.jsonl")
        if epochs > (events.bytes if events else 0):
            return f"it plans {epochs} epochs, which events.jsonl can't contain"
        return None

    def _check_size_of_events(self) -> None:
        """Refuse a log of the run that can't be the sum of its members' logs."""
        members = [
            digest.bytes for name, digest in self._files.items() if _MEMBER_EVENTS.fullmatch(name)
        ]
        run = self._files.get("events.jsonl")
        if (
            run
            and "events.jsonl" in self._readable
            and run.bytes > 2 * sum(members) + EVENT_BYTES_PER_MEMBER * (len(members) + 100)
        ):
            self._withhold(
                "events.jsonl",
                f"it has {run.bytes} bytes, the logs of its members have {sum(members)}: "
                "most of its events are in no member's log",
            )

    def _decoded(self, kind: type[T], name: str) -> T | None:
        """Decode a record, or a list of records; withhold the file if it is not one."""
        if name not in self._readable:
            return None
        try:
            value = read_json(self._folder / name)
            return schema.decode(kind, value)
        except AI500Error as error:  # of the schema, or of what a record itself requires
            self._withhold(name, printable(str(error)))
            return None

    def _report(self, problem: str) -> None:
        """Add a problem; a file with a million of them has most of them unread."""
        if len(self._problems) < MAX_PROBLEMS:
            self._problems.append(problem)
        elif len(self._problems) == MAX_PROBLEMS:
            self._problems.append("more problems are not listed")

    def _require(self, name: str) -> None:
        if name not in self._files and name not in self._missing:
            self._missing.add(name)
            self._report(f"{printable(name)}: missing")

    def _withhold(self, name: str, reason: str) -> None:
        self._report(f"{name}: {reason}")
        self._readable.discard(name)
        (self._folder / name).unlink(missing_ok=True)


def required_files(plan: records.Plan) -> Iterator[str]:
    """Yield the files that a submission must contain for the trials and members of a plan."""
    for trial in range(1, plan.trials + 1):
        yield from (f"trials/{trial:02d}/{name}" for name in TRIAL_FILES)
        for member in range(plan.ensemble_size):
            names = (*MEMBER_FILES, *program_of(plan).member_files)
            yield from (f"trials/{trial:02d}/members/{member:03d}/{name}" for name in names)


def info_problems(info: Info) -> Iterator[tuple[str, str]]:
    """Yield the submitter's fields that the list can't show, with the reason."""
    for key in ("name", "organization", "system_name", "contact", "rule_set", "ai500_version"):
        text = getattr(info, key)
        if len(text) > MAX_TEXT:
            yield key, f"has more than {MAX_TEXT} characters"
        elif not text.isprintable() or FORBIDDEN.search(text):
            yield key, "has characters that can't be shown"
    if not editions.is_edition(info.edition):
        yield "edition", f"= {printable(info.edition)!r} is not a year and a month such as 2026-11"
    if not re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", info.created):
        yield "created", f"= {printable(info.created)!r} is not a time such as 2026-11-15T09:00:00Z"


_KINDS: list[tuple[re.Pattern[str], Any]] = [
    (re.compile(pattern), kind)
    for pattern, kind in (
        (r"run\.json", records.RunState),
        (r"system\.json", records.System),
        (r"score\.json", records.Score),
        (r"trials/\d+/score\.json", records.TrialScore),
        (r"findings\.json", list[Finding]),
        (r"judgement\.json", Judgement),
        (r"trials/\d+/trial\.json", records.TrialRecord),
        (r"trials/\d+/bootstraps\.json", list[records.BootstrapRecord]),
        (r"trials/\d+/placement\.json", list[records.Placement]),
        (r"trials/\d+/jobs\.json", list[records.JobRecord]),
        (r"trials/\d+/ensemble\.json", records.EnsembleResult),
        (r"trials/\d+/systems/[^/]+\.json", NodeDescription),
        (r"trials/\d+/members/\d+/task\.json", records.Task),
        (r"trials/\d+/members/\d+/record\.json", records.TrainRecord),
    )
]


def _record_kind(name: str) -> Any:
    return next((kind for pattern, kind in _KINDS if pattern.fullmatch(name)), None)


def _difference(listed: Digest, actual: Digest) -> str:
    if listed.bytes != actual.bytes:
        return f"it has {actual.bytes} bytes, {MANIFEST} says {listed.bytes}"
    return (
        f"its SHA-256 is {actual.sha256[:16]}…, {MANIFEST} says {printable(listed.sha256[:16])}…: "
        "one of the two was changed"
    )


def _with_signature(submission: Submission, trusted: dict[str, str] | None) -> Submission:
    """Verify the signature, if there is one."""
    path, problems = submission.run.path / SIGNATURE, submission.problems
    if not path.exists():
        if trusted is not None:
            problems.append(f"{SIGNATURE}: missing; --trusted-keys requires a signature")
        return replace(
            submission, signature="not signed: only accidents are detected, not manipulation"
        )
    if not signing.available():
        return replace(
            submission, signature="signed, but not checked: that needs the package `cryptography`"
        )
    manifest = submission.run.path / MANIFEST
    try:
        fingerprint = signing.verify(
            path.read_bytes(), manifest=manifest.read_bytes() if manifest.exists() else b""
        )
    except signing.BadSignatureError as error:
        problems.append(f"{SIGNATURE}: {error}")
        return replace(submission, signature="the signature is not valid")
    signer = (trusted or {}).get(fingerprint)
    if trusted is not None and signer is None:
        problems.append(f"{SIGNATURE}: key {fingerprint} is not among the trusted ones")
    key = f"key sha256:{fingerprint}"
    unknown = f"signed by {key}; compare the fingerprint to know whose key it is"
    return replace(
        submission,
        signature=f"signed by {signer} ({key})" if signer else unknown,
        signed=True,
        fingerprint=fingerprint,
        signer=signer,
    )
