"""`ai500 check` and `ai500 compare`: exit codes, both values, 80 columns, nothing written."""

from __future__ import annotations

import json
import shutil
import tarfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ai500.rules.layers import LAYERS
from tests.support import changed_records
from tests.support.commands import Run
from tests.support.submitted import OPTIONS, packed, submittable_run
from tests.support.synthetic_run import Shape, official_shape, write_synthetic_run


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of the real class that keeps every rule."""
    return write_synthetic_run(tmp_path_factory.mktemp("runs") / "clean", official_shape()).path


@pytest.fixture
def clean(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "clean"))


def change_records(run: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Change what every worker recorded."""
    for path in run.glob("trials/*/members/*/record.json"):
        record = changed_records.load(path)
        change(record)
        changed_records.save(path, record)


def with_momentum(run: Path) -> None:
    """Another momentum, planned and recorded."""

    def change(record: dict[str, Any]) -> None:
        record["effective"]["hyperparameters"]["momentum"] = 0.8

    change_records(run, change)
    plan = changed_records.load(run / "plan.json")
    plan["hyperparameters"]["momentum"] = 0.8
    changed_records.save(run / "plan.json", plan)


def trick(record: dict[str, Any]) -> None:
    """V2 §5.4: no weight decay on batch norm."""
    [group] = record["effective"]["groups"]
    other = {**group, "weight_decay": 0.0, "elements": 448, "kinds": {"batch norm weight": 9}}
    record["effective"]["groups"] = [{**group, "elements": group["elements"] - 448}, other]


def contents(run: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in run.rglob("*") if path.is_file()}


def test_a_clean_run_exits_0_and_nothing_is_written(ai500: Run, clean: Path) -> None:
    before = contents(clean)
    code, out, _ = ai500("check", clean)
    assert code == 0
    assert "clean: no rule is broken" in out
    for layer, name in LAYERS.items():
        assert f"{layer} {name}: " in out
    assert all(len(line.rstrip()) <= 80 for line in out.splitlines()[1:])
    assert contents(clean) == before


def test_a_broken_rule_exits_1_with_both_values_source_and_advice(ai500: Run, clean: Path) -> None:
    with_momentum(clean)
    code, out, _ = ai500("check", clean)
    text = " ".join(out.split())
    assert code == 1
    assert "8 hyper-parameters: changed, FORBIDDEN (V2 §5.1.2)" in text
    assert "momentum 0.8 reference 0.9" in text
    assert "fixed at hardware level. Leave train.momentum out. (V2 §5.1.2, §5.4)" in text


def test_the_trick_of_v2_section_5_4_is_caught_from_the_optimizer_s_groups(
    ai500: Run, clean: Path
) -> None:
    change_records(clean, trick)
    code, out, _ = ai500("check", clean)
    assert code == 1
    assert "9 × batch norm weight with weight decay 0" in " ".join(out.split())
    assert ai500("check", clean, "--level", "system")[0] == 1
    assert ai500("check", clean, "--level", "free")[0] == 0


def test_json_has_every_layer_with_its_facts(ai500: Run, clean: Path) -> None:
    with_momentum(clean)
    code, out, _ = ai500("check", clean, "--json", "--level", "free", "--rules", "2026.1")
    data = json.loads(out)
    assert (code, data["broken"], data["level"], data["rule_set"]) == (0, False, "free", "2026.1")
    assert [layer["layer"] for layer in data["layers"]] == [9, 8, 7, 6, 5, 4, 3, 2, 1]
    [layer] = [each for each in data["layers"] if each["layer"] == 8]
    assert layer["verdict"] == "allowed"
    assert {"aspect": "momentum", "reference": "0.9", "run": "0.8"} in layer["facts"]
    assert "fixed hyperparameters" in [finding["rule"] for finding in data["findings"]]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["check", "nowhere"], "no such run folder or submission"),
        (["check", "."], "not a run folder"),
        (["check", "{run}", "--level", "fre"], "did you mean 'free'?"),
        (["check", "{run}", "--rules", "1999"], "no rule set '1999'; known: 2026.1"),
        (["compare", "{run}", "nowhere"], "no such run folder or submission"),
        (["compare", "{run}", "{run}", "--level", "x"], "no such value; known: free, hardware"),
    ],
)
def test_bad_input_exits_2(ai500: Run, made: Path, arguments: list[str], says: str) -> None:
    code, _, err = ai500(*(word.format(run=made) for word in arguments))
    assert code == 2
    assert says in " ".join(err.split())


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        (b"", "an empty file"),
        ("Größe\n".encode() * 200, "a text file"),
        (b"\x89PNG\r\n\x1a\n" + bytes(600), "a picture (PNG)"),
        (b"PK\x03\x04" + bytes(range(256)) * 3, "a zip archive"),
        (bytes(range(256)) * 3, "a file of another type"),
    ],
)
def test_a_file_that_is_no_submission_is_one_error(
    ai500: Run, tmp_path: Path, content: bytes, kind: str
) -> None:
    path = tmp_path / "given"
    path.write_bytes(content)
    for arguments in (["check", path], ["check", path, "--json"], ["verify", path]):
        code, out, err = ai500(*arguments)
        assert (code, out, err.count("\n")) == (2, "", 1)
        assert err.startswith(f"error: given: not a submission but {kind}. Expected: a file that")


def test_a_tar_of_another_program_is_named_as_such(ai500: Run, clean: Path, tmp_path: Path) -> None:
    path = tmp_path / "mine.tar"
    with tarfile.open(path, "w", format=tarfile.GNU_FORMAT) as tar:
        tar.add(clean, "run")
    code, out, err = ai500("check", path)
    assert (code, out) == (2, "")
    assert "a tar archive of another program" in err
    with tarfile.open(path, "w", format=tarfile.USTAR_FORMAT) as tar:
        tar.add(clean, ".")
    code, out, _ = ai500("check", path)
    assert code == 1
    assert "more; --json lists all" in out
    assert len(out.splitlines()) < 50


def test_a_folder_of_runs_names_some_of_them(ai500: Run, clean: Path, tmp_path: Path) -> None:
    for name in ("runs/a", "runs/b", "runs/study-x/runs/m1", "runs/z"):
        (tmp_path / name).mkdir(parents=True)
        shutil.copy(clean / "run.json", tmp_path / name)
    runs = tmp_path / "runs"
    code, _, err = ai500("check", runs)
    assert code == 2
    first = ", ".join(str(runs / name) for name in ("a", "b", "study-x/runs/m1"))
    assert f"It contains run folders: {first}, and 1 more." in err
    assert f"folders: {runs / 'study-x/runs/m1'}. Name one" in ai500("check", runs / "study-x")[2]
    (tmp_path / "empty").mkdir()
    assert "`ai500 run --out FOLDER` creates one" in ai500("status", tmp_path / "empty")[2]
    assert "it is a file" in ai500("status", clean / "run.json")[2]


def test_a_run_without_a_result_is_named_as_such(ai500: Run, clean: Path) -> None:
    (clean / "events.jsonl").write_text("")
    code, _, err = ai500("check", clean)
    assert code == 1
    assert "no finished trial yet" in err


def test_two_runs_that_keep_the_rules_compare(ai500: Run, clean: Path, made: Path) -> None:
    system = changed_records.load(clean / "system.json")
    changed_records.save(clean / "system.json", system | {"cpu": "Another CPU"})
    for path in clean.glob("trials/*/systems/*.json"):
        node = changed_records.load(path)
        node["processors"]["model"] = "Another CPU"
        changed_records.save(path, node)
    code, out, _ = ai500("compare", made, clean)
    assert code == 0
    text = " ".join(out.split())
    assert "the scores may be compared" in text
    assert "1 hardware: different, allowed" in text
    assert "CPU Synthetic CPU, 2 cores Another CPU, 2 cores" in text
    assert "8 hyper-parameters: same" in text


def test_a_difference_where_a_layer_is_fixed_does_not_compare(
    ai500: Run, clean: Path, made: Path
) -> None:
    with_momentum(clean)
    code, out, _ = ai500("compare", made, clean, "--json")
    data = json.loads(out)
    assert (code, data["comparable"]) == (1, False)
    [layer] = [each for each in data["layers"] if each["layer"] == 8]
    [difference] = layer["differences"]
    assert (difference["aspect"], difference["first"], difference["second"]) == (
        "momentum", "0.9", "0.8",
    )  # fmt: skip
    assert difference["allowed"] is False
    assert data["reasons"][0] == "layer 8 differs where it is fixed: momentum"
    code, out, _ = ai500("compare", made, clean, "--level", "free")
    assert code == 0
    assert "different, allowed" in out


def test_runs_of_different_accelerators_show_a_fact_that_one_lacks(
    ai500: Run, clean: Path, made: Path
) -> None:
    change_records(clean, lambda record: record["versions"].update(cuda="12.8"))
    code, out, _ = ai500("compare", made, clean)
    assert code == 0
    assert "cuda not recorded 12.8" in " ".join(out.split())


def test_an_invalid_run_is_not_compared(ai500: Run, made: Path, tmp_path: Path) -> None:
    few = write_synthetic_run(tmp_path / "few", Shape()).path
    code, out, _ = ai500("compare", made, few)
    assert code == 1
    assert "the second breaks rules: " in " ".join(out.split())


def test_a_submission_is_judged_at_its_own_level_and_compares_with_its_run(
    ai500: Run, tmp_path: Path
) -> None:
    run = submittable_run(tmp_path / "run")
    change_records(run.path, trick)
    for level, code in (("system", 1), ("free", 0)):
        file = packed(run, tmp_path / f"{level}.ai500", options=replace(OPTIONS, level=level))
        exit_code, out, _ = ai500("check", file, "--json")
        data = json.loads(out)
        assert (exit_code, data["level"], data["problems"]) == (code, level, [])
        assert data["signature"]
    exit_code, out, _ = ai500("compare", run.path, tmp_path / "free.ai500", "--json")
    data = json.loads(out)
    assert (exit_code, data["level"], data["comparable"]) == (0, "free", True)
    assert not any(layer["differences"] for layer in data["layers"])


def test_a_file_that_contradicts_itself_is_not_judged(ai500: Run, tmp_path: Path) -> None:
    """Its manifest goes with it, and each file by itself keeps the rules."""
    run = submittable_run(tmp_path / "run")
    data = changed_records.load(run.trial(1).bootstraps)
    data[0]["distinct"] += 1
    changed_records.save(run.trial(1).bootstraps, data)
    code, out, _ = ai500("check", packed(run, tmp_path / "mine.ai500"), "--json")
    assert code == 1
    [problem] = json.loads(out)["problems"]
    assert problem == "trials/01/bootstraps.json: member 0's does not follow from the seed"


@pytest.mark.parametrize("value", [5, "text", [["x"]]])
def test_a_damaged_folder_is_a_sentence_never_a_traceback(
    ai500: Run, clean: Path, made: Path, value: object
) -> None:
    change_records(clean, lambda record: record["effective"].update(parallel=value, data=value))
    for words in (("check", clean), ("compare", made, clean)):
        code, _, err = ai500(*words)
        assert code == 1
        assert "Traceback" not in err


def test_a_submission_with_problems_is_not_judged(ai500: Run, tmp_path: Path) -> None:
    file = packed(submittable_run(tmp_path / "run"), tmp_path / "mine.ai500")
    data = bytearray(file.read_bytes())
    data[data.index(b'"steps_per_epoch"') + 1] ^= 1
    file.write_bytes(data)
    code, out, _ = ai500("check", file)
    assert code == 1
    assert "plan.json" in out
    assert "The nine layers" not in out
    code, out, _ = ai500("check", file, "--json")
    assert code == 1
    assert "plan.json" in json.loads(out)["problems"][0]
    code, _, err = ai500("compare", file, file)
    assert code == 1
    assert "plan.json" in err
