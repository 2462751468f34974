"""The site on disk: every file whole, the same input the same bytes, nothing stale left behind.

    index.html  compare.html  history.html  rejected.html
    entries/ID.html             a page for each entry
    data/list.js                all rows; data/entries/ID.js the layers of one entry
    static/ranking.css  static/ranking.js
    site.json                   marks the folder as ours, and names every file of it

A site is renewed in place, file by file and only where something changed, so that a web server
can serve it meanwhile. `site.json` names old and new files while that lasts: a build that was
interrupted is cleaned up by the next one.
"""

from __future__ import annotations

import dataclasses
import json
import os
import re
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from ai500.core.atomic import explaining_write_errors, write_json
from ai500.core.errors import InputError, RuleError
from ai500.ranking.entries import Entry, Ranked, Rejected
from ai500.ranking.pages import Site, layers_data, script
from ai500.ranking.standings import Standing, by_list, standings

MARK = "site.json"
FORMAT = "ai500 ranking 1"
COLUMNS = tuple(field.name for field in dataclasses.fields(Entry))
_OURS = re.compile(
    r"(index|compare|history|rejected)\.html|static/ranking\.(css|js)|data/list\.js"
    r"|entries/[0-9a-f]{16}\.html|data/entries/[0-9a-f]{16}\.js"
)
"""Nothing else is ever removed, whatever a `site.json` says."""


@dataclass(frozen=True)
class Built:
    """What became of a folder of submissions."""

    entries: Sequence[Entry]
    standings: Mapping[str, Standing]
    rejected: Sequence[Rejected]
    written: int
    """Files that are new or changed."""
    removed: int


def build(submissions: Iterable[Ranked | Rejected], out: Path, *, title: str) -> Built:
    """The site in `out`; nothing is written there before every page of it is made."""
    old = _files_of(out)
    with tempfile.TemporaryDirectory(prefix="ai500-rank-") as folder:
        drafts = Path(folder)
        entries, rejected = _read(submissions, drafts)
        places = standings(entries)
        site = Site(title=title, ranked=len(entries), rejected=len(rejected))
        names = {*_FIXED, *(name for one in entries for name in _names(one))}
        pages = _drafted(_pages(site, entries, places, rejected, drafts), drafts)
        with explaining_write_errors(out):
            for inner in ("entries", "data/entries", "static"):
                (out / inner).mkdir(parents=True, exist_ok=True)
        _mark(out, old | names)
        written = sum(_replace(out / name, draft.read_bytes()) for name, draft in pages.items())
    stale = sorted(old - names)
    for name in stale:
        (out / name).unlink(missing_ok=True)
    _mark(out, names)
    return Built(entries, places, rejected, written, len(stale))


def _files_of(out: Path) -> set[str]:
    """The files of the site that is there; a folder with anything else in it is refused."""
    mark = out / MARK
    if not out.exists() or (out.is_dir() and not any(out.iterdir())):
        return set()
    try:
        told = json.loads(mark.read_text(encoding="utf-8"))
        if told["format"] == FORMAT:
            return {name for name in told["files"] if _OURS.fullmatch(name)}
    except (OSError, ValueError, KeyError, TypeError):
        pass
    raise InputError(
        f"{out} is not empty, and not a site that `ai500 rank` made. Choose another --out."
    )


def _read(
    submissions: Iterable[Ranked | Rejected], drafts: Path
) -> tuple[list[Entry], list[Rejected]]:
    """Rows stay in memory; what is large waits on disk until all places are known."""
    entries: list[Entry] = []
    rejected: list[Rejected] = []
    for one in submissions:
        if isinstance(one, Rejected):
            rejected.append(one)
            continue
        entries.append(one.entry)
        data = {"id": one.entry.id, "layers": layers_data(one.layers)}
        (drafts / f"{one.entry.id}.html").write_text(one.body, encoding="utf-8")
        (drafts / f"{one.entry.id}.js").write_text(script("ai500.entry", data), encoding="utf-8")
    if not entries:
        told = "\n".join(f"  {one.file}: {'; '.join(one.reasons)}" for one in rejected)
        raise RuleError(f"no valid submission, so there is nothing to rank:\n{told}")
    return [one for members in by_list(entries).values() for one in members], rejected


_FIXED = (
    "index.html", "compare.html", "history.html", "rejected.html", "data/list.js",
    "static/ranking.css", "static/ranking.js",
)  # fmt: skip


def _names(entry: Entry) -> tuple[str, str]:
    return f"entries/{entry.id}.html", f"data/entries/{entry.id}.js"


def _pages(
    site: Site,
    entries: Sequence[Entry],
    places: Mapping[str, Standing],
    rejected: Sequence[Rejected],
    drafts: Path,
) -> Iterator[tuple[str, str]]:
    """Name and text of every file; the front page last, when all it leads to is there."""
    design = _template("ai500.report", "design.css")
    yield "static/ranking.css", design + _template("ai500.ranking", "ranking.css")
    yield "static/ranking.js", _template("ai500.ranking", "ranking.js")
    same: dict[object, list[Entry]] = {}
    for one in entries:
        same.setdefault((one.list_key, one.system_key), []).append(one)
    for one in entries:
        page, data = _names(one)
        yield data, (drafts / f"{one.id}.js").read_text(encoding="utf-8")
        body = (drafts / f"{one.id}.html").read_text(encoding="utf-8")
        yield page, site.entry(one, places[one.id], same[one.list_key, one.system_key], body)
    yield "data/list.js", list_script(entries, places)
    yield "rejected.html", site.rejected_page(rejected)
    yield "history.html", site.history(by_list(entries))
    yield "compare.html", site.page("compare.html")
    yield "index.html", site.page("index.html")


def _drafted(pages: Iterable[tuple[str, str]], drafts: Path) -> dict[str, Path]:
    """Name → where the file waits, in the order in which they are put into the site."""
    found = {}
    for number, (name, text) in enumerate(pages):
        found[name] = drafts / f"{number}.page"
        found[name].write_text(text, encoding="utf-8")
    return found


def list_script(entries: Sequence[Entry], places: Mapping[str, Standing]) -> str:
    """All rows, each an array in the order of `columns`."""
    rows = [
        [places[one.id].place, places[one.id].edition_place]
        + [getattr(one, name) for name in COLUMNS]
        for one in entries
    ]
    columns = ("place", "edition_place", *COLUMNS)
    return script("ai500.list", {"columns": columns, "rows": rows})


def _template(package: str, name: str) -> str:
    return resources.files(package).joinpath("templates", name).read_text(encoding="utf-8")


def _mark(out: Path, names: set[str]) -> None:
    write_json(out / MARK, {"format": FORMAT, "files": sorted(names)})


def _replace(path: Path, data: bytes) -> bool:
    """Whole and in one step, if it differs; a site can be built again, so no disk is waited for."""
    with explaining_write_errors(path):
        if path.is_file() and path.stat().st_size == len(data) and path.read_bytes() == data:
            return False
        temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
        try:
            temporary.write_bytes(data)
            temporary.replace(path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
    return True
