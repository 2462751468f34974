"""Live view of a search's worker; imported without the search itself."""

from __future__ import annotations

from dataclasses import dataclass

from ai500.bagging.member_views import MemberView


@dataclass
class WorkerView:
    """Progress of one worker."""

    round: int = 0
    model: str = ""
    epoch: int = 0
    """Finished epochs of the present model."""
    epochs: int = 0
    models: int = 0
    """Models started so far."""
    best_error: float | None = None
    flops: float | None = None
    """Operations / time since its first batch, by its own clock; None: none yet."""


def worker_view(view: MemberView) -> WorkerView | None:
    """Return a worker's part of its view; None: it is no worker of a search, or not begun."""
    return view.details if isinstance(view.details, WorkerView) else None
