"""The mean training step of a search under the roofline. Needs no torch.

Models of a search differ in operations and in the bytes of their gradients. Each model's bytes are
divided by its own steps, those of the attempt that ended it: the history has both.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ai500.automl.counting import count_architecture
from ai500.automl.history import History, Model
from ai500.automl.score import Chunk, timed_search
from ai500.core.events import Event
from ai500.records import Operations, Plan
from ai500.roofline.traffic import Traffic

CONVENTION = "matmul"
"""Convention of the ceilings: 2 operations for each multiply-add."""


@dataclass(frozen=True, slots=True)
class SearchStep:
    """Mean optimizer step of a trial's search."""

    operations: float
    """Operations by `matmul`, of the steps whose bytes were counted; else of all steps."""
    traffic: Traffic | None
    """Bytes of all ranks of a worker; None: not counted."""
    parameters: float
    """Mean parameters of the model."""
    flops_factor: float
    """Operations by `matmul` / those of the score, training and validation."""


def search_step(plan: Plan, members: Path, events: Sequence[Event]) -> SearchStep:
    """Compute the mean step from the workers' histories."""
    timed = timed_search(History(members), events)
    models = timed.history.models
    counts = {name: _matmul(plan, model) for name, model in models.items()}
    steps = _steps(timed.search.chunks)
    counted = [m for m in models.values() if m.ended is not None and m.ended.counted_steps]
    weights = {m.id: _counted_steps(m) for m in counted} or steps
    total = sum(weights.values())

    def mean(values: dict[str, float]) -> float:
        return sum(values[name] * count for name, count in weights.items()) / total

    scored = sum(chunk.operations for chunk in timed.search.chunks)
    return SearchStep(
        operations=mean(
            {name: counts[name].per_step(models[name].candidate.batch_size) for name in weights}
        ),
        traffic=_traffic(counted, steps=total),
        parameters=mean({name: counts[name].parameters for name in weights}),
        flops_factor=sum(
            chunk.count * _per_unit(counts[chunk.model], models[chunk.model], chunk)
            for chunk in timed.search.chunks
        )
        / scored,
    )


def _matmul(plan: Plan, model: Model) -> Operations:
    return count_architecture(
        model.architecture, input_shape=plan.definition.input_shape, convention=CONVENTION
    )


def _per_unit(count: Operations, model: Model, chunk: Chunk) -> int:
    """Return the operations of a training step or of an image's validation."""
    if chunk.phase == "validate":
        return count.forward_per_sample
    return count.per_step(model.candidate.batch_size)


def _steps(chunks: Sequence[Chunk]) -> dict[str, int]:
    steps: dict[str, int] = {}
    for chunk in chunks:
        if chunk.phase == "train" and chunk.count:
            steps[chunk.model] = steps.get(chunk.model, 0) + chunk.count
    return steps


def _counted_steps(model: Model) -> int:
    return 0 if model.ended is None else model.ended.counted_steps


def _traffic(models: Sequence[Model], *, steps: int) -> Traffic | None:
    """Return the bytes per step: each model's bytes / its own steps, weighted by these."""
    ends = [model.ended for model in models if model.ended is not None]
    if not ends:
        return None
    return Traffic(
        sum(end.bytes_inside_node for end in ends) / steps,
        sum(end.bytes_between_nodes for end in ends) / steps,
    )
