"""A search under the roofline: each model's bytes are divided by its own steps."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from ai500.automl.counting import count_architecture
from ai500.automl.history import Ended, Entry
from ai500.core import events
from ai500.records import TrainRecord, run_folder
from ai500.records.run_folder import RunFolder
from ai500.roofline.place_run import place_run
from ai500.roofline.search_steps import search_step
from ai500.roofline.traffic import counted
from tests.support.synthetic_roofline import h200_roofline
from tests.support.synthetic_run import Shape, make_plan
from tests.support.synthetic_search import (
    INPUT,
    START,
    SearchShape,
    candidate,
    deeper,
    smoke,
    trained,
    write_history,
    write_synthetic_search,
)

LARGE = deeper(START, 3, kernel=5)


def ended(lines: list[tuple[float, Entry]], **sent: int) -> list[tuple[float, Entry]]:
    """Lines of a model whose collectives counted what they sent."""
    at, last = lines[-1]
    assert isinstance(last, Ended)
    return [*lines[:-1], (at, replace(last, **sent))]  # type: ignore[arg-type]


def two_models(members: Path) -> None:
    """A small model of 20 steps and a large one of 10, of which a restart repeated none."""
    small, large = candidate("000-0001"), candidate("000-0002", "000-0001", architecture=LARGE)
    large = replace(
        large, operations=count_architecture(LARGE, input_shape=INPUT, convention="aiperf"), round=2
    )
    first = trained(small, at=0, accuracies=[0.1, 0.2])
    second = trained(large, at=20, accuracies=[0.3])
    write_history(members, 0, ended(first, counted_steps=20, bytes_inside_node=2000))
    # Its worker was restarted in the middle: the bytes are those of the last five steps.
    write_history(members, 0, ended(second, counted_steps=5, bytes_inside_node=1500), attempt=2)


def test_each_models_bytes_are_divided_by_its_own_steps(tmp_path: Path) -> None:
    two_models(tmp_path / "members")
    plan = replace(make_plan(Shape(definition=smoke())), search=smoke().search)
    step = search_step(plan, tmp_path / "members", [])
    assert step.traffic is not None
    assert step.traffic.inside_node == pytest.approx((20 * 100 + 5 * 300) / 25)
    counts = [count_architecture(a, input_shape=INPUT, convention="matmul") for a in (START, LARGE)]
    per_step = [count.per_step(32) for count in counts]
    assert step.operations == pytest.approx((20 * per_step[0] + 5 * per_step[1]) / 25)
    assert step.parameters == pytest.approx(
        (20 * counts[0].parameters + 5 * counts[1].parameters) / 25
    )
    assert 0.5 < step.flops_factor < 1  # `aiperf` counts more than multiply-adds


def test_a_resumed_search_has_a_place(tmp_path: Path) -> None:
    run = write_synthetic_search(tmp_path / "run", SearchShape(workers=2, killed=frozenset({0})))
    placed = place_run(run, h200_roofline()).placed
    assert [point.subject for point in placed] == ["member", "ensemble"]
    assert all(point.flops > 0 for point in placed)


def test_a_resumed_worker_of_several_ranks_does_not_break_the_count(tmp_path: Path) -> None:
    """Its event `resumed` names no position: a search resumes a model, not an epoch."""
    run = write_synthetic_search(tmp_path / "run", SearchShape(workers=1))
    folder = RunFolder(run.path).trial(1).member(0)
    record = run_folder.read(TrainRecord, folder.record)
    sent = {"inside_node": 7.0, "between_nodes": 0.0, "calls": 1}
    effective = {"parallel": {"communication": {"traffic": sent, "bytes": "payload"}}}
    events.append(folder.events, [{"event": "resumed", "search_seconds": 3.0}])
    count, source = counted(replace(record, world_size=2, effective=effective), folder)
    assert count is not None and source == "payload"
