"""`ai500 profile` of what has no training step that torch's profiler sees."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.commands import Run


@pytest.mark.parametrize("kind", ["jax", "tensorflow", "mindspore", "script"])
def test_a_framework_other_than_the_reference_is_refused_before_any_job(
    ai500: Run, tmp_path: Path, kind: str
) -> None:
    out = tmp_path / "profile"
    code, _, errors = ai500("profile", "--set", f"framework.kind={kind}", "--out", out)
    assert code == 2
    assert f"framework.kind = '{kind}'" in errors
    assert not out.exists()
