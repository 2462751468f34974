"""Where a member's data lies on a node: the shared store, or a copy in the node's own scratch."""

from __future__ import annotations

import contextlib
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
    """A folder of this run's own on the node that asks: what it stages there, it can remove.

    `stated` is `data.scratch`; variables in it are the node's (`/scratch/$SLURM_JOB_ID`).
    """
    known = os.path.expandvars(stated or "")
    if "$" in known:
        raise EnvironmentLacksError(
            f"data.scratch = {stated!r}: a variable in it is not set here ({known}). Set it on "
            "the nodes (slurm.setup), or name a folder."
        )
    base = Path(known) if stated else Path(tempfile.gettempdir()) / f"ai500-{os.getuid()}"
    whole = str(run.resolve()).encode()
    return base / f"{run.resolve().name}-{hashlib.sha256(whole).hexdigest()[:8]}"


def in_shared_store(store: Store, *, node: str) -> Placement:
    """Nothing is copied: the node reads the shared store."""
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
    """Data Duplicator: what the members with these counts need, copied to the node once."""
    started = time.monotonic()
    staged = duplicate(store, counts=counts, folder=folder, progress=progress)
    return Placement(
        node=node,
        store=str(store.path.resolve()),
        store_sha256=store.sha256,
        folder=str(staged.path),
        samples=int(sum(split.count for split in staged.splits.values())),
        bytes=sum(file.stat().st_size for file in staged.path.iterdir()),
        seconds=time.monotonic() - started,
    )


def remove(folder: Path) -> None:
    """A copy that serves nobody any more, and the run's folder once it is empty."""
    shutil.rmtree(folder, ignore_errors=True)
    with contextlib.suppress(OSError):
        folder.parent.rmdir()
