"""`data check` of climate frames in a packed store: the same physics as for years."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ai500.data.climate.schema import CHANNELS
from ai500.data.generated import generate
from ai500.data.pack import pack
from ai500.data.packed_store import PackedStore
from ai500.data.readers.open_source import Options
from ai500.workloads.climate.segmented import SOURCES
from tests.support.climate_files import frames_of

PSL, T200 = CHANNELS.index("PSL"), CHANNELS.index("T200")


def packed(folder: Path, *, frames: Any, limits: tuple[float, float] = (0, 2)) -> Path:
    """Pack seven frames for training and others for validation, with a mask for each."""
    source, out = folder / "frames.npz", folder / "store"
    held = frames_of(2)
    arrays = {"inputs_images": frames, "targets_masks": np.zeros((7, 12, 20), np.uint8)}
    arrays |= {"validation_inputs_images": held}
    arrays |= {"validation_targets_masks": np.zeros((7, 12, 20), np.uint8)}
    np.savez(source, **arrays)
    pack(source, out, options=Options(limits={"masks": limits}), workers=1)
    return out


def test_possible_frames(tmp_path: Path) -> None:
    assert PackedStore.check(packed(tmp_path, frames=frames_of(1))).problems == ()


def test_generated_frames_are_possible(tmp_path: Path) -> None:
    source = SOURCES["smoke"]
    recipe = replace(source.recipe, train=6, validation=3)
    splits = {"train": 6, "validation": 3}
    generate(tmp_path / "s", replace(source, recipe=recipe), name="s", splits=splits, workers=1)
    assert PackedStore.check(tmp_path / "s").problems == ()


def filled(frames: Any, value: float) -> None:
    frames[4, PSL, 2, 3:5] = value


FAULTS: dict[str, tuple[Callable[[Any], object], str]] = {
    "fill value": (
        lambda f: filled(f, 9.96921e36),
        "train: frame 4: PSL: 2 values are 9.96921e+36, a fill value",
    ),
    "-9999": (
        lambda f: filled(f, -9999), "train: frame 4: PSL: 2 values are -9999, a fill value"
    ),
    "constant": (lambda f: f[:, T200].fill(220), "train: frame 0: T200: constant (220) (and in 6"),
    "other unit": (
        lambda f: np.subtract(f[:, T200], 273.15, out=f[:, T200]), "; they look like °C"
    ),
    "other order": (
        lambda f: np.copyto(f, np.roll(f, 1, axis=1)), "train: PRECT: values from"
    ),
    "leak": (
        lambda f: np.copyto(f[5], frames_of(2)[1]),
        "validation: frame 1: is the same as frame 5 of train",
    ),
}  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
def test_what_is_impossible_is_named(fault: str, tmp_path: Path) -> None:
    spoil, expected = FAULTS[fault]
    frames = frames_of(1)
    spoil(frames)
    problems = PackedStore.check(packed(tmp_path, frames=frames)).problems
    assert any(expected in str(problem) for problem in problems), problems


def test_other_stores_of_sixteen_channels_have_no_physics(tmp_path: Path) -> None:
    frames = frames_of(1)
    filled(frames, -9999)
    assert PackedStore.check(packed(tmp_path, frames=frames, limits=(0, 3))).problems == ()
