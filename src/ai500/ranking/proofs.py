"""Proofs of each entry, by the list itself and by the confirmations that it keeps.

`ai500 verify --predictions` and `--rerun` write confirmations. They are not signed: they count
from a folder of the list, which its committee writes, and in which each subfolder has the name of
the team that made the check. One beside a submission is its submitter's, and is not read.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from ai500.core.errors import InputError
from ai500.ranking.entries import Entry
from ai500.records import run_folder
from ai500.submission.confirmations import FORMAT, Confirmation, Kind

MEANINGS: dict[str, tuple[str, str]] = {
    "events": (
        "recomputed from its events",
        "The list computed every figure again from the raw events of the run, and judged it by the "
        "rules. The figures follow from the log; that the log is true is not proven by this.",
    ),
    "predictions": (
        "quality recomputed from its predictions",
        "The team named beside it had every member's predictions, whose SHA-256 the submission "
        "contains, and computed the quality of members and ensemble from them. The models reach "
        "the quality; how long they trained is not proven by this.",
    ),
    "rerun": (
        "rerun by another team (replicated)",
        "The team named beside it, which is not the submitter, repeated the whole run with new "
        "seeds, and VFLOPS and quality agree (margin 5 % of VFLOPS, test of equivalence); or it "
        "repeated members that a seed chose after submission. The sentence beside it says which.",
    ),
}
"""Kind of proof → its name on the list, and what it means."""


@dataclass(frozen=True, slots=True)
class Check:
    """Confirmation of a submission by a team."""

    kind: Kind
    team: str
    confirmed: bool
    statement: str
    date: str


def load_confirmations(folder: Path) -> dict[str, list[Check]]:
    """Read a folder of confirmations, TEAM/NAME.json; return the checks by the files' SHA-256."""
    if not folder.is_dir():
        raise InputError(f"{folder} is not a folder.", key="--confirmations", path=folder)
    checks: dict[str, list[Check]] = {}
    for path in sorted(folder.glob("*/*.json")):
        record = run_folder.read(Confirmation, path)
        if record.format != FORMAT:
            raise InputError(
                f"{path}: format {record.format}; this version reads {FORMAT}.", path=path
            )
        check = Check(
            record.kind, path.parent.name, record.confirmed, record.statement, record.date
        )
        checks.setdefault(record.submission_sha256, []).append(check)
    return checks


def proofs(entry: Entry, checks: Iterable[Check]) -> str:
    """Return the kinds of proof that an entry has, in the order of `MEANINGS`."""
    known = {check.kind for check in checks if check.confirmed and counts(entry, check)}
    return " + ".join(kind for kind in MEANINGS if kind == "events" or kind in known)


def counts(entry: Entry, check: Check) -> bool:
    """Return False for a rerun by the submitter."""
    own = check.team.strip().casefold() == entry.organization.strip().casefold()
    return check.kind != "rerun" or not own


def statements(entry: Entry, checks: Sequence[Check]) -> list[tuple[str, str, str]]:
    """Return name, result and meaning of everything that was checked about an entry."""
    rows = [(MEANINGS["events"][0], "by this list, each time it is built", MEANINGS["events"][1])]
    for check in sorted(checks, key=lambda check: (check.date, check.team)):
        name, meaning = MEANINGS[check.kind]
        result = f"by {check.team} on {check.date}: {check.statement}"
        if not counts(entry, check):
            result += " (a rerun by the submitter is no replication)"
        if not (check.confirmed and counts(entry, check)):
            name, meaning = f"not proven: {name}", ""
        rows.append((name, result, meaning))
    return rows
