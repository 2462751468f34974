"""The reviewed list of equivalent mutants hides none that is not on it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.mutation.mutants import MODULE, PACKAGES, SOURCE, equivalent, mutants

FILES = {path.relative_to(SOURCE / "ai500").as_posix() for p in PACKAGES for path in p.paths()}


def test_each_entry_is_one_mutant_with_a_reason() -> None:
    for key, reason in equivalent().items():
        file = key.partition(" ")[0]
        assert file in FILES
        keys = [mutant.key for mutant in mutants(SOURCE / "ai500" / file)]
        assert keys.count(key) == 1, f"{key}: its function has changed, review it again"
        assert len(reason) > 20


@pytest.fixture
def file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setattr("tests.mutation.mutants.SOURCE", tmp_path)
    (tmp_path / "ai500").mkdir()
    return tmp_path / "ai500" / "a.py"


def test_equal_changes_have_different_keys(file: Path) -> None:
    file.write_text("def f(x):\n    return (x < 1, x <\n        1, x < 2)\n\n\nLIMIT = 3\n")
    every = list(mutants(file))
    assert len({mutant.key for mutant in every}) == len(every) == 7
    assert {mutant.function_line for mutant in every} == {1, MODULE}
    assert all(len(mutant.source.splitlines()) == 6 for mutant in every)


def test_a_changed_function_needs_another_review(file: Path) -> None:
    file.write_text("def f(x):\n    return x < 1\n")
    before = {mutant.key for mutant in mutants(file)}
    file.write_text("# a line\ndef f(x):\n    return x < 1\n")
    assert {mutant.key for mutant in mutants(file)} == before
    file.write_text("def f(x):\n    x = -x\n    return x < 1\n")
    assert not {mutant.key for mutant in mutants(file)} & before


def test_types_and_options_of_dataclasses_are_no_mutants(file: Path) -> None:
    file.write_text(
        "Owner = dict[str, int | None]\n\n\n@dataclass(frozen=True)\nclass A:\n    b: int\n"
    )
    assert not list(mutants(file))
