"""Reading a folder of submissions: ranked entries, and reasons for rejected ones."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import shutil
import sys
import tempfile
from pathlib import Path

import pytest

from ai500 import cli
from ai500.pipeline import scoring
from ai500.ranking.entries import MAX_SHOWN, Ranked, Rejected, accelerator, framework
from ai500.ranking.site import build
from ai500.records import Plan, run_folder
from ai500.report.run_data import read_run_data
from ai500.roofline.page import placement_figures
from ai500.roofline.place_run import place_run
from ai500.submission import archive, packing, signing
from ai500.submission.description import describe
from tests.support.submitted import OPTIONS, packed, small_run, submittable_run
from tests.support.synthetic_list import TITLE, judged, snapshot, submission
from tests.support.synthetic_roofline import synthetic_roofline


def forged(path: Path) -> None:
    """Pack a score that is better than its events, with a matching manifest."""
    with tempfile.TemporaryDirectory() as scratch:
        run = submittable_run(Path(scratch) / "run", host="forger")
        plan = run_folder.read(Plan, run.plan)
        score, judgement = scoring.judge_run(run, level="hardware")
        better = dataclasses.replace(score, vflops=2 * score.vflops)
        files = packing.collect(run) | packing.result_files(better, judgement)
        files |= packing.added_files(describe(run, plan, OPTIONS), plan, notes=None)
        packing.seal(files, key=None)
        archive.pack(path, files)


def disguised(path: Path) -> None:
    """Pack the run of `slow` under another name, with other bytes in its events."""
    with tempfile.TemporaryDirectory() as scratch:
        run = submittable_run(Path(scratch) / "run", noise=0.02)
        with run.events.open("a", encoding="utf-8") as file:
            file.write("torn\n")
        packed(run, path, options=dataclasses.replace(OPTIONS, system_name="Another name"))


@pytest.fixture(scope="module")
def submissions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write four valid submissions, and one of each kind that is rejected."""
    folder = tmp_path_factory.mktemp("submissions")
    (folder / "2026").mkdir()
    submission(folder, "slow", epoch_seconds=2.0, system_name="Slow")
    submission(
        folder / "2026", "new", epoch_seconds=1.0, system_name="Twice", notes="<b>new</b>",
        edition="2027-05",
    )  # fmt: skip
    submission(folder, "old", epoch_seconds=1.5, system_name="Twice")
    submission(folder, "free", epoch_seconds=1.5, system_name="Twice", level="free")
    shutil.copy(folder / "slow.ai500", folder / "slow again.ai500")
    disguised(folder / "slow by another name.ai500")
    forged(folder / "forged.ai500")
    packed(small_run(folder / "run"), folder / "too few trials.ai500")
    shutil.rmtree(folder / "run")
    data = bytearray((folder / "old.ai500").read_bytes())
    data[len(data) // 2] ^= 1
    (folder / "damaged.ai500").write_bytes(data)
    (folder / "empty.ai500").touch()
    (folder / "gone.ai500").symlink_to(folder / "nowhere")
    os.mkfifo(folder / "pipe.ai500")
    (folder / os.fsdecode(b"not text \xff.ai500")).write_bytes(b"junk")
    (folder / "a folder.ai500").mkdir()
    return folder


@pytest.mark.slow
def test_a_folder_of_submissions_becomes_a_list(
    submissions: Path, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    site = tmp_path / "site"
    assert command("rank", submissions, "-o", site, "--json", monkeypatch=monkeypatch) == 0
    output = json.loads(capsys.readouterr().out)
    entries = output["entries"]
    # Of the same work the file with the lower digest is ranked, whatever the names.
    slow = entries[2]["system"]
    assert [(entry["level"], entry["rank"], entry["system"]) for entry in entries] == [
        ("hardware", 1, "Twice"),
        ("hardware", None, "Twice"),
        ("hardware", 2, slow),
        ("free", 1, "Twice"),
    ]
    assert len(entries[2]["findings"]) == 1
    vflops = [entry["vflops"] for entry in entries]
    assert vflops[0] > vflops[1] > vflops[2]
    reasons = {each["file"]: "; ".join(each["reasons"]) for each in output["rejected"]}
    assert "the same file as slow again.ai500" in reasons.pop("slow.ai500")
    copy = {"Slow": "slow by another name.ai500", "Another name": "slow again.ai500"}[slow]
    assert "all 12 members" in reasons.pop(copy)
    assert "score.json: vflops is" in reasons["forged.ai500"]
    assert "the raw events give" in reasons.pop("forged.ai500")
    assert "trials" in reasons.pop("too few trials.ai500")
    assert reasons.pop("damaged.ai500")
    assert reasons.pop("empty.ai500")
    assert "No such file" in reasons.pop("gone.ai500")
    assert "a pipe" in reasons.pop("pipe.ai500")
    assert reasons.pop(r"not text \xdcff.ai500")
    assert reasons == {}
    assert command("rank", submissions, "-o", tmp_path / "again", monkeypatch=monkeypatch) == 0
    text = capsys.readouterr().out
    assert all(len(line) <= 80 for line in text.splitlines() if "open /" not in line)
    assert snapshot(site) == snapshot(tmp_path / "again")
    assert str(submissions).encode() not in b"".join(snapshot(site).values())
    assert b"ai500-submission-" not in b"".join(snapshot(site).values())


def test_names_of_many_devices_are_cut_in_the_list(tmp_path: Path) -> None:
    """A thousand nodes with a name of 1,000 characters each were a megabyte in everybody's list."""
    data = read_run_data(submittable_run(tmp_path / "run"))
    (node,) = data.nodes
    nodes = [
        dataclasses.replace(
            node, processors=dataclasses.replace(node.processors, model=f"{number}" * 300)
        )
        for number in range(1000)
    ]
    assert accelerator(data) == "CPU: Synthetic CPU"
    assert len(accelerator(dataclasses.replace(data, nodes=nodes))) == MAX_SHOWN
    record = dataclasses.replace(data.members[0], versions={"torch": "2" * 30_000})
    assert len(framework(record)) == MAX_SHOWN


@pytest.mark.slow
def test_one_worker_and_two_give_the_same_list(submissions: Path) -> None:
    assert judged(submissions, workers=1) == judged(submissions, workers=2)


def test_an_entry_shows_all_of_its_submission(submissions: Path, tmp_path: Path) -> None:
    built = build(judged(submissions / "2026"), tmp_path, title=TITLE)
    (entry,) = built.entries
    page = (tmp_path / "entries" / f"{entry.id}.html").read_text()
    for heading in ("Score", "Trials", "The nine layers", "Training", "System",
                    "Hyper-parameters", "Members", "Identity"):  # fmt: skip
        assert f">{heading}</h" in page
    assert page.count("<svg") >= 5
    assert "&lt;b&gt;new&lt;/b&gt;" in page
    assert hashlib.sha256((submissions / "2026" / "new.ai500").read_bytes()).hexdigest() in page
    assert entry.vflops_per_watt is None
    assert "not measured" in page
    layers = (tmp_path / "data" / "entries" / f"{entry.id}.js").read_text()
    data = json.loads(layers.removeprefix("ai500.entry(").removesuffix(");\n"))
    assert sorted(data["layers"]) == [str(layer) for layer in range(1, 10)]
    assert data["layers"]["9"]["epochs"] == "11"


def test_a_run_is_placed_again_under_the_submitted_ceilings(tmp_path: Path) -> None:
    run = submittable_run(tmp_path / "run")
    honest = place_run(run, synthetic_roofline())
    faster = [dataclasses.replace(point, flops=2 * point.flops) for point in honest.placed]
    run_folder.write(run.roofline, dataclasses.replace(honest, placed=tuple(faster)))
    packed(run, tmp_path / "forged.ai500")
    (entry,) = judged(tmp_path)
    assert isinstance(entry, Ranked)
    assert [drawing.caption for drawing in entry.rooflines] == [
        figure.caption for figure in placement_figures(honest)
    ]
    assert ">Roofline</h2>" in entry.body
    assert entry.rooflines[0].svg in entry.body


def test_ceilings_that_do_not_fit_a_run_cost_it_the_drawing_alone(tmp_path: Path) -> None:
    run = submittable_run(tmp_path / "run")
    honest = place_run(run, synthetic_roofline())
    no_kernels = dataclasses.replace(honest.ceilings, kernels=())
    run_folder.write(run.roofline, dataclasses.replace(honest, ceilings=no_kernels))
    packed(run, tmp_path / "bare.ai500")
    (entry,) = judged(tmp_path)
    assert isinstance(entry, Ranked)
    assert entry.rooflines == ()
    assert "Not shown: " in entry.body


@pytest.mark.slow
def test_with_trusted_keys_only_their_submissions_are_ranked(
    submissions: Path, tmp_path: Path
) -> None:
    key = tmp_path / "key.pem"
    signing.make_key(key)
    signed = tmp_path / "signed"
    signed.mkdir()
    run = submittable_run(tmp_path / "run")
    packed(run, signed / "signed.ai500", key=key)
    shutil.copy(submissions / "slow.ai500", signed)
    public = signing.public_path(key)
    results = judged(signed, trusted_keys=public)
    assert [type(result) for result in results] == [Ranked, Rejected]
    assert isinstance(results[0], Ranked)
    assert results[0].entry.signed


def command(*arguments: str | Path, monkeypatch: pytest.MonkeyPatch) -> int:
    """Run `ai500 …` in this process; return its exit code."""
    monkeypatch.setattr(sys, "argv", ["ai500", *map(str, arguments)])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    return int(ended.value.code or 0)


def test_a_title_is_plain_text(
    submissions: Path, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    out = tmp_path / "site"
    code = command("rank", submissions, "-o", out, "--title", "\udcff", monkeypatch=monkeypatch)
    assert code == 2
    assert "--title" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["", "missing", "file.txt"])
def test_a_folder_without_submissions_is_an_error(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file.txt").write_text("no submission")
    code = command("rank", tmp_path / name, "--out", tmp_path / "site", monkeypatch=monkeypatch)
    assert code == 2
    assert "submission" in capsys.readouterr().err
    assert not (tmp_path / "site").exists()
