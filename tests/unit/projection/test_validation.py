"""The measured steps and stagings of docs/projection.md, predicted by the present model."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow  # starts SimGrid
ROOT = Path(__file__).parents[3]


def test_the_model_still_predicts_what_was_measured() -> None:
    """Exit code 0: mean error at most 10 %, worst 25 %. The page shows the same rows."""
    made = subprocess.run(
        [sys.executable, "benchmarks/projection.py", "--again", "docs/logs/projection.json"],
        cwd=ROOT, env={**os.environ, "PYTHONPATH": "src"}, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert made.returncode == 0, made.stdout + made.stderr
    rows = [line for line in made.stdout.splitlines() if line.startswith("|")]
    page = (ROOT / "docs/projection.md").read_text(encoding="utf-8")
    assert len(rows) == 11
    for row in rows:
        assert row in page, f"docs/projection.md has not: {row}"
    assert "31 steps: mean error 5.6%, worst 15.3%" in made.stdout
    assert "**Mean error 5.6 %, worst 15.3 %**" in page
