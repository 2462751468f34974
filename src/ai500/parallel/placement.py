"""Placement of a member's data on a node: the shared store, or a copy in the node's scratch."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import os
import shutil
import tempfile
import time
from collections.abc import Sequence
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
    full_path = str(run.resolve()).encode()
    return base / f"{run.resolve().name}-{hashlib.sha256(full_path).hexdigest()[:8]}"


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


def remove(folder: Path) -> None:
    """Remove a copy that is no longer needed, and the run's folder once it is empty."""
    shutil.rmtree(folder, ignore_errors=True)
    with contextlib.suppress(OSError):
        folder.parent.rmdir()
        if folder.parents[1].name == f"ai500-{os.getuid()}":
            folder.parents[1].rmdir()  # of this user's runs; not a folder that a person chose
