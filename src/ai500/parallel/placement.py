"""Placement of a member's data on a node: the shared store, or a copy in the node's scratch."""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import hashlib
import os
import shutil
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from ai500.core.errors import EnvironmentLacksError
from ai500.data.bootstrap import Counts
from ai500.data.resumable_work import Progress
from ai500.data.store import Store
from ai500.parallel.data_duplicator import duplicate
from ai500.records import Placement


def scratch_folder(run: Path, *, stated: str | None) -> Path:
    """Return this run's own folder on this node, which it can remove after use.

    `stated` is `data.scratch`; variables in it are the node's (`/scratch/$SLURM_JOB_ID`).
    """
    expanded = os.path.expandvars(stated or "")
    if "$" in expanded:
        raise EnvironmentLacksError(
            f"data.scratch = {stated!r}: a variable in it is not set on this node ({expanded}).",
            key="data.scratch",
            value=stated,
            remedy="Set it on the nodes (slurm.setup), or name a folder.",
        )
    base = Path(expanded) if stated else Path(tempfile.gettempdir()) / f"ai500-{os.getuid()}"
    path = run.resolve()
    # The run's name may be as long as a name can be; a character takes up to four bytes.
    return base / f"{path.name[:50]}-{hashlib.sha256(os.fsencode(path)).hexdigest()[:8]}"


def in_shared_store(store: Store, *, node: str) -> Placement:
    """Return the placement of a node that reads the shared store."""
    return Placement(
        node=node,
        store=str(store.path.resolve()),
        store_sha256=store.sha256,
        folder=None,
        samples=0,
        bytes=0,
        seconds=0.0,
    )


def on_node(
    store: Store,
    *,
    node: str,
    counts: Sequence[Counts],
    folder: Path,
    progress: Progress | None = None,
) -> Placement:
    """Copy to the node what members with these counts need, and return the placement."""
    started = time.monotonic()
    staged = duplicate(store, counts=counts, folder=folder, progress=progress)
    return dataclasses.replace(
        in_shared_store(store, node=node),
        folder=str(staged.path),
        samples=int(sum(split.count for split in staged.splits.values())),
        bytes=sum(file.stat().st_size for file in staged.path.iterdir()),
        seconds=time.monotonic() - started,
    )


USERS = ".users"
"""Suffix of the file beside a run's folder that its users keep locked."""


@contextlib.contextmanager
def shared_folder(run: Path, *, stated: str | None) -> Iterator[Path]:
    """Use this run's folder on this node; the last of its users removes it.

    The kernel releases the lock of a user that is killed. What a node that lost its power left is
    removed before.
    """
    folder = scratch_folder(run, stated=stated)
    remove_unused(folder.parent)
    descriptor = _lock_users(folder)
    try:
        folder.mkdir(exist_ok=True)
        yield folder
    finally:
        _remove_if_last(folder, descriptor)


def remove_unused(base: Path) -> None:
    """Remove the folders of this user's runs that no process of this node uses."""
    for users in base.glob(f"*{USERS}"):
        with contextlib.suppress(OSError):  # another process removes it, or another user's
            descriptor = os.open(users, os.O_RDWR)
            _remove_if_last(users.with_suffix(""), descriptor)


def _lock_users(folder: Path) -> int:
    """Lock the folder's file of users, together with other users."""
    users = folder.with_name(folder.name + USERS)
    while True:
        users.parent.mkdir(parents=True, exist_ok=True)
        try:
            descriptor = os.open(users, os.O_RDWR | os.O_CREAT, 0o600)
        except FileNotFoundError:
            continue  # the last user of another run has just removed the parent
        fcntl.flock(descriptor, fcntl.LOCK_SH)
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(descriptor), users.stat()):
                return descriptor
        os.close(descriptor)  # the last user has just removed it


def _remove_if_last(folder: Path, descriptor: int) -> None:
    """Remove the folder and its file of users, unless another process uses it."""
    users = folder.with_name(folder.name + USERS)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.path.samestat(os.fstat(descriptor), users.stat()):
            shutil.rmtree(folder, ignore_errors=True)
            users.unlink()
            _remove_empty_parent(folder)
    except (BlockingIOError, FileNotFoundError):
        return
    finally:
        os.close(descriptor)


def remove(folder: Path) -> None:
    """Remove a copy that is no longer needed, and the run's folder once it is empty."""
    shutil.rmtree(folder, ignore_errors=True)
    with contextlib.suppress(OSError):
        folder.parent.rmdir()
        _remove_empty_parent(folder.parent)


def _remove_empty_parent(folder: Path) -> None:
    """Remove the folder of this user's runs, and not one that a person chose."""
    with contextlib.suppress(OSError):
        if folder.parent.name == f"ai500-{os.getuid()}":
            folder.parent.rmdir()
