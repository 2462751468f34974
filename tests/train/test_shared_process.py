"""Members that one process trains end like members alone: bit by bit on a CPU, whatever happens."""

from __future__ import annotations

import copy
import os
import signal
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from ai500.core import events
from ai500.data.bootstrap import epoch_order
from ai500.data.open_store import open_store
from ai500.inventory.description import NodeDescription
from ai500.meters.log import read_meters
from ai500.pipeline import scoring
from ai500.records import TrainRecord, run_folder
from ai500.records.run_folder import RunFolder
from ai500.rules.judgement import judge
from ai500.rules.window_rules import window_as_described
from ai500.train.device_feed import ResidentFeed, load
from ai500.train.feed import Feed
from ai500.train.graphed_step import preserve_state
from ai500.train.loop import prepare, training_steps
from ai500.train.member import Member
from ai500.train.optimizers import LAMB
from ai500.train.shared_process import MemberGroup
from ai500.train.step import eager_step
from ai500.train.step_strategies import choose, graph_strategies
from tests.support.commands import Start, wait_for
from tests.support.noise_members import Shape, make_member, make_tasks

pytestmark = pytest.mark.timeout(400)
SETTINGS = {
    "train.epochs": 2,
    "ensemble.size": 2,
    "parallel.degree": 1,
    "system.accelerators_per_node": 1,
    "system.cores_per_slot": 1,
    "ensemble.members_per_accelerator": 2,
    "ensemble.sharing": "process",
    "train.checkpoint_minutes": 0.002,
    "scheduler.poll_seconds": 0.05,
}


def settings(store: Path, **more: object) -> list[str | Path]:
    pairs = {**SETTINGS, **{key.replace("__", "."): value for key, value in more.items()}}
    return ["--data", store, *(w for k, v in pairs.items() for w in ("--set", f"{k}={v}"))]


def weights(run: Path) -> list[str]:
    trial = RunFolder(run).trial(1)
    return [run_folder.read(TrainRecord, trial.member(m).record).weights_sha256 for m in range(2)]


def test_a_killed_process_goes_on_with_all_its_members(
    finished_run: Path, tiny_store: Path, start: Start, tmp_path: Path
) -> None:
    """`finished_run` has the same members, each with a process of its own."""
    run = tmp_path / "run"
    command = start("run", "--out", run, *settings(tiny_store, scheduler__max_retries=1))
    trial = RunFolder(run).trial(1)
    wait_for(trial.member(1).events, "epoch")
    pids = {wait_for(trial.member(m).events, "start")["pid"] for m in range(2)}
    assert len(pids) == 1
    # Any member may resume without the others: each has the node's state before its first batch.
    for member in range(2):
        (path,) = trial.systems.glob(f"*-{member:03d}.json")
        first_batch = wait_for(trial.member(member).events, "first_batch")
        assert run_folder.read(NodeDescription, path).before.wall <= first_batch["wall"]
    os.kill(pids.pop(), signal.SIGKILL)
    assert command.wait() == 0, command.err
    assert weights(run) == weights(finished_run)
    for member in range(2):
        assert wait_for(trial.member(member).events, "resumed", timeout=1)["attempt"] == 2
    metered = {head.member for log in read_meters(trial.meters) for head in log.heads}
    assert metered == {0, 1}  # or the energy of the other would be unknown
    logged = list(events.read(run / "events.jsonl"))
    assert [e["mode"] for e in logged if e["event"] == "sharing"] == ["process"]
    strategies = [
        (e["member"], e["members"], e["strategy"]) for e in logged if e["event"] == "shared_process"
    ]
    assert strategies[:2] == [(0, [0, 1], "sequential"), (1, [0, 1], "sequential")]
    assert "one process trains the 2 members" in " ".join(command.out.split())
    page = (run / "report.html").read_text(encoding="utf-8")
    assert "one process trains the 2 members" in page


@pytest.mark.long
def test_what_ends_one_member_does_not_end_the_others(
    finished_run: Path, tiny_store: Path, start: Start, tmp_path: Path
) -> None:
    """Ctrl-C, then one of the two members can't write its predictions, then it can."""
    run = tmp_path / "run"
    command = start("run", "--out", run, *settings(tiny_store))
    trial = RunFolder(run).trial(1)
    wait_for(trial.member(1).events, "first_batch")
    command.interrupt()
    assert command.wait() == 130
    for member in range(2):
        wait_for(trial.member(member).events, "interrupted", timeout=1)
    trial.member(1).validation.mkdir()
    command = start("resume", run)
    assert command.wait() == 1
    assert "validation.npy" in command.err
    assert trial.member(0).record.exists()
    assert not trial.member(1).record.exists()
    trial.member(1).validation.rmdir()
    command = start("resume", run)
    assert command.wait() == 0, command.err
    assert weights(run) == weights(finished_run)
    evidence = scoring.run_evidence(RunFolder(run))
    assert {member for member, _ in evidence.trials[0].nodes} == {0, 1}
    assert judge(evidence, rules=(window_as_described,)).violations == []


def test_samples_that_stay_on_the_device_make_the_same_batches(tiny_store: Path) -> None:
    samples = open_store(tiny_store).splits["train"]
    drawn = np.random.default_rng(3).integers(0, 3, (2, samples.count)).astype(np.uint8)
    feed = Feed(
        samples=samples, seed=5, member=1, rank=1, world_size=2, batch_size=3,
        draws_per_sample=5, device=torch.device("cpu"),
    )  # fmt: skip
    resident = load(samples, list(drawn), device=feed.device)
    assert len(resident.fields["images"]) == int((drawn.max(axis=0) > 0).sum())
    order = epoch_order(drawn[1], seed=5, member=1, epoch=2)
    plain = list(feed.epoch(2, order, first_step=2))
    quick_feed = ResidentFeed(**feed.settings(), load=lambda: resident)
    quick = list(quick_feed.epoch(2, order, first_step=2))
    assert len(plain) == len(quick) == len(order) // 6 - 2 > 64
    for batch, resident_batch in zip(plain, quick, strict=True):
        assert torch.equal(batch.draws, resident_batch.draws)
        assert list(batch.fields) == list(resident_batch.fields) == ["images", "labels"]
        for name, values in batch.fields.items():
            assert torch.equal(values, resident_batch.fields[name])


@pytest.mark.parametrize("optimizer", ["sgd", pytest.param("lamb", marks=pytest.mark.long)])
def test_every_strategy_ends_where_members_end_alone(optimizer: str, tmp_path: Path) -> None:
    """Captured steps, which a CPU replays by calling them; one of the members ends early."""
    shape = Shape("tiny", 4, 16, 16, 64, "smoke")
    cpu = torch.device("cpu")
    tasks = make_tasks(shape, tmp_path, members=3, precision="fp32", optimizer=optimizer)
    alone = [make_member(task, cpu) for task in tasks]
    for member, steps in zip(alone, (4, 4, 2), strict=True):
        training = training_steps(member, prepare(member))
        request = next(training)
        for _ in range(steps):
            request = training.send(eager_step(member, request))
    for number in range(2):
        group = MemberGroup([make_member(task, cpu) for task in tasks])
        group.start({n: prepare(member) for n, member in enumerate(group.members)})
        strategy = graph_strategies(dict(enumerate(group.members)))[number]
        requests = group.first_requests(strategy)
        for step in range(4):
            if step == 2:
                del requests[2]
            requests = group.next_requests(strategy.step(requests), strategy)
        for member, expected in zip(group.members, alone, strict=True):
            weights, expected_weights = (
                member.engine.module.state_dict(),
                expected.engine.module.state_dict(),
            )
            torch.testing.assert_close(weights, expected_weights, rtol=0, atol=0)


def test_a_member_that_draws_draws_what_it_would_alone(tmp_path: Path) -> None:
    """Dropout takes its numbers from torch's generator, which members of a process share."""
    cpu = torch.device("cpu")
    tasks = make_tasks(Shape("tiny", 4, 16, 16, 64, "smoke"), tmp_path, members=2, precision="fp32")

    def with_dropout(number: int) -> Member:
        member = make_member(tasks[number], cpu)
        member.engine.module.get_submodule("flatten").register_forward_hook(
            lambda layer, inputs, outputs: F.dropout(outputs, 0.5)
        )
        return member

    group = MemberGroup([with_dropout(0), with_dropout(1)])
    group.start({n: prepare(member) for n, member in enumerate(group.members)})
    strategy = choose(dict(enumerate(group.members))).strategy
    losses = strategy.step(group.first_requests(strategy))
    for number in range(2):
        member = with_dropout(number)
        request = next(training_steps(member, prepare(member)))
        assert torch.equal(eager_step(member, request), losses[number])


def test_steps_under_preserve_state_change_nothing() -> None:
    class Engine:
        module = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3))

    class Alone:
        engine = Engine
        optimizer = LAMB(
            Engine.module.parameters(),
            {"lr": 0.1, "betas": (0.9, 0.999), "eps": 1e-6, "weight_decay": 0.1},
        )

    def step() -> None:
        Alone.optimizer.zero_grad()
        Engine.module(torch.randn(4, 3)).square().sum().backward()
        Alone.optimizer.step()

    with preserve_state([Alone]):  # type: ignore[list-item]
        step()
    assert "steps" not in Alone.optimizer.param_groups[0]
    assert all(
        not value.any() for state in Alone.optimizer.state.values() for value in state.values()
    )
    step()
    before = copy.deepcopy((Engine.module.state_dict(), Alone.optimizer.state_dict()))
    places = [parameter.data_ptr() for parameter in Engine.module.parameters()]
    with preserve_state([Alone]):  # type: ignore[list-item]
        step()
    after = (Engine.module.state_dict(), Alone.optimizer.state_dict())
    assert places == [parameter.data_ptr() for parameter in Engine.module.parameters()]
    torch.testing.assert_close(after, before, rtol=0, atol=0)
