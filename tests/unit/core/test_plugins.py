"""Plugins: built-ins load by name, and errors carry key and value."""

from __future__ import annotations

import sys
import typing
from importlib import import_module
from pathlib import Path

import pytest

from ai500.core import plugins
from ai500.core.errors import ConfigError, EnvironmentLacksError


@pytest.mark.parametrize("kind", typing.get_args(plugins.Kind))
def test_every_built_in_exists(kind: plugins.Kind) -> None:
    for name, target in plugins.BUILT_IN[kind].items():
        module, _, attribute = target.partition(":")
        assert hasattr(import_module(module), attribute), name


def test_an_unknown_name_is_an_error_with_its_key() -> None:
    with pytest.raises(ConfigError) as error:
        plugins.check("sampler", "poison", key="ensemble.sampler")
    assert (error.value.key, error.value.value) == ("ensemble.sampler", "poison")
    assert error.value.remedy == "did you mean 'poisson'?"


def test_two_plugins_of_one_name_are_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    information = tmp_path / "other-1.0.dist-info"
    information.mkdir()
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: other\nVersion: 1.0\n")
    (information / "entry_points.txt").write_text(
        "[ai500.meter]\nhost = other:open_meter\n[ai500.sampler]\nbroken = other:missing\n"
    )
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    plugins._table.cache_clear()
    try:
        with pytest.raises(EnvironmentLacksError) as twice:
            plugins.names("meter")
        assert (twice.value.key, twice.value.value) == ("ai500.meter", "host")
        with pytest.raises(EnvironmentLacksError) as broken:
            plugins.load("sampler", "broken", key="ensemble.sampler")
        assert (broken.value.key, broken.value.value) == ("ensemble.sampler", "broken")
    finally:
        plugins._table.cache_clear()
