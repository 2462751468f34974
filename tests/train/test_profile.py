"""`ai500 profile` with real processes: of a workload, of a run, interrupted, refused."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from ai500 import config as configuration
from ai500.cli import app
from ai500.core.errors import AI500Error
from ai500.profile import counters, session
from ai500.profile.record import PrecisionProfile, Profile
from ai500.profile.trace import read
from ai500.records import run_folder
from tests.support.commands import SOURCE, Start, processes_of
from tests.support.profile_traces import accelerator_step
from tests.support.profiles import check_timeline, profile_of
from tests.support.synthetic_run import Shape, write_synthetic_run

DELAY_SECONDS = 0.1
SLOW_RANK = f'''
import os, time
from ai500.workloads.image_classification import ImageClassification

class SlowRank(ImageClassification):
    """Rank 1 dawdles before each of its forward passes."""

    name = "slow_rank"

    def train_inputs(self, *arguments):
        if os.environ.get("RANK") == "1":
            time.sleep({DELAY_SECONDS})
        return super().train_inputs(*arguments)

WORKLOAD = SlowRank()
'''
TWO_RANKS = [
    "--set", "parallel.degree=2", "--set", "system.accelerators_per_node=2",
    "--set", "system.cores_per_slot=1", "--set", "train.batch_size=8",
]  # fmt: skip


@pytest.fixture
def slow_rank(tmp_path: Path) -> str:
    """Install an outside workload with an entry point; return its PYTHONPATH."""
    packages = tmp_path / "site"
    described = packages / "slow_rank-1.0.dist-info"
    described.mkdir(parents=True)
    (packages / "slow_rank.py").write_text(SLOW_RANK)
    (described / "METADATA").write_text("Metadata-Version: 2.1\nName: slow-rank\nVersion: 1.0\n")
    (described / "entry_points.txt").write_text(
        "[ai500.workload]\nslow_rank = slow_rank:WORKLOAD\n"
    )
    return f"{SOURCE}:{packages}"


def check(precision: PrecisionProfile) -> None:
    assert sum(
        category.share for category in precision.categories
    ) + precision.unknown_share == pytest.approx(1)
    assert precision.unknown_share < 0.01, precision.unknown
    times = {category.category: category for category in precision.categories}
    assert times["convolution"].calls_per_step >= 18  # nine layers, forward and backward
    assert times["convolution"].flops is not None
    assert times["convolution"].flops > 1e8
    assert 0 < precision.busy_share <= 1
    assert precision.counters_missing is not None


@pytest.mark.serial
def test_a_rank_that_dawdles_is_what_the_other_waits_for(
    slow_rank: str, tiny_store: Path, start: Start, tmp_path: Path
) -> None:
    out = tmp_path / "a profile"
    command = start(
        "profile", "--workload", "slow_rank", "--data", tiny_store, "--steps", "3",
        "--out", out, *TWO_RANKS, PYTHONPATH=slow_rank,
    )  # fmt: skip
    assert command.wait() == 0, command.err
    assert max(map(len, command.out.splitlines()[:-3])) <= 80  # but for the names of files
    for words in ("waiting for others", "convolution", "Perfetto", "not measured"):
        assert words in command.out
    assert sorted(file.name for file in out.iterdir()) == [
        "profile.html", "profile.json", "timeline.json.gz",
    ]  # fmt: skip
    profile = run_folder.read(Profile, out / "profile.json")
    assert (profile.parallel_degree, profile.steps, profile.global_batch_size) == (2, 3, 16)
    [precision] = profile.precisions
    check(precision)
    assert precision.communication is not None
    waits, dawdles = precision.communication.ranks
    # The machine is shared: much of the delay, never all of it, must be where it belongs.
    assert waits.waiting_for_others > 0.5 * DELAY_SECONDS
    assert waits.waiting_for_others > 2 * dawdles.waiting_for_others
    assert waits.waiting_for_others > waits.negotiation + waits.queueing + waits.copy_in
    assert precision.seconds_per_step > DELAY_SECONDS
    events = check_timeline(out / "timeline.json.gz")["traceEvents"]
    names = {e["args"]["name"].partition(" on ")[0] for e in events if e["name"] == "process_name"}
    assert names == {"fp32: rank 0", "fp32: rank 1"}
    exchanges = [e for e in events if e["name"] == "ai500 exchange |  | 0,1"]
    assert len(exchanges) == 2 * 3 * precision.communication.buffers_per_step


def test_a_run_is_profiled_into_its_folder_and_its_report(
    finished_run: Path, start: Start, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    shutil.copytree(finished_run, run)
    (run / "score.json").unlink()  # as if it had been stopped
    command = start(
        "profile", run, "--steps", "1", "--precision", "fp32", "--precision", "mixed-bf16",
        "--set", "train.batch_size=8", "--json",
    )  # fmt: skip
    assert command.wait() == 0, command.err
    profile = run_folder.read(Profile, run / "profile" / "profile.json")
    assert json.loads(command.out)["precisions"][1]["precision"] == "mixed-bf16"
    assert profile.run == "run"
    for precision in profile.precisions:
        check(precision)
        assert precision.communication is None
        assert "one rank" in str(precision.communication_missing)
    assert start("report", run).wait() == 0
    page = (run / "report.html").read_text()
    assert "Kernels by category (V2 Fig. 10)" in page
    assert "mixed-bf16" in page


@pytest.mark.long
def test_a_run_with_a_failed_member_is_profiled_all_the_same(
    tiny_store: Path, start: Start, tmp_path: Path
) -> None:
    """Its configuration and data are enough, whatever became of its members."""
    run = write_synthetic_run(tmp_path / "run", Shape(members=2, failed=frozenset({1})))
    command = start(
        "profile", run.path, "--data", tiny_store, "--steps", "1", "--set", "train.batch_size=8",
    )  # fmt: skip
    assert command.wait() == 0, command.err
    (precision,) = run_folder.read(Profile, run.path / "profile" / "profile.json").precisions
    check(precision)
    assert "configuration of run" in command.out
    assert "Kernels by category (V2 Fig. 10)" in run.report.read_text()


def test_an_interrupted_profile_leaves_nothing_behind(
    tiny_store: Path, start: Start, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    command = start("profile", "--data", tiny_store, "--steps", "5000", "--out", out, *TWO_RANKS)
    deadline = time.monotonic() + 60
    while len(processes_of(out)) < 3 and time.monotonic() < deadline:  # torchrun and two ranks
        time.sleep(0.05)
    assert len(processes_of(out)) >= 3
    command.interrupt()
    assert command.wait() == 130
    assert processes_of(out) == []
    assert not out.exists()
    assert not list(tmp_path.glob("ai500-*/*"))  # nor of the staged data


TWO_CLOCKS = """
import sys
import torch.distributed as dist
from ai500.train import profiler
rank = int(sys.argv[1])
store = dist.FileStore(sys.argv[2], 2)
dist.init_process_group("gloo", store=store, rank=rank, world_size=2)
if rank == 0:
    profiler._answer(1)
else:
    print(*profiler._ask())
dist.destroy_process_group()
"""


@pytest.mark.long
def test_a_clock_is_compared_over_the_network(tmp_path: Path) -> None:
    """Both processes have the same clock here: the answer must be none, as far as it is known."""
    ranks = [
        subprocess.Popen(
            [sys.executable, "-c", TWO_CLOCKS, str(rank), str(tmp_path / "store")],
            env={**os.environ, "PYTHONPATH": str(SOURCE)},
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    outputs = [rank.communicate(timeout=120)[0] for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0, 0]
    offset, uncertainty = map(float, outputs[1].split())
    assert 0 < uncertainty < 0.05
    assert abs(offset) <= uncertainty


class Silent:
    """Watches, and says nothing."""

    def stage(self, text: str) -> None: ...

    def progress(self, done: int, total: int) -> None: ...

    def members(self, views: object) -> None: ...


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ('while [ "$1" != --log-file ]; do shift; done; echo "==ERROR== no driver" > "$2"; exit 1',
         "ncu: no driver"),
        ("echo ncu is broken; exit 3", "ncu is broken"),
        ("exec sleep 60", "longer than 1 s"),
        ("exit 0", "counted no kernel"),
    ],
    ids=["an error of its own", "another", "too long", "nothing"],
)  # fmt: skip
def test_whatever_ncu_does_the_profile_is_kept(
    script: str, words: str, tiny_store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An ncu that fails in each way it can, around a real job."""
    tool = tmp_path / "bin" / "ncu"
    tool.parent.mkdir()
    tool.write_text(f"#!/bin/sh\n{script}\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tool.parent}:{os.environ['PATH']}")
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(counters, "LONGEST_SECONDS", 1.0)
    settings = {"data.path": str(tiny_store), "system.device": "cpu", "ensemble.size": 1,
                "parallel.degree": 1, "train.batch_size": 8}  # fmt: skip
    trace = read(accelerator_step(ready=200, enter=220, all_in=220).events)
    profile = profile_of([trace])
    config = configuration.load(overrides=settings)
    shown = session._add_counters(profile, [trace], config, tmp_path / "work", Silent())
    assert words in str(shown.counters_missing)
    assert replace(shown, counters_missing=None) == replace(profile, counters_missing=None)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--steps", "0"], ["--steps 0", "at least one"]),
        (["--precision", "bf17"], ["--precision bf17", "did you mean"]),
        (["--precision", "tf32", "--set", "system.device=cpu"], ["tf32", "tensor cores"]),
        (["--data", "nowhere"], ["nowhere"]),
        (["--class", "full"], ["needs your own data", "ai500 data pack"]),
        (["--workload", "automl"], ["a search", "image_classification instead"]),
        (["nothing"], ["nothing", "not a run folder"]),
        (["nothing", "--class", "smoke"], ["RUN and --class"]),
        (["--out", "taken"], ["taken", "another --out"]),
    ],
)
def test_what_can_t_be_profiled_says_why(
    arguments: list[str], words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("taken").mkdir()
    Path("taken/notes.txt").write_text("mine")
    done = CliRunner().invoke(app, ["profile", *arguments])
    assert isinstance(done.exception, AI500Error)
    assert done.exception.exit_code == 2
    for word in words:
        assert word in str(done.exception)
    assert not Path("profiles").exists()
