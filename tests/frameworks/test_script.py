"""Scripts of one's own, from end to end: the documented example, and scripts that misbehave."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ai500.core import events
from ai500.core.errors import InputError
from ai500.frameworks.script_data import NOT_VERIFIED
from ai500.records import EnsembleResult, Score, TrainRecord, run_folder
from ai500.records.findings import Finding
from ai500.records.run_folder import RunFolder
from ai500.roofline.place_run import read_run
from ai500.workloads.learnable_images import SMOKE
from tests.support.commands import REPOSITORY, Start

EXAMPLE = REPOSITORY / "docs" / "examples" / "outside-script"
TWO_SLOTS = ["--set", "system.accelerators_per_node=2", "--set", "system.cores_per_slot=1",
             "--set", "scheduler.poll_seconds=0.05"]  # fmt: skip

# Reports as the contract says, without any package: JSON lines in its events file.
SCRIPT = """
import json, os, signal, sys, time
task = json.load(open(os.environ["AI500_TASK"]))
def emit(event, **fields):
    if task["rank"] == 0:
        with open(task["events"], "a") as file:
            file.write(json.dumps({"event": event, **fields}) + "\\n")
if task["rank"] == 0:
    emit("first_batch")
for epoch in range(1, task["epochs"] + 1):
    time.sleep(0.02)
    emit("epoch", epoch=epoch, loss=1 / epoch)
    emit("quality", epoch=epoch, quality=0.5 + 0.1 * task["member"])
emit("end")
"""
CONFIG = """
workload = "custom"
[custom_class]
name = "mine"
target_quality = 0.5
penalty_exponent = 3
epochs = 2
batch_size = 30
quality_name = "score of my own"
quality_direction = "higher"
train_samples = 100
validation_samples = 20
[framework]
kind = "script"
command = ["{python}", "train.py"]
[ensemble]
size = 2
"""


def written(folder: Path, *, script: str = SCRIPT, config: str = CONFIG) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "train.py").write_text(script)
    (folder / "ai500.toml").write_text(config)
    return folder / "ai500.toml"


def run_of(start: Start, config: Path, *more: str, code: int = 0) -> tuple[RunFolder, str]:
    run = config.parent / "run"
    command = start("run", "--config", config, "--out", run, *TWO_SLOTS, *more)
    assert command.wait() == code, command.err
    return RunFolder(run), command.err


def score_of(run: RunFolder) -> Score:
    return run_folder.read(Score, run.score)


def events_of(run: RunFolder, member: int) -> list[dict[str, Any]]:
    return list(events.read(run.trial(1).member(member).events))


def example(folder: Path, *, epochs: int) -> Path:
    shutil.copytree(EXAMPLE, folder)
    subprocess.run([sys.executable, "make_data.py", "data"], cwd=folder, check=True)
    config = folder / "ai500.toml"
    config.write_text(config.read_text().replace("epochs = 8", f"epochs = {epochs}"))
    return config


def test_the_documented_example_runs_is_interrupted_and_resumes(
    start: Start, tmp_path: Path
) -> None:
    """Ctrl-C, SIGKILL of a script, resume: the result is that of an undisturbed run."""
    plain, _ = run_of(start, example(tmp_path / "plain", epochs=5))
    config = example(tmp_path / "disturbed", epochs=5)
    script, go = config.parent / "train.py", config.parent / "go"
    # The second epoch waits at a step, so that signals find both scripts at work.
    gate = "while (epoch, step) == (2, 5) and not stopped and not Path('go').exists():"
    before = "        if stopped:\n"
    text = script.read_text()
    assert before in text
    text = text.replace(before, f"        {gate}\n            time.sleep(0.05)\n{before}")
    # Member 1 dies of a second SIGTERM while it leaves, as on Slurm.
    leaves = "            sys.exit(CHECKPOINTED)\n"
    assert leaves in text
    dies = "signal.signal(signal.SIGTERM, signal.SIG_DFL); os.kill(os.getpid(), signal.SIGTERM)"
    text = text.replace(
        leaves, f"            if task['member'] == 1:\n                {dies}\n{leaves}"
    )
    script.write_text("import time, os\n" + text)
    path = config.parent / "run"
    command = start("run", "--config", config, "--out", path, *TWO_SLOTS)
    run = RunFolder(path)
    wait_until(lambda: all(_epochs(run, member) >= 1 for member in (0, 1)))
    command.interrupt()
    assert command.wait() == 130
    for member in (0, 1):
        assert events_of(run, member)[-1]["event"] == "interrupted"
        assert (run.trial(1).member(member).script / "checkpoint" / "state.pt").exists()
    resumed = start("resume", path)
    wait_until(lambda: "resumed" in _kinds(run, 0))
    os.kill(_script_process(run), signal.SIGKILL)
    go.touch()
    assert resumed.wait() == 1
    assert "member 0" in resumed.err and "code 137" in resumed.err
    assert start("resume", path).wait() == 0
    kinds = _kinds(run, 0)
    assert (kinds.count("first_batch"), kinds.count("resumed"), kinds.count("end")) == (1, 2, 1)
    of_script, of_plain_run = (
        run_folder.read(EnsembleResult, r.trial(1).ensemble) for r in (run, plain)
    )
    assert of_script == of_plain_run
    assert of_script.ensemble_quality is not None
    assert of_script.ensemble_quality > 0.6  # three classes: chance is a third
    for member in (0, 1):
        predictions = [np.load(r.trial(1).member(member).validation) for r in (run, plain)]
        np.testing.assert_array_equal(*predictions)


def wait_until(reached: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 500
    while not reached():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def _kinds(run: RunFolder, member: int) -> list[str]:
    return [event["event"] for event in events_of(run, member)]


def _epochs(run: RunFolder, member: int) -> int:
    return _kinds(run, member).count("epoch")


def _script_process(run: RunFolder) -> int:
    """Return the process of member 0's script."""
    task_file = str(run.trial(1).member(0).script / "task-000.json")
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_bytes().decode().split("\0")
        except OSError:
            continue
        if task_file in words and "train.py" in words:
            return int(folder.name)
    raise AssertionError("no script is running")


def test_what_a_script_does_not_tell_is_not_measured(start: Start, tmp_path: Path) -> None:
    run, _ = run_of(start, written(tmp_path / "a folder; with $odd 'names'"))
    score = score_of(run)
    assert score.flops is score.vflops is score.operations is score.apc is None
    assert score.convention is None
    assert score.ensemble_quality is None
    assert score.members_mean_quality == pytest.approx(0.55)
    assert score.penalty_coefficient == pytest.approx((0.55 / 0.5) ** 3)  # by the members' mean
    assert score.custom_class and score.complete
    record = run_folder.read(TrainRecord, run.trial(1).member(1).record)
    assert (record.quality, record.operations, record.weights_sha256) == (0.6, None, None)
    assert (record.samples, record.steps) == (200, 8)  # ⌈100 / 30⌉ steps in each of two epochs
    findings = {finding.rule: finding for finding in run_folder.read_all(Finding, run.findings)}
    for rule in ("registered class", "worker of ai500", "official convention"):
        assert findings[rule].severity == "violation"
    assert findings["unknown data"].run == NOT_VERIFIED
    assert "records can't be judged" not in str(findings)
    report = run.report.read_text()
    assert "not measured" in report and "comparable with no registered class" in report
    for command in ("score", "report", "check", "status"):
        done = start(command, run.path)
        assert done.wait() == (1 if command == "check" else 0), done.err
    refused = start("submit", run.path, "--level", "free", "--out", tmp_path / "mine.ai500")
    assert refused.wait() == 1
    assert not (tmp_path / "mine.ai500").exists()
    with pytest.raises(InputError) as caught:
        read_run(run)
    assert caught.value.key == "framework.operations"


def test_stated_operations_give_flops_and_trials_their_own_seeds(
    start: Start, tmp_path: Path
) -> None:
    count = {"convention": "aiperf", "parameters": 7, "forward_per_sample": 100,
             "backward_per_sample": 200, "update": 14, "unknown": {}}  # fmt: skip
    config = written(tmp_path / "own", config=CONFIG.replace(
        "[ensemble]", 'operations = "count.json"\n[ensemble]'
    ))  # fmt: skip
    (config.parent / "count.json").write_text(json.dumps(count))
    run, _ = run_of(start, config, "--runs", "2")
    for trial in score_of(run).trials:
        assert trial.operations == 2 * (200 * 300 + 8 * 14)
        assert trial.flops == pytest.approx(trial.operations / trial.seconds)
        assert trial.vflops == pytest.approx(trial.flops * 1.1**3)
    tasks = [
        json.loads((run.trial(trial).member(member).script / "task-000.json").read_text())
        for trial in (1, 2)
        for member in (0, 1)
    ]
    assert len({task["seed"] for task in tasks}) == 4
    samples = [np.load(task["samples"]) for task in tasks]
    assert all(len(drawn) == 100 and drawn.max() < 100 for drawn in samples)
    assert len({drawn.tobytes() for drawn in samples}) == 4
    unseen = np.load(tasks[0]["out_of_bag"])
    assert sorted({*unseen, *samples[0]}) == list(range(100))
    assert not {*unseen} & {*samples[0]}


def test_every_rank_is_started_with_its_own_task(start: Start, tmp_path: Path) -> None:
    script = (
        SCRIPT
        + """
assert os.environ["RANK"] == str(task["rank"]) and os.environ["WORLD_SIZE"] == "2"
import socket
address = (task["master_addr"], task["master_port"])
if task["rank"] == 0:
    with socket.create_server(address) as server:
        server.accept()[0].close()
else:
    for _ in range(200):
        try:
            socket.create_connection(address).close()
            break
        except OSError:
            time.sleep(0.05)
    else:
        sys.exit("no rendezvous")
"""
    )
    config = written(
        tmp_path / "ranks", script=script, config=CONFIG.replace("size = 2", "size = 1")
    )
    run, _ = run_of(start, config, "--set", "parallel.degree=2")
    record = run_folder.read(TrainRecord, run.trial(1).member(0).record)
    assert record.world_size == 2
    assert record.steps == 2 * 2  # ⌈100 / 60⌉ steps in each of two epochs


BAD = {
    "garbage": (SCRIPT.replace('emit("end")', 'print(":::MLLOG garbage", flush=True)'),
                ["standard output, line 1", "not JSON"]),
    "garbage in its file": (SCRIPT + '\nopen(task["events"], "a").write("x\\n")',
                            ["events.jsonl, line 7", "not JSON"]),
    "no quality": (SCRIPT.replace('emit("quality"', 'dict(name="quality"'),
                   ["no quality after its last epoch 2"]),
    "no end": (SCRIPT.replace('emit("end")', ""), ["did not report its end"]),
    "silence": ("print('nothing to report')", ["reported epochs []; its task says 1 to 2"]),
    "too few epochs": (SCRIPT.replace('task["epochs"] + 1', 'task["epochs"]'), ["epochs [1]"]),
    "epochs from zero": (SCRIPT.replace("epoch=epoch", "epoch=epoch - 1"), ["0 is not 1 to 2"]),
    "unordered": (SCRIPT.replace('emit("first_batch")', "pass"), ["before first_batch"]),
    "a crash": (SCRIPT + '\nraise RuntimeError("out of cheese")', ["code 1", "out of cheese"]),
    "bad predictions": (SCRIPT + '\nopen(task["output"] + "/validation.npy", "w").write("x")',
                        ["validation.npy is no array"]),
}  # fmt: skip


ALWAYS = ("garbage", "no quality", "a crash", "silence")
"""Scripts of BAD that `make test` runs; the long tests run all."""


@pytest.mark.parametrize(
    "script",
    [name if name in ALWAYS else pytest.param(name, marks=pytest.mark.long) for name in BAD],
)
def test_a_script_that_breaks_the_contract_fails_with_member_and_file(
    script: str, start: Start, tmp_path: Path
) -> None:
    text, problems = BAD[script]
    # Only member 1 misbehaves.
    config = written(tmp_path / "bad", script=f"{SCRIPT}\nsys.exit()")
    guard = 'import json, os\nif json.load(open(os.environ["AI500_TASK"]))["member"] == 0:\n'
    good = "".join(f"    {line}\n" for line in SCRIPT.splitlines())
    bad = "".join(f"    {line}\n" for line in text.splitlines())
    (config.parent / "train.py").write_text(f"{guard}{good}else:\n{bad}")
    run, error = run_of(start, config, code=1)
    flat = " ".join(error.split())
    assert "error: member 1: " in flat
    assert str(run.trial(1).member(1).log) in error.replace("\n", "")
    for problem in problems:
        assert problem in flat
    score = score_of(run)
    assert not score.complete  # member 0's work is kept


# Predicts from the labels of a packed store, member 0 with an error in every second row.
PREDICTS = (
    SCRIPT
    + """
import numpy as np
def predicted(split, rows):
    labels = np.load(os.path.join(task["data"], split + ".labels.npy"))[rows]
    scores = np.zeros((len(labels), CLASSES), np.float32)
    scores[np.arange(len(labels)), labels] = 0.9
    if task["member"] == 0:
        scores[::2] = np.roll(scores[::2], 1, axis=1) * 0.5
    return scores
for split, rows in (("validation", slice(None)), ("train", np.load(task["out_of_bag"]))):
    name = "out_of_bag" if split == "train" else split
    np.save(os.path.join(task["output"], name + ".npy"), predicted(split, rows))
"""
).replace("CLASSES", str(SMOKE.classes))


@pytest.mark.parametrize("workload", ["custom", "image_classification"])
def test_predictions_on_a_packed_store_give_the_ensembles_quality(
    workload: str, start: Start, tmp_path: Path, tiny_store: Path
) -> None:
    """The script reads the store's own files; its reported quality is checked against ours."""
    config = CONFIG.replace('"score of my own"', '"accuracy"').replace('custom"', f'{workload}"')
    config = "\n".join(line for line in config.splitlines() if "_samples" not in line)
    if workload != "custom":
        lines = [line for line in config.splitlines() if not line.startswith(("quality", "batch"))]
        config = "\n".join(lines)
    script = PREDICTS.replace("0.5 + 0.1 * task", "0.5 + 0.5 * task")
    run, _ = run_of(
        start, written(tmp_path / "own", script=script, config=config), "--data", str(tiny_store)
    )
    result = run_folder.read(EnsembleResult, run.trial(1).ensemble)
    assert result.member_qualities == (0.5, 1.0)
    assert result.ensemble_quality == 1.0  # member 1's 0.9 outweighs member 0's errors of 0.45
    assert result.out_of_bag_quality is not None and 0.5 < result.out_of_bag_quality < 1
    rules = {finding.rule for finding in run_folder.read_all(Finding, run.findings)}
    assert "consistent qualities" not in rules
    assert "same data" not in rules


def test_a_quality_other_than_its_predictions_is_reported(
    start: Start, tmp_path: Path, tiny_store: Path
) -> None:
    config = CONFIG.replace('"score of my own"', '"accuracy"')
    config = "\n".join(line for line in config.splitlines() if "_samples" not in line)
    run, _ = run_of(
        start, written(tmp_path / "own", script=PREDICTS, config=config), "--data", str(tiny_store)
    )
    findings = {finding.rule: finding for finding in run_folder.read_all(Finding, run.findings)}
    assert findings["consistent qualities"].severity == "violation"


def test_a_trial_does_not_resume_on_other_data(start: Start, tmp_path: Path) -> None:
    config = written(tmp_path / "own", script=f"{SCRIPT}\nsys.exit(3)")
    data = tmp_path / "files"
    data.mkdir()
    (data / "a.bin").write_bytes(b"12")
    run, _ = run_of(start, config, "--data", str(data), code=1)
    (data / "a.bin").write_bytes(b"13")  # as many bytes
    resumed = start("resume", run.path)
    assert resumed.wait() == 2
    assert "SHA-256" in resumed.err


def test_a_class_of_ones_own_on_ones_own_data_with_pytorch(
    start: Start, tmp_path: Path, tiny_store: Path
) -> None:
    run = tmp_path / "run"
    changes = {
        "custom_class.name": "photos",
        "custom_class.target_quality": 0.2,
        "custom_class.penalty_exponent": 2,
        "custom_class.epochs": 1,
        "ensemble.size": 2,
        "parallel.degree": 1,
    }
    words = [word for key, value in changes.items() for word in ("--set", f"{key}={value}")]
    command = start("run", "--out", run, "--data", tiny_store, *TWO_SLOTS, *words)
    assert command.wait() == 0, command.err
    folder = RunFolder(run)
    score = score_of(folder)
    assert score.problem_class == "photos" and score.custom_class
    assert score.ensemble_quality is not None and score.flops is not None
    assert score.penalty_coefficient == pytest.approx((score.ensemble_quality / 0.2) ** 2)
    broken = {
        finding.rule
        for finding in run_folder.read_all(Finding, folder.findings)
        if finding.severity == "violation"
    }
    # Its own data, target and epochs are the class's; only its fewer trials break another rule.
    assert broken == {"registered class", "enough trials", "minimum ensemble size"}
    assert "comparable with no registered class" in folder.report.read_text()
