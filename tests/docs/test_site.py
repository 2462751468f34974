"""The site of the documentation: built without a warning, whole, and of its own files alone."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

import pytest

from tests.support.docs_examples import ROOT


class _Needed(HTMLParser):
    """Addresses a page loads by itself, those it only links to, and its anchors."""

    def __init__(self) -> None:
        super().__init__()
        self.loaded: list[str] = []
        self.linked: list[str] = []
        self.anchors = {"", "__top"}

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = dict(attrs)
        self.anchors.update(attributes.get(key) or "" for key in ("id", "name"))
        if tag in ("script", "img", "iframe", "source") and attributes.get("src"):
            self.loaded.append(attributes["src"] or "")
        if tag == "link" and "canonical" not in (attributes.get("rel") or ""):
            self.loaded.append(attributes.get("href") or "")
        if tag == "a":
            self.linked.append(attributes.get("href") or "")


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[Path, _Needed]:
    read = {page: _Needed() for page in site.resolve().rglob("*.html")}
    for page, needed in read.items():
        needed.feed(page.read_text(encoding="utf-8"))
    return read


def broken_links(pages: dict[Path, _Needed]) -> list[str]:
    """List the links to files that are not there, and to anchors that their page lacks."""
    broken = []
    for page, needed in pages.items():
        for link in needed.linked:
            if re.match(r"[a-z]+:|//", link) or page.name == "404.html":
                continue
            file, _, anchor = unquote(link).partition("#")
            target = (page.parent / file).resolve() if file else page
            target = target / "index.html" if target.is_dir() else target
            known = pages[target].anchors if target in pages else {""}
            if not target.is_file() or anchor not in known:
                broken.append(f"{page.name}: {link}")
    return broken


def test_every_link_of_the_site_leads_somewhere(pages: dict[Path, _Needed]) -> None:
    assert sum(len(needed.linked) for needed in pages.values()) > 2000
    assert broken_links(pages) == []


def test_a_broken_link_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    page.write_text("")
    needed = _Needed()
    needed.feed('<h1 id="here"><a href="#here"></a><a href="no.html"></a><a href="#no"></a></h1>')
    assert broken_links({page: needed}) == ["page.html: no.html", "page.html: #no"]


def test_pages_ask_for_nothing_but_their_own_files(site: Path, pages: dict[Path, _Needed]) -> None:
    assert len(pages) > 25
    for page, needed in pages.items():
        for address in needed.loaded:
            assert not re.match(r"(https?:)?//", address), f"{page}: loads {address}"
            if not address.startswith("data:") and page.name != "404.html":
                path = page.parent / unquote(address.split("?")[0].split("#")[0])
                assert path.exists(), f"{page}: {address} is not there"
    for style in site.rglob("*.css"):
        for address in re.findall(r"url\((.*?)\)", style.read_text(encoding="utf-8")):
            assert not address.strip("'\"").startswith(("http", "//")), f"{style}: {address}"


def test_links_of_the_files_beside_the_site() -> None:
    """README and its like are not part of the site: their links are files of the repository."""
    for page in ROOT.glob("*.md"):
        for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", page.read_text(encoding="utf-8")):
            if not target.startswith("http"):
                assert (ROOT / target).exists(), f"{page.name} links to {target}"


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) < 150


def test_the_gallery_shows_every_page_of_the_examples() -> None:
    docs = ROOT / "docs"
    linked = set(re.findall(r"\]\((examples/[^)]*)\)", (docs / "gallery.md").read_text()))
    pages = {page.relative_to(docs).as_posix() for page in (docs / "examples").rglob("*.html")}
    assert linked == pages
