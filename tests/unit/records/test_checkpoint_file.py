"""Sealed checkpoints: every kind of damage is found, and the generation before it is used."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from ai500.core.errors import DataError
from ai500.records import checkpoint_file

OWNER = {"trial": 1, "member": 0, "seed": 7}
OTHER = {"trial": 1, "member": 1, "seed": 7}
OLD, NEW = (np.random.default_rng(seed).bytes(100_000) for seed in (1, 2))

Damage = Callable[[Path], None]


def flipped(fraction: float) -> Damage:
    """Flip one bit of the byte at this fraction of the file."""

    def damage(path: Path) -> None:
        data = bytearray(path.read_bytes())
        data[int(fraction * len(data))] ^= 1
        path.write_bytes(data)

    return damage


def zeroed(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[40_960:45_056] = bytes(4096)
    path.write_bytes(data)


def truncated(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def lengthened(path: Path) -> None:
    path.write_bytes(path.read_bytes() + b"\0")


def empty(path: Path) -> None:
    path.write_bytes(b"")


def of_another_member(path: Path) -> None:
    other = path.with_name("other.pt")
    checkpoint_file.write(other, NEW, owner=OTHER, epoch=1)
    other.replace(path)


def a_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


DAMAGES: dict[str, Damage] = {
    "its first line": flipped(0.0),
    "its seal": flipped(0.0006),
    "30 %": flipped(0.3),
    "50 %": flipped(0.5),
    "80 %": flipped(0.8),
    "its last byte": flipped(0.999_999),
    "a zeroed block": zeroed,
    "truncated": truncated,
    "lengthened": lengthened,
    "empty": empty,
    "another member's": of_another_member,
    "a folder": a_folder,
}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Two generations of a checkpoint."""
    path = tmp_path / "checkpoint.pt"
    for payload in (OLD, NEW):
        checkpoint_file.write(path, payload, owner=OWNER, epoch=1)
    return path


def test_the_newest_generation_is_used(path: Path) -> None:
    sealed, damaged = checkpoint_file.newest(path, owner=OWNER)
    assert sealed is not None
    assert (sealed.path, sealed.payload, damaged) == (path, NEW, [])


@pytest.mark.parametrize(("length", "is_read"), [(1 << 16, True), ((1 << 16) + 1, False)])
def test_a_seal_of_any_length_is_not_read(path: Path, length: int, is_read: bool) -> None:
    magic, seal, payload = path.read_bytes().split(b"\n", 2)
    path.write_bytes(b"\n".join((magic, seal.ljust(length - 1), payload)))
    sealed, _ = checkpoint_file.newest(path, owner=OWNER)
    assert sealed is not None
    assert (sealed.path == path) == is_read


@pytest.mark.parametrize("name", DAMAGES)
def test_a_damaged_one_falls_back_to_the_one_before(path: Path, name: str) -> None:
    DAMAGES[name](path)
    with pytest.raises(DataError) as caught:
        checkpoint_file.read(path, owner=OWNER)
    assert caught.value.path == path
    sealed, damaged = checkpoint_file.newest(path, owner=OWNER)
    assert sealed is not None
    assert (sealed.path, sealed.payload) == (checkpoint_file.previous(path), OLD)
    assert [each.path for each in damaged] == [path]


@pytest.mark.parametrize("key", OWNER)
def test_a_checkpoint_of_another_owner_is_never_used(path: Path, key: str) -> None:
    """The trial, the member or the seed differs by one; all else, the payload too, is the same."""
    foreign = OWNER | {key: OWNER[key] + 1}
    sealed, damaged = checkpoint_file.newest(path, owner=foreign)
    assert sealed is None
    assert len(damaged) == 2
    assert f"{key} {OWNER[key]}" in damaged[0].reason
    assert checkpoint_file.stated_owner(path) == OWNER


def test_each_generation_has_its_own_epoch(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint.pt"
    for epoch in (3, 4, 5):
        checkpoint_file.write(path, NEW, owner=OWNER, epoch=epoch)
    assert checkpoint_file.read(path, owner=OWNER).epoch == 5
    assert checkpoint_file.read(checkpoint_file.previous(path), owner=OWNER).epoch == 4


@pytest.mark.parametrize("change", [lambda data: data[:-1], lambda data: data + b"\0"])
def test_one_byte_less_or_more_is_noticed(path: Path, change: Callable[[bytes], bytes]) -> None:
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises(DataError) as caught:
        checkpoint_file.read(path, owner=OWNER)
    assert f"of {len(NEW)}" in str(caught.value.value)


def test_two_damaged_ones_leave_none(path: Path) -> None:
    for generation in (path, checkpoint_file.previous(path)):
        flipped(0.5)(generation)
    sealed, damaged = checkpoint_file.newest(path, owner=OWNER)
    assert sealed is None
    assert [each.path for each in damaged] == [path, checkpoint_file.previous(path)]


def test_a_crash_between_the_two_renames_loses_nothing(path: Path) -> None:
    path.replace(checkpoint_file.previous(path))
    sealed, damaged = checkpoint_file.newest(path, owner=OWNER)
    assert sealed is not None
    assert (sealed.payload, damaged) == (NEW, [])


def test_a_discarded_one_does_not_displace_the_good_one(path: Path) -> None:
    flipped(0.5)(path)
    _, damaged = checkpoint_file.newest(path, owner=OWNER)
    checkpoint_file.discard(damaged)
    checkpoint_file.write(path, NEW, owner=OWNER, epoch=1)
    assert checkpoint_file.read(path, owner=OWNER).payload == NEW
    assert checkpoint_file.read(checkpoint_file.previous(path), owner=OWNER).payload == OLD


def test_removal_takes_both_generations(path: Path) -> None:
    checkpoint_file.remove(path)
    assert list(path.parent.iterdir()) == []
    checkpoint_file.remove(path)
