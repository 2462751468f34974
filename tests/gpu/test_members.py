"""Members that share a real GPU: recorded steps end where members end alone."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from ai500.core import events
from ai500.parallel.cuda_graph import cudnn_autotuning
from ai500.records import TrainRecord, run_folder
from ai500.records.run_folder import RunFolder
from ai500.train.loop import prepare, training_steps
from ai500.train.member import Member
from ai500.train.shared_process import MemberGroup, feed_from_device
from ai500.train.step import eager_step
from ai500.train.step_strategies import StepStrategy, graph_strategies
from tests.support.commands import Start
from tests.support.noise_members import Shape, make_member, make_tasks

GPU = torch.device("cuda", 0)
SHAPES = {
    "fp32": Shape("small", 16, 40, 32, 16 * 20, "smoke"),
    "mixed-bf16": Shape("deep", 16, 40, 32, 16 * 20),
}
"""ResNet-50's training on noise amplifies FP32's rounding until nothing can be compared: after five
steps two trainings alone were 0.4 of the way apart. With fused kernels they are the same."""
FP32_TOLERANCE = {"sgd": 0.01, "lars": 0.01, "lamb": 0.1, "adam": 0.3}
"""Fractions of the way. On a CPU convolutions by another algorithm ended at most 0.0004, 0.0014,
0.03 and 0.11 of it apart; members that took each other's steps would be more than 1."""
STEPS = 5
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.timeout(600),
    pytest.mark.skipif(
        not torch.cuda.is_available(), reason="NO GPU: members that share one are untested"
    ),
]


def flat(member: Member) -> Tensor:
    torch.cuda.synchronize()
    return torch.cat(
        [parameter.detach().flatten().double() for parameter in member.engine.parameters()]
    )


def alone(member: Member) -> Tensor:
    """Train with cuDNN's algorithms of captured steps: others, such as Winograd's, round
    differently."""
    with cudnn_autotuning():
        steps = training_steps(member, prepare(member))
        request = next(steps)
        for _ in range(STEPS):
            request = steps.send(eager_step(member, request))
        steps.close()
    return flat(member)


def step(group: MemberGroup, strategy: StepStrategy) -> None:
    requests = group.first_requests(strategy)
    for _ in range(STEPS):
        requests = group.next_requests(strategy.step(requests), strategy)


@pytest.mark.parametrize("optimizer", ["sgd", "lars", "lamb", "adam"])
@pytest.mark.parametrize("precision", SHAPES)
def test_every_strategy_ends_where_members_end_alone(
    precision: str, optimizer: str, tmp_path: Path
) -> None:
    """The distance is at most that of rounding, or of two trainings alone."""
    shape, tolerance = SHAPES[precision], 0.05
    if precision == "fp32":
        tolerance = FP32_TOLERANCE[optimizer]
    tasks = make_tasks(shape, tmp_path, members=3, precision=precision, optimizer=optimizer)
    own = [replace(task, process_members=()) for task in tasks]
    before = [flat(make_member(task, GPU)) for task in own]
    true = [alone(make_member(task, GPU)) for task in own]
    again = [alone(make_member(task, GPU)) for task in own]
    for number in range(2):
        group = MemberGroup([make_member(task, GPU) for task in tasks])
        group.start({n: prepare(member) for n, member in enumerate(group.members)})
        assert feed_from_device(group.members)
        strategy = graph_strategies(dict(enumerate(group.members)))[number]
        for member, first in zip(group.members, before, strict=True):
            assert torch.equal(flat(member), first), "the capture changed the weights"
        step(group, strategy)
        for n, member in enumerate(group.members):
            moved = (true[n] - before[n]).norm()
            noise = (again[n] - true[n]).norm() / moved
            away = (flat(member) - true[n]).norm() / moved
            assert away <= max(tolerance, 3 * noise), (strategy.name, n, float(noise))


def test_a_run_of_members_that_share_the_gpu(
    tiny_store: Path, start: Start, tmp_path: Path
) -> None:
    """From plan to score: one process, a strategy chosen by a trial, and about the same quality."""
    qualities = {}
    for sharing in ("process", "processes"):
        run = tmp_path / sharing
        values = {
            "train.epochs": 4, "ensemble.size": 4, "parallel.degree": 1,
            "system.accelerators_per_node": 1, "ensemble.members_per_accelerator": 4,
            "ensemble.sharing": sharing,
        }  # fmt: skip
        pairs = [word for key, value in values.items() for word in ("--set", f"{key}={value}")]
        command = start("run", "--out", run, "--data", tiny_store, *pairs)
        assert command.wait() == 0, command.err
        trial = RunFolder(run).trial(1)
        records = [run_folder.read(TrainRecord, trial.member(m).record) for m in range(4)]
        assert len({record.weights_sha256 for record in records}) == 4
        qualities[sharing] = json.loads((run / "score.json").read_text())["members_mean_quality"]
    logged = list(events.read(tmp_path / "process" / "events.jsonl"))
    chosen = [event for event in logged if event["event"] == "shared_process"]
    assert [event["members"] for event in chosen] == [[0, 1, 2, 3]] * 4
    assert set(chosen[0]["milliseconds"]) == {"graphs on streams", "graphs in one queue"}
    assert len({event["pid"] for event in logged if event["event"] == "start"}) == 1
    assert abs(qualities["process"] - qualities["processes"]) < 0.15
