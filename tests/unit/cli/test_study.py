"""`ai500 study`: the dry run, and one message for each mistake."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from ai500.cli import app, main
from ai500.core.errors import InputError
from ai500.study.studies import STUDIES

Run = Callable[..., tuple[int, str, str]]
TWO_SLOTS = (
    "--set", "system.accelerators_per_node=2", "--set", "system.cores_per_slot=1",
    "--set", "system.device=cpu",
)  # fmt: skip


@pytest.fixture
def study(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> Run:
    """Call `ai500 study` in this process, from an empty folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")

    def run(*arguments: str | Path) -> tuple[int, str, str]:
        monkeypatch.setattr("sys.argv", ["ai500", "study", *map(str, arguments)])
        code = 0
        try:
            main()
        except SystemExit as error:
            code = error.code if isinstance(error.code, int) else 1
        out, err = capsys.readouterr()
        assert "Traceback" not in err
        return code, out, err

    return run


@pytest.mark.parametrize("name", STUDIES)
def test_a_dry_run_fits_80_columns_and_leaves_nothing(
    study: Run, tmp_path: Path, name: str
) -> None:
    code, out, err = study(name, *TWO_SLOTS, "--dry-run")
    assert code == 0, err
    assert max(map(len, out.splitlines())) <= 80
    assert f"runs/study-{name}-image_classification-smoke" in out
    assert "energy     not measured yet" in out  # nobody measured it: nothing is invented
    assert list(tmp_path.iterdir()) == []


def test_the_list_of_studies_cuts_no_sentence(study: Run) -> None:
    """Help is shortened at the first full stop, be it that of "Fig."."""
    _, out, _ = study("--help")
    listed = out.partition("Commands:")[2].partition("\n\n")[0].strip().splitlines()
    assert {line.split()[0] for line in listed} == {*STUDIES, "report"}
    for line in listed:
        assert line.count("(") == line.count(")")
        assert not line.endswith(("Fig.", "Figs.", "..."))


def test_time_is_a_sum_only_where_every_part_is_known(study: Run) -> None:
    _, out, _ = study("tradeoff", *TWO_SLOTS, "--dry-run", "--json")
    plan = json.loads(out)
    parts = [plan["estimates"][point["name"]]["seconds"] for point in plan["points"]]
    assert plan["runs"] == 2
    assert plan["seconds"] == pytest.approx(sum(parts))
    assert plan["joules"] is None
    _, out, _ = study("optimizations", *TWO_SLOTS, "--dry-run", "--json")
    assert json.loads(out)["seconds"] is None  # no precision but FP32 was measured here


@pytest.mark.parametrize(
    ("arguments", "key", "value"),
    [
        (["scaling", "--points", "m99", "--dry-run"], "--points", "m99"),
        (["scaling", "--points", "", "--dry-run"], "--points", ""),
        (["scaling", "--points", " ,", "--dry-run"], "--points", " ,"),
        (["scaling", "--set", "ensemble.size=2", "--dry-run"], "ensemble.size", 2),
        (["scaling", "--reuse", "nowhere", "--dry-run"], "--reuse", None),
        (["repeatability", "--seeds", "1", "--dry-run"], "--seeds", 1),
        (["tradeoff", "--runs", "many"], "--runs", "many"),
    ],
)
@pytest.mark.usefixtures("study")
def test_a_mistake_names_key_and_value(arguments: list[str], key: str, value: object) -> None:
    with pytest.raises(InputError) as caught:
        app(["study", *arguments])
    assert (caught.value.exit_code, caught.value.key, caught.value.value) == (2, key, value)


@pytest.mark.parametrize(
    ("arguments", "names"),
    [
        (["scaling", "--max-members", "0"], "--max-members"),
        (["report", "nowhere"], "nowhere"),
        (["scalling"], "scalling"),
    ],
)
def test_a_mistake_exits_2(study: Run, arguments: list[str], names: str) -> None:
    code, _, err = study(*arguments)
    assert (code, names in err) == (2, True)


def test_a_damaged_study_is_reported(study: Run, tmp_path: Path) -> None:
    (tmp_path / "study.json").write_text('{"study": "scaling", "points": 3}')
    code, _, err = study("report", tmp_path)
    assert code == 2
    assert "points: expected a list" in err
