"""Limits of fields, and options that a source can't use."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ai500.core.errors import DataError
from ai500.data.pack import pack
from ai500.data.readers.open_source import Options
from ai500.data.store import Store
from ai500.workloads.cosmology import CLASSES
from tests.support.commands import Start

SMALL = replace(CLASSES["smoke"], train_samples=3, validation_samples=1)
"""The fields of cosmology's class, with as many samples as the tests have."""


@pytest.fixture
def volumes(tmp_path: Path) -> Path:
    """Volumes of cosmology's smallest class, of four samples."""
    parameters = np.linspace(-1, 1, 16, dtype=np.float32).reshape(4, 4)
    shape = (4, *SMALL.fields[0].shape)
    np.savez(tmp_path / "volumes.npz", inputs_volumes=np.zeros(shape, np.int16),
             targets_parameters=parameters)  # fmt: skip
    return tmp_path / "volumes.npz"


def packed(source: Path | str, out: Path, **options: Any) -> Store:
    return pack(source, out, options=Options(**options), workers=1).store


def test_a_class_with_limits_takes_a_store_that_has_them(volumes: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError) as caught:
        packed(volumes, tmp_path / "without").require_fit(SMALL)
    assert caught.value.key == "parameters.limits"
    assert "--limits parameters=-1:1" in str(caught.value.remedy)
    limited = packed(volumes, tmp_path / "store", limits={"parameters": (-1, 1)})
    (parameters,) = (field for field in limited.fields if field.name == "parameters")
    assert parameters.limits == (-1.0, 1.0)
    limited.require_fit(SMALL)


def test_a_value_outside_of_the_limits_is_refused(volumes: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError) as caught:
        packed(volumes, tmp_path / "store", limits={"parameters": (-1, 0.5)})
    assert "parameters" in str(caught.value)


def test_a_store_with_other_limits_is_another_store(volumes: Path, tmp_path: Path) -> None:
    packed(volumes, tmp_path / "store", limits={"parameters": (-1, 1)})
    with pytest.raises(DataError):
        packed(volumes, tmp_path / "store", limits={"parameters": (-2, 2)})


@pytest.mark.parametrize(
    ("options", "key"),
    [
        ({"limits": {"parameter": (0, 1)}}, "--limits"),
        ({"ragged": frozenset({"volume"})}, "--ragged"),
        ({"validation_list": Path("val.txt")}, "--validation-list"),
        ({"validation_fraction": 1.5}, "--validation"),
    ],
)
def test_an_option_without_effect_is_refused(
    options: dict[str, Any], key: str, volumes: Path, tmp_path: Path
) -> None:
    with pytest.raises(DataError) as caught:
        packed(volumes, tmp_path / "store", **options)
    assert caught.value.key == key


@pytest.mark.parametrize("text", ["parameters", "parameters=1", "parameters=1:-1", "p=a:b"])
def test_limits_are_two_numbers_in_order(text: str, volumes: Path, start: Start) -> None:
    command = start("data", "pack", volumes, "--out", "store", "--limits", text)
    assert command.wait() == 2
    assert "FIELD=LEAST:LARGEST" in command.err


def test_a_source_without_samples_says_how_many_there_are(tmp_path: Path) -> None:
    np.savez(tmp_path / "none.npz", inputs=np.ones((0, 4)), targets=np.ones(0))
    with pytest.raises(DataError) as caught:
        packed(tmp_path / "none.npz", tmp_path / "store")
    assert caught.value.value == 0


def test_a_sample_without_a_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "source_with_gaps.py").write_text(
        "def samples():\n"
        "    for number in range(200):\n"
        "        yield {'inputs': 1.0, 'targets': 2.0} if number != 150 else {'inputs': 1.0}\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(DataError) as caught:
        packed("source_with_gaps:samples", tmp_path / "store")
    assert (caught.value.key, caught.value.value) == ("targets", 150)
