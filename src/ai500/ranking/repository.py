"""Template of a list as a repository: submissions, registry, decisions, and their automation."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path

from ai500.core.atomic import explaining_write_errors, write_text
from ai500.core.errors import InputError

TEMPLATE = "repository"
# Names of the template's files that a package can't have, or that tools would read in its place.
NAMES = {"dot_gitignore": ".gitignore", "dot_github": ".github", "dot_gitkeep": ".gitkeep"}


def make_repository(folder: Path) -> list[str]:
    """Copy the template into a new or empty folder; return the names of its files."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InputError(f"{folder} is not empty.", path=folder, remedy="Name a new folder.")
    written = []
    for name, text in template_files():
        path = folder / name
        with explaining_write_errors(path):
            path.parent.mkdir(parents=True, exist_ok=True)
        write_text(path, text)
        written.append(name)
    return written


def template_files() -> Iterator[tuple[str, str]]:
    """Yield name and text of the template's files."""
    yield from _below(files("ai500.ranking") / "templates" / TEMPLATE, "")


def _below(folder: Traversable, prefix: str) -> Iterator[tuple[str, str]]:
    for item in sorted(folder.iterdir(), key=lambda item: item.name):
        name = prefix + NAMES.get(item.name, item.name)
        if item.is_dir():
            yield from _below(item, f"{name}/")
        else:
            yield name, item.read_text(encoding="utf-8")
