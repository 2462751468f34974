"""`ai500 study frameworks` on the installed frameworks: trained, compared, drawn."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from tests.support.commands import Start
from tests.support.framework_checks import LIMIT
from tests.support.interpreters import interpreter

pytestmark = [pytest.mark.frameworks, pytest.mark.slow, pytest.mark.timeout(3600)]
NAMES = ("pytorch", "jax", "tensorflow", "mindspore")


def test_every_installed_framework_is_compared(
    start: Start, tiny_store: Path, tmp_path: Path
) -> None:
    values = {
        "ensemble.size": 2, "parallel.degree": 1, "train.epochs": 4, "system.device": "cpu",
        "system.accelerators_per_node": 1, "system.cores_per_slot": 1,
    }  # fmt: skip
    settings = [part for key, value in values.items() for part in ("--set", f"{key}={value}")]
    interpreters = {f"AI500_{name.upper()}_PYTHON": str(interpreter(name)) for name in NAMES[1:]}
    folder = tmp_path / "study"
    words = ("study", "frameworks", "--data", tiny_store, "--out", folder, *settings)
    command = start(*words, **interpreters)
    assert command.wait(timeout=LIMIT) == 0, command.err
    with (folder / "points.csv").open(newline="") as file:
        rows = {row["point"]: row for row in csv.DictReader(file)}
    assert set(rows) == set(NAMES)
    assert len({row["operations"] for row in rows.values()}) == 1
    qualities = {name: float(row["ensemble_quality"]) for name, row in rows.items()}
    # A validation sample is 1/128: after four epochs the same members, but for rounding.
    assert max(qualities.values()) - min(qualities.values()) < 0.05, qualities
    assert all(float(row["samples_per_second"]) > 0 for row in rows.values())
    page = (folder / "report.html").read_text()
    assert page.count("the same operations") == len(NAMES) - 1
