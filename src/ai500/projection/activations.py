"""Activations that the ranks of a divided model exchange, from the record of such a run."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ai500.core.errors import InputError
from ai500.records import Plan, TrainRecord, run_folder
from ai500.records.run_folder import RunFolder


@dataclass(frozen=True, slots=True)
class Activations:
    """Bytes that the ranks of a replica exchange for an image; None: not divided that way."""

    run: str
    """Run whose record has them, or the option that states them."""
    tensor_bytes: float | None
    """Bytes that tensor ranks all-reduce, forward and backward, together."""
    tensor_calls: float
    """All-reduces of a step."""
    cut_bytes: float | None
    """Bytes that pass a cut between two pipeline stages forward; as many come back."""
    tensor_degree: int = 1
    pipeline_degree: int = 1
    microbatches: int | None = None


def stated(cut_bytes: float) -> Activations:
    """Return activations of a size that a person states: all-reduced once in each direction."""
    return Activations("--activation-bytes", 2 * cut_bytes, 2, cut_bytes)


def read(path: Path, plan: Plan) -> Activations:
    """Read what a member of the run sent; its ranks count exchanges as a ring sends them."""
    folder = RunFolder.open(path)
    members = [folder.trial(1).member(place.member).record for place in plan.mapping]
    record = next((member for member in members if member.exists()), None)
    described: dict[str, Any] = (
        {} if record is None else run_folder.read(TrainRecord, record).effective["parallel"]
    )
    counted = described.get("activations")
    parallel = plan.parallel
    if parallel.tensor_degree * parallel.pipeline_degree == 1 or not counted:
        raise InputError(
            f"{path}: its record has no exchange of activations.",
            path=path,
            key="--activations",
            remedy="Name a run with tensor or pipeline parallelism of this version of ai500.",
        )
    samples, tensor, stages = counted["samples"], parallel.tensor_degree, parallel.pipeline_degree
    steps = samples / plan.global_batch_size
    return Activations(
        run=path.name,
        # A ring over n ranks sends 2 (n − 1) buffers; each cut is passed forth and back.
        tensor_bytes=counted["tensor"]["bytes"] / samples / (2 * (tensor - 1))
        if tensor > 1
        else None,
        tensor_calls=counted["tensor"]["calls"] * stages / steps if tensor > 1 else 0.0,
        cut_bytes=counted["pipeline"]["bytes"] / samples / (2 * (stages - 1)) / tensor
        if stages > 1
        else None,
        tensor_degree=tensor,
        pipeline_degree=stages,
        microbatches=parallel.microbatches if stages > 1 else None,
    )
