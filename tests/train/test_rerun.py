"""`ai500 verify --rerun` repeats a real run, goes on after an interruption, and judges."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ai500.records import run_folder
from ai500.records.run_folder import RunFolder
from ai500.submission.confirmations import Confirmation, confirmation_path
from ai500.submission.member_rerun import FILE_NAME, ChosenMembers
from tests.support.commands import Start, wait_for
from tests.support.submitted import OPTIONS, packed, small_run

ONE_MEMBER = """workload = "image_classification"
problem_class = "smoke"
[train]
epochs = 1
[system]
accelerators_per_node = 1
cores_per_slot = 1
[data]
path = "/nowhere"
"""


@pytest.mark.timeout(900)
def test_a_claim_is_put_to_the_test(tiny_store: Path, start: Start, tmp_path: Path) -> None:
    """The claim is invented, what repeats it trains: one member, one epoch, two trials."""
    claimed = small_run(
        tmp_path / "claimed", members=1, slots=1, trials=2, epochs=1, config=ONE_MEMBER
    )
    path, out = packed(claimed, tmp_path / "s.ai500"), tmp_path / "again"
    command = start(
        "verify", path, "--rerun", "--out", out, "--runs", "2", "--data", tiny_store, "--json"
    )
    code = command.wait()
    printed = json.loads(command.out)
    judged = printed["replication"]
    assert code == (0 if judged["verdict"] == "replicated" else 1), command.err
    assert judged == run_folder.read_json(out / "replication.json")
    for figure in judged["comparisons"]:
        assert [len(figure["claimed"]), len(figure["repeated"])] == [2, 2]
    assert any("Synthetic CPU" in text for text in judged["other_system"])
    plan = json.loads((out / "plan.json").read_text())
    assert (plan["ensemble_size"], plan["hyperparameters"]["epochs"]) == (1, 1)


@pytest.mark.long
@pytest.mark.timeout(900)
def test_a_real_run_is_repeated(
    finished_run: Path, tiny_store: Path, start: Start, tmp_path: Path
) -> None:
    """Stopped in the middle, and begun again by the same command."""
    path, out = packed(RunFolder(finished_run), tmp_path / "s.ai500"), tmp_path / "again"
    words = ("verify", path, "--rerun", "--out", out, "--runs", "2", "--data", tiny_store)
    first = start(*words)
    wait_for(out / "events.jsonl", "first_batch")
    first.interrupt()
    assert first.wait() == 130, first.err
    second = start(*words, "--json")
    code = second.wait()
    printed = json.loads(second.out)
    judged = printed["replication"]
    assert code == (0 if judged["verdict"] == "replicated" else 1), second.err
    assert judged == run_folder.read_json(out / "replication.json")
    assert printed["confirmed"] is True
    for figure in judged["comparisons"]:
        assert [len(figure["claimed"]), len(figure["repeated"])] == [2, 2]
    claimed, repeated = (
        json.loads((folder / "plan.json").read_text()) for folder in (finished_run, out)
    )
    assert claimed["hyperparameters"] == repeated["hyperparameters"]
    assert claimed["ensemble_size"] == repeated["ensemble_size"]
    assert claimed["seed"] != repeated["seed"]  # or quality would repeat by construction
    other = start("verify", path, "--rerun", "--out", out, "--runs", "3", "--data", tiny_store)
    assert (other.wait(), "another run" in other.err) == (2, True)


ONE_WAVE = ("--set", "parallel.degree=1", "--set", "ensemble.members_per_accelerator=2")
"""An official entry trains its ensemble at once: on two slots two members share each [D11]."""


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_smoke_from_run_to_replication(start: Start, tmp_path: Path) -> None:
    """The tutorial of docs/submission.md, with nothing made smaller: two valid runs."""
    run, file = tmp_path / "run", tmp_path / "mine.ai500"
    words = (
        ("run", "--runs", "valid", "--out", run, *ONE_WAVE),
        ("check", run, "--level", "hardware"),
        ("submit", run, "--level", "hardware", "--out", file, "--name", OPTIONS.name),
        ("check", file),
        ("verify", file),
    )
    for command in words:
        done = start(*command)
        assert done.wait(timeout=1500) == 0, done.out + done.err
    again = start("verify", file, "--rerun", "--out", tmp_path / "again", "--json")
    again.wait(timeout=1500)
    judged = json.loads(again.out)["replication"]
    quality = judged["comparisons"][1]
    print(f"\n{judged['verdict']}: {json.dumps(judged['comparisons'], indent=1)}")
    assert quality["verdict"] != "differs" or abs(quality["difference"]) < 0.03
    assert judged["other_system"] == []


@pytest.mark.long
@pytest.mark.timeout(900)
def test_members_drawn_after_submission_are_repeated(
    finished_run: Path, tiny_store: Path, start: Start, tmp_path: Path
) -> None:
    """Two of the real run's four members train again, and no others."""
    path, out = packed(RunFolder(finished_run), tmp_path / "s.ai500"), tmp_path / "again"
    words = ("verify", path, "--rerun", "--members", "2", "--out", out, "--data", tiny_store)
    first = start(*words, "--json")
    first.wait()
    printed = json.loads(first.out)
    judged = printed["replication"]
    recorded = run_folder.read(ChosenMembers, out / FILE_NAME)
    chosen = {tuple(pair) for pair in judged["chosen"]["members"]}
    assert chosen == set(recorded.members)
    trained = {
        (int(file.parents[2].name), int(file.parent.name))
        for file in out.glob("trials/*/members/*/record.json")
    }
    assert trained == chosen
    speed, quality = judged["comparisons"]
    assert [len(figure["repeated"]) for figure in (speed, quality)] == [2, 2]
    # The same seed, bootstrap and machine give the same member.
    assert quality["repeated"] == pytest.approx(quality["claimed"])
    record = run_folder.read(Confirmation, confirmation_path(path, "rerun"))
    assert str(recorded.seed) in record.statement
    again = start(*words, "--json")
    again.wait()
    assert json.loads(again.out)["replication"]["chosen"] == judged["chosen"]
    other = start("verify", path, "--rerun", "--members", "3", "--out", out, "--data", tiny_store)
    assert (other.wait(), "other members" in other.err) == (2, True)
