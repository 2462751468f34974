"""Location and identity of the source code that is running: digest of its tree, git's commit."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
from dataclasses import dataclass
from functools import cache
from pathlib import Path

PACKAGE = Path(__file__).parents[1]
"""Folder of the `ai500` package; its parent is on the import path."""
DIE_WITH_PARENT = str(PACKAGE / "core" / "die_with_parent.py")
"""Program that runs a command until its parent dies."""


@cache
def source_sha256() -> str:
    """Hash names and contents of all of the package's files, in the order of their names.

    Counts and templates that ship beside the code are part of it. The digest depends on the files
    alone, whether or not they are in a git checkout.
    """
    return tree_sha256(PACKAGE)


def tree_sha256(folder: Path) -> str:
    """Hash names and contents of a folder's files, except what Python compiled."""
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*"), key=lambda path: path.relative_to(folder).parts):
        if path.is_file() and "__pycache__" not in path.parts:
            content = hashlib.sha256(path.read_bytes()).hexdigest()
            digest.update(f"{path.relative_to(folder).as_posix()} {content}\n".encode())
    return digest.hexdigest()


@dataclass(frozen=True, slots=True)
class Checkout:
    """State of the git checkout that contains a folder."""

    commit: str | None
    """Commit; None: there is no checkout that tracks the folder's files."""
    dirty: bool | None
    """True if the folder has uncommitted changes; None: there is no checkout."""


def checkout_of(folder: Path = PACKAGE) -> Checkout:
    """Ask git for commit and changes of the checkout that contains a package's folder."""
    git = shutil.which("git")

    def output(*arguments: str) -> str | None:
        if git is None:
            return None
        try:
            process = subprocess.run(
                [git, "-C", str(folder), *arguments],
                capture_output=True, text=True, timeout=30, check=True,
            )  # fmt: skip
        except (OSError, subprocess.SubprocessError):
            return None
        return process.stdout.strip()

    # An installed package may lie inside the checkout of another project.
    if output("ls-files", "--error-unmatch", "__init__.py") is None:
        return Checkout(None, None)
    changed = output("status", "--porcelain", "--", ".")
    return Checkout(output("rev-parse", "HEAD"), None if changed is None else bool(changed))
