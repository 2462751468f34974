"""Write the site to disk: atomically, reproducibly, and without stale files.

    index.html  charts.html  compare.html  history.html  rejected.html  about.html
    entries/ID.html             a page for each entry
    data/list.js                all rows; data/entries/ID.js the layers of one entry
    static/ranking.css  static/ranking.js
    site.json                   marks the folder as a site, and lists its files

A site is updated in place, and only in files that changed, so that a web server can serve it
meanwhile. During the update `site.json` lists old and new files: the next build cleans up after an
interrupted one.
"""

from __future__ import annotations

import dataclasses
import re
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ai500.core import schema
from ai500.core.atomic import explaining_write_errors, replace_bytes, write_json
from ai500.core.errors import InputError
from ai500.core.reading import read_json
from ai500.ranking.entries import Entry, Ranked, Rejected
from ai500.ranking.pages import Site, layers_data, script
from ai500.ranking.proofs import Check, proofs
from ai500.ranking.registry import Decisions, Registry
from ai500.ranking.review import Review, review
from ai500.ranking.standings import Standing, by_list, standings
from ai500.report.page import template_text
from ai500.rules.layers import LAYERS
from ai500.submission.archive import printable

MARK = "site.json"
FORMAT = "ai500 ranking 1"
STANDING_COLUMNS = tuple(field.name for field in dataclasses.fields(Standing))
COLUMNS = tuple(field.name for field in dataclasses.fields(Entry))
# No other file is ever removed, whatever `site.json` lists.
_SITE_FILE = re.compile(
    r"(index|charts|compare|history|rejected|about)\.html|static/ranking\.(css|js)|data/list\.js"
    r"|entries/[0-9a-f]{16}\.html|data/entries/[0-9a-f]{16}\.js"
)


@dataclass(frozen=True)
class Built:
    """Result of building a site."""

    entries: Sequence[Entry]
    standings: Mapping[str, Standing]
    rejected: Sequence[Rejected]
    findings: Mapping[str, Sequence[str]]
    """Statements about an entry beside others, by its id."""
    written: int
    """Number of new and changed files."""
    removed: int
    """Number of removed files."""


def build(
    submissions: Iterable[Ranked | Rejected],
    out: Path,
    *,
    title: str,
    registry: Registry | None = None,
    decisions: Decisions | None = None,
    checks: Mapping[str, Sequence[Check]] | None = None,
) -> Built:
    """Build the site in `out`; nothing is written there before every page is rendered.

    `checks` are the confirmations of submissions, by the SHA-256 of their files.
    """
    old = _files_of(out)
    with tempfile.TemporaryDirectory(prefix="ai500-rank-") as folder:
        drafts = Path(folder)
        candidates, rejected = _read(submissions, drafts)
        reviewed = review(candidates, registry=registry, decisions=decisions or Decisions())
        rejected += _refused(candidates, reviewed)
        rejected.sort(key=lambda each: each.file)
        checks_by_id = {
            each.entry.id: (checks or {}).get(each.claim.sha256, ()) for each in candidates
        }
        entries = _by_rank(candidates, reviewed, checks_by_id)
        standings_by_id = standings(entries)
        site = Site(
            title=title,
            ranked=len(entries),
            rejected=len(rejected),
            has_searches=any(entry.regulated_score is not None for entry in entries),
            names_checked=registry is not None,
        )
        names = {*_FIXED, *(name for entry in entries for name in _names(entry))}
        pages = _drafts(
            _pages(site, entries, standings_by_id, rejected, reviewed, checks_by_id, drafts), drafts
        )
        with explaining_write_errors(out):
            for subfolder in ("entries", "data/entries", "static"):
                (out / subfolder).mkdir(parents=True, exist_ok=True)
        _mark(out, old | names)
        written = sum(_replace(out / name, draft.read_bytes()) for name, draft in pages.items())
    stale = sorted(old - names)
    for name in stale:
        (out / name).unlink(missing_ok=True)
    _mark(out, names)
    return Built(entries, standings_by_id, rejected, reviewed.findings, written, len(stale))


def _files_of(out: Path) -> set[str]:
    """Return the files of an existing site; refuse a folder with other contents."""
    mark = out / MARK
    if not out.exists() or (out.is_dir() and not any(out.iterdir())):
        return set()
    try:
        record = read_json(mark)
        if record["format"] == FORMAT:
            return {name for name in record["files"] if _SITE_FILE.fullmatch(name)}
    except (OSError, InputError, KeyError, TypeError):
        pass
    raise InputError(
        f"{out} is not empty, and not a site that `ai500 rank` made.",
        path=out,
        remedy="Choose another --out.",
    )


def _read(
    submissions: Iterable[Ranked | Rejected], drafts: Path
) -> tuple[list[Ranked], list[Rejected]]:
    """Keep entries in memory, and store their pages on disk until all ranks are known."""
    candidates: dict[str, Ranked] = {}
    rejected: list[Rejected] = []
    for submission in submissions:
        if isinstance(submission, Rejected):
            rejected.append(submission)
            continue
        entry, claim = submission.entry, submission.claim
        if (known := candidates.get(entry.id)) is not None:
            same = known.claim.sha256 == claim.sha256
            relation = "the same file as" if same else "its SHA-256 begins as that of"
            rejected.append(_rejection(submission, [f"{relation} {known.claim.file}"]))
            continue
        if reason := _unshowable(entry):
            rejected.append(_rejection(submission, [reason]))
            continue
        candidates[entry.id] = dataclasses.replace(submission, body="", layers=(), rooflines=())
        rooflines = [schema.encode(drawing) for drawing in submission.rooflines]
        data = {"id": entry.id, "layers": layers_data(submission.layers), "rooflines": rooflines}
        (drafts / f"{entry.id}.html").write_text(submission.body, encoding="utf-8")
        (drafts / f"{entry.id}.js").write_text(script("ai500.entry", data), encoding="utf-8")
    return list(candidates.values()), rejected


def _unshowable(entry: Entry) -> str:
    """Return why the pages of a list of this entry alone can't be made; empty: they can."""
    try:
        alone = standings([entry])
        list_script([entry], alone)
        site = Site(title="", ranked=1, rejected=0)
        site.entry(entry, alone[entry.id], [entry], "")
        site.history(by_list([entry]))
        site.charts(by_list([entry]), alone)
    except Exception as error:  # one entry must not prevent the list of all others
        return printable(f"its pages can't be made: {type(error).__name__}: {error}")
    return ""


def _refused(candidates: Sequence[Ranked], reviewed: Review) -> list[Rejected]:
    return [
        _rejection(candidate, reviewed.refused[candidate.entry.id])
        for candidate in candidates
        if candidate.entry.id in reviewed.refused
    ]


def _rejection(submission: Ranked, reasons: Sequence[str]) -> Rejected:
    entry = submission.entry
    return Rejected(
        submission.claim.file, entry.system, entry.organization, entry.edition, tuple(reasons)
    )


def _by_rank(
    candidates: Sequence[Ranked], reviewed: Review, checks: Mapping[str, Sequence[Check]]
) -> list[Entry]:
    """Return the entries that are ranked with what is proven of each, list by list, best first."""
    left = [
        dataclasses.replace(each.entry, proven=proofs(each.entry, checks[each.entry.id]))
        for each in candidates
        if each.entry.id not in reviewed.refused
    ]
    return [entry for members in by_list(left).values() for entry in members]


_FIXED = (
    "index.html", "charts.html", "compare.html", "history.html", "rejected.html", "about.html",
    "data/list.js", "static/ranking.css", "static/ranking.js",
)  # fmt: skip


def _names(entry: Entry) -> tuple[str, str]:
    return f"entries/{entry.id}.html", f"data/entries/{entry.id}.js"


def _pages(
    site: Site,
    entries: Sequence[Entry],
    standings_by_id: Mapping[str, Standing],
    rejected: Sequence[Rejected],
    reviewed: Review,
    checks: Mapping[str, Sequence[Check]],
    drafts: Path,
) -> Iterator[tuple[str, str]]:
    """Yield name and text of every file; the front page comes last, after what it links to."""
    design = template_text("design.css")
    yield "static/ranking.css", design + template_text("ranking.css", package="ai500.ranking")
    yield "static/ranking.js", template_text("ranking.js", package="ai500.ranking")
    same: dict[object, list[Entry]] = {}
    for entry in entries:
        same.setdefault((entry.list_key, entry.system_key), []).append(entry)
    for entry in entries:
        page, data = _names(entry)
        yield data, (drafts / f"{entry.id}.js").read_text(encoding="utf-8")
        body = (drafts / f"{entry.id}.html").read_text(encoding="utf-8")
        entries_of_system = same[entry.list_key, entry.system_key]
        yield page, site.entry(
            entry, standings_by_id[entry.id], entries_of_system, body,
            findings=reviewed.findings.get(entry.id, ()), checks=checks[entry.id],
        )  # fmt: skip
    yield "data/list.js", list_script(entries, standings_by_id)
    yield "rejected.html", site.page("rejected.html", submissions=rejected)
    lists = by_list(entries)
    yield "history.html", site.history(lists)
    yield "charts.html", site.charts(lists, standings_by_id)
    yield "compare.html", site.page("compare.html")
    yield "about.html", site.page("about.html")
    yield "index.html", site.index(lists)


def _drafts(pages: Iterable[tuple[str, str]], folder: Path) -> dict[str, Path]:
    """Write drafts of the pages; return name → draft, in the order of publication."""
    drafts = {}
    for number, (name, text) in enumerate(pages):
        drafts[name] = folder / f"{number}.page"
        drafts[name].write_text(text, encoding="utf-8")
    return drafts


def list_script(entries: Sequence[Entry], standings_by_id: Mapping[str, Standing]) -> str:
    """Write all rows as a script, each an array in the order of `columns`."""
    rows = [
        [getattr(standings_by_id[entry.id], name) for name in STANDING_COLUMNS]
        + [getattr(entry, name) for name in COLUMNS]
        for entry in entries
    ]
    columns = (*STANDING_COLUMNS, *COLUMNS)
    layer_names = [LAYERS[layer] for layer in sorted(LAYERS)]
    return script("ai500.list", {"columns": columns, "rows": rows, "layer_names": layer_names})


def _mark(out: Path, names: set[str]) -> None:
    write_json(out / MARK, {"format": FORMAT, "files": sorted(names)})


def _replace(path: Path, data: bytes) -> bool:
    """Replace a file atomically if it differs; without fsync, since a site can be rebuilt."""
    with explaining_write_errors(path):
        if path.is_file() and path.stat().st_size == len(data) and path.read_bytes() == data:
            return False
    replace_bytes(path, data)
    return True
