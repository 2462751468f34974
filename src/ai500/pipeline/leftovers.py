"""Files that dead processes left behind: in a run folder, and in this node's scratch.

A run removes its own at its end and those of its last attempt when it is resumed. `ai500 clean`
lists what is left, and removes it on request.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from ai500 import config as configuration
from ai500.core.errors import AI500Error, EnvironmentLacksError, RunFolderError
from ai500.core.processes import is_running
from ai500.core.shell import quoted
from ai500.parallel.placement import scratch_folder
from ai500.records.checkpoint_file import previous
from ai500.records.run_folder import MemberFolder, RunFolder

TEMPORARY = re.compile(r"\..+\.(\d+)\.(?:[0-9a-f]{8}\.)?tmp")
"""Name of a temporary file of `core/atomic.py`, with the process that wrote it."""
MIN_AGE_SECONDS = 600.0
"""Age from which a temporary file is a leftover: its process may run on another host."""
TORCH_FOLDERS = ("torchelastic_*", "torchinductor_*", "ai500-torchrun-*")
"""Folders that PyTorch makes in a node's temporary folder."""


@dataclass(frozen=True, slots=True)
class Leftover:
    """A file or folder that nothing uses any more."""

    path: Path
    bytes: int
    kind: str


def leftovers_of_run(run: RunFolder) -> list[Leftover]:
    """List what a run that is not running left in its folder and in this node's scratch."""
    if (owner := run.owner()) is not None:
        raise RunFolderError(
            f"{run.path} is in use by {owner}.",
            path=run.path,
            remedy=f"`ai500 cancel {quoted(run.path)}` ends it.",
        )
    return [*_temporary_files(run.path), *_old_checkpoints(run), *_staged_copies(run)]


def leftovers_of_scratch() -> list[Leftover]:
    """List staged copies and folders of PyTorch on this node that no process uses."""
    if not Path("/proc/self").exists():
        raise EnvironmentLacksError(
            "this system does not list the files that processes have open (/proc, on Linux).",
            remedy="`ai500 clean RUN` needs no such list.",
        )
    base = Path(tempfile.gettempdir())
    folders = sorted((base / f"ai500-{os.getuid()}").glob("*"))
    kinds = dict.fromkeys(folders, "staged copy")
    for pattern in TORCH_FOLDERS:
        kinds |= dict.fromkeys(sorted(base.glob(pattern)), "folder of PyTorch")
    own = {path: kind for path, kind in kinds.items() if _is_own(path)}
    used = _used_paths() if own else set()
    return [
        _leftover(path, kind)
        for path, kind in own.items()
        if not any(name == str(path) or name.startswith(f"{path}/") for name in used)
    ]


def remove(leftovers: Sequence[Leftover]) -> None:
    """Remove files and folders; what is gone already, or can't be removed, is passed over."""
    for leftover in leftovers:
        if leftover.path.is_dir() and not leftover.path.is_symlink():
            shutil.rmtree(leftover.path, ignore_errors=True)
        else:
            with contextlib.suppress(OSError):
                leftover.path.unlink()


def remove_temporary_files(run: RunFolder) -> None:
    """Remove the temporary files that dead processes left in a run folder."""
    remove(list(_temporary_files(run.path)))


def _temporary_files(folder: Path) -> Iterator[Leftover]:
    for path in sorted(folder.rglob(".*.tmp")):
        match = TEMPORARY.fullmatch(path.name)
        if match is None or is_running(match[1]):
            continue
        with contextlib.suppress(OSError):
            if time.time() - path.stat().st_mtime > MIN_AGE_SECONDS:
                yield _leftover(path, "temporary file")


def _old_checkpoints(run: RunFolder) -> Iterator[Leftover]:
    """Yield the second checkpoints of members that have finished."""
    for record in sorted(run.path.glob("trials/*/members/*/record.json")):
        for old in map(previous, MemberFolder(record.parent).checkpoints):
            if old.exists():
                yield _leftover(old, "checkpoint before the last")


def _staged_copies(run: RunFolder) -> Iterator[Leftover]:
    try:
        stated = configuration.load(run.config).data.scratch
        folder = scratch_folder(run.path, stated=stated)
    except AI500Error:
        return  # a variable that only the job's node has: its job clears its copies
    if folder.exists():
        yield _leftover(folder, "staged copy")


def _leftover(path: Path, kind: str) -> Leftover:
    files = path.rglob("*") if path.is_dir() else [path]
    size = 0
    for file in files:
        with contextlib.suppress(OSError):
            size += file.lstat().st_size if not file.is_dir() else 0
    return Leftover(path, size, kind)


def _is_own(path: Path) -> bool:
    with contextlib.suppress(OSError):
        return path.lstat().st_uid == os.getuid()
    return False


def _used_paths() -> set[str]:
    """Return the paths that processes of this node have open, mapped, or in their command."""
    used: set[str] = set()
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            words = os.fsdecode((process / "cmdline").read_bytes()).split("\0")
            used.update(words, (word.partition("=")[2] for word in words))  # --log-dir=FOLDER
            used.update(
                line.partition("/")[1] + line.partition("/")[2]
                for line in (process / "maps").read_text(errors="replace").splitlines()
            )
            for link in (process / "fd").iterdir():
                with contextlib.suppress(OSError):
                    used.add(str(link.readlink()))
    used.discard("")
    return used
