"""Checkpoints of frameworks other than PyTorch: restored as written, or the one before is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ai500.core.errors import DataError
from ai500.frameworks import array_checkpoint
from ai500.records import checkpoint_file
from ai500.records.checkpoint_file import Damaged, Owner, previous
from ai500.records.run_folder import MemberFolder
from ai500.train.position import Position

OWNER: Owner = {"trial": 1, "member": 0, "seed": 5, "framework": "jax"}
EPOCHS = 3


class Weights:
    """A backend as far as checkpoints need it, trained by plain NumPy."""

    def __init__(self, *, first: int = 0) -> None:
        self.arrays = {"w": np.arange(3.0), "momentum.w": np.zeros(3)}
        self.first = first
        """Object that rank 0 broadcasts."""

    @property
    def backend(self) -> Weights:
        return self

    def train(self, epoch: int) -> None:
        momentum = 0.9 * self.arrays["momentum.w"] + np.sin(self.arrays["w"] + epoch)
        self.arrays = {"w": self.arrays["w"] - 0.1 * momentum, "momentum.w": momentum}

    def state(self) -> dict[str, Any]:
        return self.arrays

    def load_state(self, state: dict[str, Any]) -> None:
        self.arrays = state

    def broadcast(self, value: int) -> int:
        return self.first


@pytest.fixture
def folder(tmp_path: Path) -> MemberFolder:
    return MemberFolder(tmp_path)


def trained(folder: MemberFolder, *, epochs: int, owner: Owner = OWNER) -> Weights:
    """Train from the start, with a checkpoint after each epoch."""
    weights = Weights()
    writer = array_checkpoint.ArrayWriter(owner, writes=True)
    for epoch in range(epochs):
        weights.train(epoch)
        writer.save(folder.array_checkpoint, weights, Position(seed=5, epoch=epoch + 1))
    writer.wait()
    return weights


def restore(folder: MemberFolder, weights: Any, **changes: Any) -> Any:
    """Return the position and the damaged files' names."""
    damaged: list[Damaged] = []
    settings = {"owner": OWNER, "rank": 0, "world_size": 1, "on_damaged": damaged.append} | changes
    position = array_checkpoint.restore(folder.array_checkpoint, weights, **settings)
    return position, [each.path.name for each in damaged]


def resumed(folder: MemberFolder) -> tuple[Weights, int, list[str]]:
    """Train the remaining epochs; return also the first of them and the damaged files."""
    weights = Weights()
    position, damaged = restore(folder, weights)
    first = 0 if position is None else position.epoch
    for epoch in range(first, EPOCHS):
        weights.train(epoch)
    return weights, first, damaged


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) * 3 // 4] ^= 1
    path.write_bytes(data)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-7])


def test_the_last_generation_is_restored_as_written(folder: MemberFolder) -> None:
    weights = trained(folder, epochs=2)
    other = Weights()
    position, damaged = restore(folder, other)
    assert (position, damaged) == (Position(seed=5, epoch=2), [])
    for name, array in weights.arrays.items():
        assert np.array_equal(other.arrays[name], array)


@pytest.mark.parametrize("damage", [flip, cut, lambda path: path.write_bytes(b"")])
@pytest.mark.parametrize("generations", [0, 1, 2])
def test_a_damaged_checkpoint_ends_with_the_same_weights(
    folder: MemberFolder, damage: Any, generations: int
) -> None:
    trained(folder, epochs=2)
    files = checkpoint_file.generations(folder.array_checkpoint)[:generations]
    for file in files:
        damage(file)
    weights, first, damaged = resumed(folder)
    assert first == 2 - generations
    assert damaged == [file.name for file in files]
    assert not any(file.exists() for file in files)
    undisturbed = Weights()
    for epoch in range(EPOCHS):
        undisturbed.train(epoch)
    digest = array_checkpoint.weights_sha256
    assert digest(weights.arrays) == digest(undisturbed.arrays)


@pytest.mark.parametrize("other", [{"member": 1}, {"seed": 6}, {"trial": 2}])
def test_another_members_checkpoint_is_not_restored(
    folder: MemberFolder, other: dict[str, int]
) -> None:
    trained(folder, epochs=1, owner={**OWNER, **other})
    assert restore(folder, Weights()) == (None, ["checkpoint.npz"])


def test_a_checkpoint_whose_events_are_lost_is_not_restored(folder: MemberFolder) -> None:
    trained(folder, epochs=2)
    asked = []

    def accepts(epochs: int) -> bool:
        asked.append(epochs)
        return False

    assert restore(folder, Weights(), accepts=accepts) == (None, [])
    assert asked == [2]


@pytest.mark.parametrize(("first", "epoch"), [(0, None), (1, 2), (2, 1)])
def test_every_rank_restores_the_generation_of_rank_0(
    folder: MemberFolder, first: int, epoch: int | None
) -> None:
    trained(folder, epochs=2)
    position, damaged = restore(folder, Weights(first=first), rank=1, world_size=2)
    assert (position and position.epoch, damaged) == (epoch, [])


def test_a_sealed_file_that_holds_no_arrays_is_an_error(folder: MemberFolder) -> None:
    path = folder.array_checkpoint
    checkpoint_file.write(path, b"no archive", owner=OWNER, epoch=1)
    with pytest.raises(DataError) as caught:
        restore(folder, Weights())
    assert caught.value.path == path


def test_a_checkpoint_of_another_framework_is_refused(folder: MemberFolder) -> None:
    trained(folder, epochs=2)
    array_checkpoint.check_framework(folder, framework="jax")
    for damage in (lambda _: None, Path.unlink):  # the last, then the one before alone
        damage(folder.array_checkpoint)
        for framework in ("tensorflow", "pytorch"):
            with pytest.raises(DataError) as caught:
                array_checkpoint.check_framework(folder, framework=framework)
            assert (caught.value.key, caught.value.value) == ("framework.kind", "jax")
    previous(folder.array_checkpoint).write_bytes(b"torn")  # the worker reports it
    array_checkpoint.check_framework(folder, framework="jax")
    folder.checkpoint.write_bytes(b"torch's")
    with pytest.raises(DataError) as caught:
        array_checkpoint.check_framework(folder, framework="jax")
    assert caught.value.value == "pytorch"
