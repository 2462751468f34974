"""The report says what the records say: complete, marked, escaped, and without torch."""

from __future__ import annotations

import io
import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from ai500.bagging.sections import members_table, share_of_peak
from ai500.cli import score_view, terminal
from ai500.core.errors import RunFolderError
from ai500.core.units import human_si
from ai500.pipeline.scoring import write_report
from ai500.records import Score, run_folder
from ai500.records.run_folder import RunFolder
from ai500.report.page import ROWS_SHOWN
from ai500.report.run_data import read_run_data
from ai500.report.run_sections import equation_5, hyperparameters_table
from ai500.report.summary import verdict
from tests.support import changed_records
from tests.support.html_words import HOSTILE, Words
from tests.support.synthetic_run import Shape, official_shape, write_synthetic_run


def report(path: Path, shape: Shape) -> tuple[RunFolder, Words]:
    run = write_synthetic_run(path, shape)
    write_report(run)
    return run, Words(run.report.read_text(encoding="utf-8"))


def test_a_report_needs_no_torch(tmp_path: Path) -> None:
    run = write_synthetic_run(tmp_path / "run", Shape())
    code = (
        "import sys; from pathlib import Path; from ai500.records.run_folder import RunFolder\n"
        "from ai500.pipeline.scoring import write_report\n"
        f"write_report(RunFolder.open(Path({str(run.path)!r})))\n"
        "sys.exit('torch' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
    assert run.report.exists()


def test_the_headline_states_the_score(tmp_path: Path) -> None:
    run, page = report(tmp_path / "my-run", Shape())
    score = run_folder.read(Score, run.score)
    for words in (
        "HPC AI500 V3.0 · class smoke",
        "Image classification on 2 CPU slots (Synthetic CPU)",
        "Run my-run · ",
        f"The score is {human_si(score.vflops)}VFLOPS",
        "VFLOPS above FLOPS are a reward for quality above the target (V2 §4.4.1)",
        f"counted by convention aiperf: {human_si(score.flops)}FLOPS.",
        f"top-1 accuracy of {score.ensemble_quality:.4f} meets the target of 0.8",
        "1 of at least 3 trials: shown, but not a valid result",
        "2 CPU slots (Synthetic CPU) of host, in 2 waves",
    ):
        assert words in page.text


def test_the_share_of_the_peak_is_that_of_the_precisions_data_sheet(tmp_path: Path) -> None:
    """989.4 TFLOPS of an H200 in BF16, of two of them; on a CPU there is no data sheet."""
    data = read_run_data(write_synthetic_run(tmp_path / "run", Shape()))
    assert share_of_peak(data) == ""
    hyper = replace(data.plan.hyperparameters, precision="mixed-bf16")
    plan = replace(data.plan, device="cuda", system_scale=2, hyperparameters=hyper)
    system = replace(data.system, accelerators=("NVIDIA H200", "NVIDIA H200"))
    score = replace(data.score, flops=2 * 98.94e12)
    gpus = replace(data, plan=plan, system=system, score=score)
    assert share_of_peak(gpus) == "10.0% of the data sheet's peak in BF16"
    mixed = replace(gpus, system=replace(system, accelerators=("NVIDIA H200", "AMD Instinct")))
    assert share_of_peak(mixed) == ""


def test_a_run_that_keeps_all_rules_is_called_valid(tmp_path: Path) -> None:
    run, page = report(tmp_path / "run", official_shape(trials=3))
    assert verdict(read_run_data(run)).level == "valid"
    assert "Valid result: complete, and no rule is broken." in page.text
    assert "INCOMPLETE" not in page.text


def test_uncounted_operators_are_named_and_make_no_valid_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """[D23]: in the score, the findings, the report and the terminal."""
    counted = Shape(members=2, trials=3)
    shape = replace(counted, operations=replace(counted.operations, uncounted={"aten::lstsq": 2}))
    run, page = report(tmp_path / "run", shape)
    score = run_folder.read(Score, run.score)
    assert score.uncounted == {"aten::lstsq": 2}
    data = read_run_data(run)
    assert verdict(data).level == "invalid"
    [violation] = [finding for finding in data.findings if finding.severity == "violation"]
    assert (violation.rule, violation.run) == ("every operator counted", "aten::lstsq ×2")
    assert page.text.count("aten::lstsq ×2") >= 3  # finding, score, operations
    shown = io.StringIO()
    monkeypatch.setattr(terminal, "console", Console(width=120, file=shown))
    score_view.show_score(score, data.findings)
    assert shown.getvalue().count("aten::lstsq ×2") == 2


def test_an_incomplete_run_names_what_is_missing(tmp_path: Path) -> None:
    run, page = report(tmp_path / "run", Shape(failed=frozenset({1, 3})))
    assert verdict(read_run_data(run)).level == "incomplete"
    assert "INCOMPLETE: the score lacks a part of the ensemble" in page.text
    assert "Trial 1: members 1, 3 did not finish." in page.text
    assert "1, failed" in page.text


def test_what_was_not_measured_or_reached_says_so(tmp_path: Path) -> None:
    _, page = report(tmp_path / "run", Shape())
    assert "Out of bag not measured" in page.text
    assert "Time to target not reached" in page.text
    assert "memory not measured" in page.text
    assert "torch not installed" in page.text


def test_the_members_own_rates_sum_to_the_score_s(tmp_path: Path) -> None:
    run = write_synthetic_run(tmp_path / "run", Shape(resumed=frozenset({2})))
    data = read_run_data(run)
    table = members_table(data)
    column = table.columns.index("own FLOPS")
    rates = [float(row[column].removesuffix(" GFLOPS")) * 1e9 for row in table.rows]
    assert sum(rates) == pytest.approx(data.score.members_flops_sum, rel=1e-3)
    assert [row[-1] for row in table.rows] == ["1", "1", "2", "1"]  # attempts


def test_every_trial_is_listed(tmp_path: Path) -> None:
    run, page = report(tmp_path / "run", Shape(trials=3))
    for trial in run_folder.read(Score, run.score).trials:
        dropped = "" if trial.trial == 2 else ", dropped"
        assert f"{trial.trial}{dropped} {human_si(trial.vflops)}VFLOPS" in page.text
    assert "Every figure here is that of trial 2." in page.text
    assert "Figures of trial 2 of 3: the highest and the lowest by VFLOPS are dropped" in page.text
    assert "VFLOPS of every trial" in page.text
    assert "Curves, members and placement are those of trial 2, the median" in page.text
    assert "faint: the means of the other trials" in page.text


def test_a_single_trial_is_listed_with_its_seed(tmp_path: Path) -> None:
    run, page = report(tmp_path / "run", Shape())
    (trial,) = run_folder.read(Score, run.score).trials
    assert trial.seed is not None
    row = page.text.partition(" seed ")[2].partition(" Training ")[0]
    assert row.startswith(f"1 {human_si(trial.vflops)}VFLOPS") and row.endswith(f" {trial.seed}")
    assert "Each trial is listed below" not in page.text


def test_changed_hyperparameters_are_marked(tmp_path: Path) -> None:
    run = write_synthetic_run(tmp_path / "run", Shape(batch_size=64))
    table = hyperparameters_table(read_run_data(run))
    marked = [row for index, row in enumerate(table.rows) if index in table.marked]
    assert marked == [("batch size", "≠ 64", "32")]


def test_the_reference_is_the_one_for_the_member_s_accelerators(tmp_path: Path) -> None:
    run = write_synthetic_run(tmp_path / "run", Shape(members=2, slots=4, degree=2))
    data = read_run_data(run)
    fixed = replace(data.plan.definition, global_batch_size=128)
    data = replace(data, plan=replace(data.plan, definition=fixed))
    table = hyperparameters_table(data)
    assert ("batch size", "≠ 32", "64") in table.rows


@pytest.mark.parametrize(
    ("shape", "words"),
    [
        (Shape(members=2), "2 × 1 = 2; Sys_scale = 2. The equation holds"),
        (Shape(members=4), "4 × 1 = 4; Sys_scale = 2. The system holds 2 members at once"),
        (Shape(members=4, members_per_accelerator=2), "k = 2 members on each accelerator"),
        (Shape(members=3, nodes=3, degree=2), "3 × 2 = 6; Sys_scale = 6. The equation holds"),
    ],
)
def test_equation_5_is_written_out(tmp_path: Path, shape: Shape, words: str) -> None:
    run = write_synthetic_run(tmp_path / "run", shape)
    assert words in " ".join(equation_5(read_run_data(run)))


def test_findings_have_layer_rule_and_source(tmp_path: Path) -> None:
    _, page = report(tmp_path / "run", Shape(epochs=2))
    assert "Layer 9: problem domain" in page.text
    assert "Rule: Train exactly the reference number of epochs. V2 §5.1.1" in page.text


@pytest.mark.slow
def test_a_thousand_members_stay_readable(tmp_path: Path) -> None:
    shape = Shape(members=1000, nodes=125, slots=8, epochs=2)
    run, page = report(tmp_path / "run", shape)
    assert f"{1000 - ROWS_SHOWN} more members" in page.text
    assert "Band: from the lowest to the highest of 1,000 members." in page.text
    assert run.report.stat().st_size < 2_000_000


def test_nothing_from_disk_becomes_markup(tmp_path: Path) -> None:
    shape = Shape(host=HOSTILE, config=f"# {HOSTILE}\n")
    run = write_synthetic_run(tmp_path / "run", shape)
    state = changed_records.load(run.state)
    changed_records.save(run.state, {**state, "name": HOSTILE, "version": HOSTILE})
    write_report(run)
    page = Words(run.report.read_text(encoding="utf-8"))
    assert not [tag for tag, _ in page.tags if tag == "script"]
    assert f"# {HOSTILE}" in page.text  # verbatim, as text


def test_the_page_requests_nothing(tmp_path: Path) -> None:
    run, page = report(tmp_path / "run", Shape())
    for tag, attributes in page.tags:
        assert tag not in ("script", "iframe", "img", "object")
        for name in ("src", "href"):
            assert (attributes.get(name) or "data:").startswith(("data:", "#"))
    text = run.report.read_text(encoding="utf-8").replace("http://www.w3.org/2000/svg", "")
    assert not re.search(r"https?://|url\(|@import", text)


@pytest.mark.parametrize(
    ("damage", "key"),
    [
        ({"epoch": 99, "loss": HOSTILE}, "loss"),
        ({"epoch": "x", "loss": 0.5}, "epoch"),
        ({"epoch": 99, "wall": None}, "wall"),
        ({"loss": 0.5}, "epoch"),
    ],
)
def test_a_damaged_event_is_named(tmp_path: Path, damage: dict[str, object], key: str) -> None:
    run = write_synthetic_run(tmp_path / "run", Shape())
    lines = len(run.events.read_text(encoding="utf-8").splitlines())
    common = {"trial": 1, "member": 0, "attempt": 1, "host": "host", "boot": "boot"}
    event = {"event": "epoch", **common, "sequence": 1, "wall": 1.0, "monotonic": 1.0, **damage}
    with run.events.open("a", encoding="utf-8") as file:
        file.write(json.dumps(event) + "\n")
    with pytest.raises(RunFolderError, match=f"line {lines + 1}") as raised:
        write_report(run)
    assert (raised.value.path, raised.value.key) == (run.events, key)
