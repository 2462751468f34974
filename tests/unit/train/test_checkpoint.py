"""Checkpoints are written beside the training: what is in them is of the moment they were asked."""

from __future__ import annotations

import dataclasses
import io
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from ai500.core.errors import DataError, EnvironmentLacksError
from ai500.parallel.engines import Engine, Setting
from ai500.parallel.engines.data import DataParallel
from ai500.parallel.engines.mesh import make_mesh
from ai500.records import Parallelism, checkpoint_file
from ai500.records.checkpoint_file import Damaged
from ai500.train.checkpoint import WRITER_THREAD, Position, Writer, read, restore
from ai500.train.precision.numerics import Numerics

OWNER = {"trial": 1, "member": 0, "seed": 1}
CPU = torch.device("cpu")
NUMERICS = Numerics("fp32", "IEEE FP32", CPU)


@pytest.fixture
def engine() -> Engine:
    alone = Parallelism("data")
    return DataParallel(
        Setting(
            module=nn.Linear(512, 512), loss=F.cross_entropy, parallel=alone,
            mesh=make_mesh(alone, device=CPU), plan=None, input_shape=(8, 512),
            device=CPU, numerics=NUMERICS, collective=None,
        )
    )  # fmt: skip


def trained(engine: Engine, optimizer: torch.optim.Optimizer) -> SimpleNamespace:
    return SimpleNamespace(engine=engine, optimizer=optimizer, numerics=NUMERICS)


def step(engine: Engine, optimizer: torch.optim.Optimizer) -> None:
    optimizer.zero_grad()
    engine.forward_backward(torch.randn(8, 512), torch.randint(0, 512, (8,)))
    optimizer.step()


def test_training_goes_on_while_a_checkpoint_is_written(engine: Engine, tmp_path: Path) -> None:
    optimizer = torch.optim.SGD(engine.module.parameters(), lr=0.1, momentum=0.9)
    writer, path, disk_is_free = Writer(OWNER), tmp_path / "checkpoint.pt", threading.Event()
    step(engine, optimizer)
    then = {name: value.clone() for name, value in engine.module.state_dict().items()}
    momenta = [
        optimizer.state[parameter]["momentum_buffer"].clone()
        for parameter in parameters_of(optimizer)
    ]
    WRITER_THREAD.submit(disk_is_free.wait)
    writer.save(path, trained(engine, optimizer), Position(seed=1, step=8))
    step(engine, optimizer)
    assert not path.exists()
    disk_is_free.set()
    writer.wait()
    state = read(path, owner=OWNER)
    assert state["position"]["step"] == 8
    torch.testing.assert_close(state["model"], then, rtol=0, atol=0)
    assert not torch.equal(engine.module.state_dict()["weight"], then["weight"])

    damaged: list[Damaged] = []
    restored = restore(path, trained(engine, optimizer), owner=OWNER, on_damaged=damaged.append)
    assert restored == Position(seed=1, step=8)
    assert damaged == []
    again = [
        optimizer.state[parameter]["momentum_buffer"] for parameter in parameters_of(optimizer)
    ]
    torch.testing.assert_close(again, momenta, rtol=0, atol=0)


def parameters_of(optimizer: torch.optim.Optimizer) -> list[nn.Parameter]:
    return list(optimizer.param_groups[0]["params"])


def test_what_the_disk_refuses_is_heard_of_at_the_next_checkpoint(
    engine: Engine, tmp_path: Path
) -> None:
    optimizer = torch.optim.SGD(engine.module.parameters(), lr=0.1)
    writer, path = Writer(OWNER), tmp_path / "gone" / "checkpoint.pt"

    def save() -> None:
        writer.save(path, trained(engine, optimizer), Position(seed=1))

    save()
    with pytest.raises(EnvironmentLacksError) as raised:
        save()
    assert raised.value.path == path
    path.parent.mkdir()
    save()
    writer.wait()
    assert path.exists()
    writer.wait()  # nothing is left to wait for


def saved(engine: Engine, path: Path, *, epoch: int) -> torch.optim.Optimizer:
    optimizer = torch.optim.SGD(engine.module.parameters(), lr=0.1, momentum=0.9)
    step(engine, optimizer)
    writer = Writer(OWNER)
    writer.save(path, trained(engine, optimizer), Position(seed=1, epoch=epoch))
    writer.wait()
    return optimizer


def test_a_checkpoint_of_another_seed_changes_nothing(engine: Engine, tmp_path: Path) -> None:
    path, damaged = tmp_path / "checkpoint.pt", list[Damaged]()
    optimizer = saved(engine, path, epoch=1)
    step(engine, optimizer)
    then = {name: value.clone() for name, value in engine.module.state_dict().items()}
    foreign = dict(OWNER) | {"seed": int(OWNER["seed"]) + 1}
    restored = restore(path, trained(engine, optimizer), owner=foreign, on_damaged=damaged.append)
    assert restored is None
    assert [each.path for each in damaged] == [path]
    assert not path.exists()
    torch.testing.assert_close(engine.module.state_dict(), then, rtol=0, atol=0)


def test_a_caller_decides_after_which_epoch_to_continue(engine: Engine, tmp_path: Path) -> None:
    path = tmp_path / "checkpoint.pt"
    optimizer = saved(engine, path, epoch=3)
    asked: list[int] = []
    for answer in (False, True):

        def accepts(epoch: int, answer: bool = answer) -> bool:
            asked.append(epoch)
            return answer

        restored = restore(
            path, trained(engine, optimizer), owner=OWNER, on_damaged=lambda _: None,
            accepts=accepts,
        )  # fmt: skip
        assert (restored is not None) == answer
    assert asked == [3, 3]


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize(
    ("states", "own"), [(["common"], ["common", "common"]), (["a", "b"], ["a", "b"])]
)
def test_each_rank_continues_from_its_own_state(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    rank: int, states: list[str], own: list[str],
) -> None:  # fmt: skip
    """Rank 0 chooses the file; a state that all ranks have in common is written once."""
    path, loaded = tmp_path / "checkpoint.pt", list[object]()
    optimizer = saved(engine, path, epoch=1)
    state = read(path, owner=OWNER)
    state["ranks"] = [state["ranks"][0] | {"engine": name} for name in states]
    buffer = io.BytesIO()
    torch.save(state, buffer)
    checkpoint_file.write(path, buffer.getvalue(), owner=OWNER, epoch=1)

    def broadcast(objects: list[object], src: int) -> None:
        assert src == 0
        assert objects == ([path] if rank == 0 else [None])
        objects[:] = [path]

    monkeypatch.setattr(torch.distributed, "broadcast_object_list", broadcast)
    monkeypatch.setattr(engine, "mesh", dataclasses.replace(engine.mesh, rank=rank, size=2))
    monkeypatch.setattr(engine, "load_state_dict", loaded.append)
    assert restore(path, trained(engine, optimizer), owner=OWNER, on_damaged=lambda _: None)
    assert loaded == [own[rank]]


def test_only_rank_0_writes(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "mesh", dataclasses.replace(engine.mesh, rank=1))
    saved(engine, tmp_path / "checkpoint.pt", epoch=1)
    assert list(tmp_path.iterdir()) == []


def test_the_states_of_ranks_are_gathered_where_they_differ(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gather(own: object, gathered: list[object], dst: int) -> None:
        gathered[:] = [own, own]

    monkeypatch.setattr(torch.distributed, "gather_object", gather)
    monkeypatch.setattr(torch.distributed, "get_rank", lambda: 0)
    monkeypatch.setattr(engine, "mesh", dataclasses.replace(engine.mesh, size=2))
    path = tmp_path / "checkpoint.pt"
    for state, count in (({}, 1), ({"lost": {}}, 1), ({"lost": {"buffer": 1}}, 2)):
        monkeypatch.setattr(engine, "state_dict", lambda state=state: state)
        saved(engine, path, epoch=1)
        assert len(read(path, owner=OWNER)["ranks"]) == count


def test_files_of_members_in_one_process_are_written_one_after_another() -> None:
    writes, most = 0, 0

    def write() -> None:
        nonlocal writes, most
        writes += 1
        most = max(most, writes)
        time.sleep(0.05)
        writes -= 1

    for write_is_done in [WRITER_THREAD.submit(write) for _ in range(3)]:
        write_is_done.result()
    assert most == 1


@pytest.mark.parametrize("payload", [[1, 2], torch.zeros(3), None])
def test_a_sealed_file_of_something_else_is_no_checkpoint(payload: object, tmp_path: Path) -> None:
    buffer = io.BytesIO()
    torch.save(payload, buffer)
    path = tmp_path / "checkpoint.pt"
    checkpoint_file.write(path, buffer.getvalue(), owner=OWNER, epoch=1)
    with pytest.raises(DataError) as caught:
        read(path, owner=OWNER)
    assert caught.value.path == path
