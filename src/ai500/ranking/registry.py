"""Registry and decisions of a list: whose names the keys are, what came first, what was decided.

registry.toml                                  decisions.toml
format = 1                                     format = 1
[[organizations]]                              [[decisions]]
name = "Example University"                    submissions = ["SHA-256", "SHA-256"]
[[organizations.keys]]                         ranked = ["SHA-256"]
sha256 = "…"                                   date = 2026-12-01
valid_from = 2026-11-01                        reason = "…"
[[received]]
sha256 = "…"
date = 2026-11-20
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

from ai500.core import schema
from ai500.core.atomic import write_text
from ai500.core.errors import InputError
from ai500.core.reading import read_text
from ai500.core.schema import SchemaError

T = TypeVar("T")
FORMAT = 1
_SHA256 = re.compile(r"[0-9a-f]{64}")
RECEIVED_HEADER = "# Order in which submissions were received; `ai500 rank --record` appends to it."


@dataclass(frozen=True, slots=True)
class Key:
    """Ed25519 key of an organization."""

    sha256: str
    """Fingerprint of the public key, as `ai500 keygen` prints it."""
    valid_from: str | None = None
    """First day on which a submission that it signed may be received; None: always."""
    valid_until: str | None = None
    """Last such day, for a key that was replaced; None: no end."""
    revoked: str | None = None
    """Day from which nothing that it signed is accepted; None: it is not revoked."""
    reason: str = ""
    """Why it was revoked."""


@dataclass(frozen=True, slots=True)
class Organization:
    """Organization whose name only its keys may use."""

    name: str
    keys: tuple[Key, ...]
    contact: str = ""


@dataclass(frozen=True, slots=True)
class Received:
    """Submission that the list has received; the order of these records is that of the list."""

    sha256: str
    date: str


@dataclass(frozen=True)
class Registry:
    """Content of registry.toml."""

    format: int = FORMAT
    organizations: tuple[Organization, ...] = ()
    received: tuple[Received, ...] = ()

    @cached_property
    def owners(self) -> Mapping[str, tuple[Organization, Key]]:
        """Fingerprint → its organization and the key."""
        return {
            key.sha256: (organization, key)
            for organization in self.organizations
            for key in organization.keys
        }

    @cached_property
    def order(self) -> Mapping[str, int]:
        """SHA-256 of a submission → its place in the order of receipt."""
        return {each.sha256: place for place, each in reversed(list(enumerate(self.received)))}

    def received_on(self, sha256: str) -> str:
        """Return the day on which a submission was received; today if it is not recorded."""
        place = self.order.get(sha256)
        return today() if place is None else self.received[place].date

    def refusal(self, organization: str, fingerprint: str | None, *, sha256: str) -> str:
        """Return why a submission may not use the name of an organization; empty: it may."""
        if fingerprint is None:
            return "not signed: this list ranks what a key of its registry signed"
        if fingerprint not in self.owners:
            return f"signed by key sha256:{fingerprint}, which is not in the list's registry"
        owner, key = self.owners[fingerprint]
        if organization != owner.name:
            return (
                f"it is signed by a key of {owner.name!r}, and names the organization "
                f"{organization!r}: a name belongs to its keys"
            )
        day = self.received_on(sha256)
        if key.revoked is not None and day >= key.revoked:
            why = f" ({key.reason})" if key.reason else ""
            return f"its key was revoked on {key.revoked}{why}; it was received on {day}"
        if key.valid_from is not None and day < key.valid_from:
            return f"its key is valid from {key.valid_from}; it was received on {day}"
        if key.valid_until is not None and day > key.valid_until:
            return f"its key was valid until {key.valid_until}; it was received on {day}"
        return ""


@dataclass(frozen=True, slots=True)
class Decision:
    """Decision of the committee about submissions, each named by its file's SHA-256."""

    submissions: tuple[str, ...]
    ranked: tuple[str, ...] = ()
    """Those that are ranked; none of the others is."""
    date: str = ""
    reason: str = ""


@dataclass(frozen=True)
class Decisions:
    """Content of decisions.toml; a later decision about the same submission replaces an earlier."""

    format: int = FORMAT
    decisions: tuple[Decision, ...] = field(default=())

    @cached_property
    def last(self) -> Mapping[str, Decision]:
        """SHA-256 of a submission → the last decision about it."""
        return {sha256: each for each in self.decisions for sha256 in each.submissions}

    def refusal(self, sha256: str) -> str:
        """Return the committee's reason against a submission; empty: there is none."""
        decision = self.last.get(sha256)
        if decision is None or sha256 in decision.ranked:
            return ""
        return f"decided by the committee on {decision.date or 'an unknown day'}: {decision.reason}"

    def settles(self, first: str, other: str) -> bool:
        """Return True if one decision is about both."""
        decision = self.last.get(first)
        return decision is not None and other in decision.submissions


def load_registry(path: Path) -> Registry:
    """Read and check the registry of a list."""
    registry = _load(Registry, path)
    owners: dict[str, str] = {}
    names: set[str] = set()
    for organization in registry.organizations:
        name = organization.name
        if not name.strip() or not name.isprintable() or name != name.strip():
            raise _wrong(path, "organizations.name", name, "not a name that a page can show")
        if name.casefold() in names:
            raise _wrong(path, "organizations.name", name, "listed twice")
        names.add(name.casefold())
        for key in organization.keys:
            _check_sha256(path, "organizations.keys.sha256", key.sha256)
            if key.sha256 in owners:
                message = f"a key of {owners[key.sha256]!r} too; a key has one owner"
                raise _wrong(path, "organizations.keys.sha256", key.sha256, message)
            owners[key.sha256] = name
            for field_name in ("valid_from", "valid_until", "revoked"):
                value = getattr(key, field_name)
                if value is not None:
                    _check_date(path, f"organizations.keys.{field_name}", value)
    for received in registry.received:
        _check_sha256(path, "received.sha256", received.sha256)
        _check_date(path, "received.date", received.date)
    return registry


def load_decisions(path: Path) -> Decisions:
    """Read and check the decisions of a list's committee."""
    decisions = _load(Decisions, path)
    for decision in decisions.decisions:
        for sha256 in decision.submissions:
            _check_sha256(path, "decisions.submissions", sha256)
        for sha256 in decision.ranked:
            if sha256 not in decision.submissions:
                message = "ranked by a decision whose `submissions` do not name it"
                raise _wrong(path, "decisions.ranked", sha256, message)
        if decision.date:
            _check_date(path, "decisions.date", decision.date)
        if not decision.reason.strip():
            raise _wrong(path, "decisions.reason", decision.reason, "a decision has a reason")
    return decisions


def record(path: Path, submissions: Iterable[tuple[str, str]]) -> int:
    """Append submissions (SHA-256, file) that the registry has not yet; return their number.

    Those of one call are in the order of their digests: the name of a file decides nothing.
    """
    known = load_registry(path).order
    new = sorted({sha256: name for sha256, name in submissions if sha256 not in known}.items())
    if not new:
        return 0
    text = read_text(path)
    if RECEIVED_HEADER not in text:
        text = f"{text.rstrip()}\n\n{RECEIVED_HEADER}\n"
    for sha256, name in new:
        # As JSON: a line end in a name would begin a table.
        text += f'\n[[received]]  # {json.dumps(name)}\nsha256 = "{sha256}"\ndate = {today()}\n'
    try:
        tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:  # `received = []` can't be continued by tables
        message = f"{path}: no [[received]] can be added at its end: {error}."
        remedy = "Write `received` as tables, [[received]], or leave it out."
        raise InputError(message, key="received", path=path, remedy=remedy) from error
    write_text(path, text)
    return len(new)


def today() -> str:
    """Return the day, UTC."""
    return datetime.now(UTC).date().isoformat()


def _load(kind: type[T], path: Path) -> T:
    try:
        # Grows with the list: the bounds of a configuration are too small for it.
        table = tomllib.loads(read_text(path))
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}.", path=path) from error
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path}: not TOML: {error}.", path=path) from error
    try:
        content = schema.decode(kind, _plain(table))
    except SchemaError as error:
        raise InputError(f"{path}: {error}", key=error.key, value=error.value, path=path) from error
    if (version := getattr(content, "format", None)) != FORMAT:
        raise _wrong(path, "format", version, f"this version reads format {FORMAT}")
    return content


def _plain(value: Any) -> Any:
    """Write TOML's dates as text."""
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return value.isoformat() if isinstance(value, date | datetime) else value


def _check_sha256(path: Path, key: str, value: str) -> None:
    if not _SHA256.fullmatch(value):
        raise _wrong(path, key, value, "not a SHA-256 of 64 lower-case hexadecimal digits")


def _check_date(path: Path, key: str, value: str) -> None:
    try:
        good = date.fromisoformat(value).isoformat() == value
    except ValueError:
        good = False
    if not good:
        raise _wrong(path, key, value, "not a day such as 2026-11-20")


def _wrong(path: Path, key: str, value: object, problem: str) -> InputError:
    return InputError(f"{path}: {key} = {value!r}: {problem}.", key=key, value=value, path=path)
