"""Rewrites operations/shipped.json: `python -m tests.support.ship_operations`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ai500.core import plugins, schema
from ai500.operations import example_input, shipped
from ai500.operations.count import count_trace
from ai500.operations.graph import IDENTITY_BATCH, graph_sha256, with_loss
from ai500.operations.rules import CONVENTIONS
from ai500.workloads.named_models import Countable, of_workload
from ai500.workloads.protocol import load_workload


def models_to_ship() -> Iterator[tuple[str, str, Countable]]:
    """Yield every class of every built-in workload: workload, class, model."""
    for name in sorted(plugins.BUILT_IN["workload"]):
        workload = load_workload(name)
        for problem_class in workload.problem_classes:
            yield name, problem_class, of_workload(workload, problem_class)


def row(model: Countable) -> dict[str, Any]:
    """Trace one model: its identity, and operations per image in each convention."""
    from ai500.operations.torch_trace import trace

    assert model.input_shape is not None
    shape = (IDENTITY_BATCH, *model.input_shape)
    traced = trace(model.model(), example_input(shape, dtype=model.input_dtype))
    identity = graph_sha256(traced)
    traced = with_loss(traced, model.loss) if model.loss else traced
    counts = {name: count_trace(traced, convention=name) for name in CONVENTIONS}
    return {
        "input": list(model.input_shape),
        "model": {"parameters": traced.parameters, "graph_sha256": identity},
        "operations": {name: schema.encode(count.as_record()) for name, count in counts.items()},
    }


def table() -> dict[str, dict[str, Any]]:
    """Trace the models of all classes."""
    rows: dict[str, dict[str, Any]] = {}
    for workload, problem_class, model in models_to_ship():
        rows.setdefault(workload, {})[problem_class] = row(model)
    return rows


def main() -> None:
    """Write the file."""
    path = Path(shipped.__file__).with_name(shipped.FILE_NAME)
    path.write_text(json.dumps(table(), indent=2) + "\n", encoding="utf-8")
    print(f"wrote {path}")


if __name__ == "__main__":
    main()
