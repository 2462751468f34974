"""The configuration file: validation, overrides, template, round trip."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ai500.config import Config, documented_keys, load, parse_assignment, template, to_toml
from ai500.core.errors import ConfigError


def written(folder: Path, text: str) -> Path:
    path = folder / "ai500.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_without_a_file_the_defaults_apply() -> None:
    assert load() == Config()


def test_overrides_win_over_the_file(tmp_path: Path) -> None:
    path = written(tmp_path, "[ensemble]\nsize = 3\nsampler = 'poisson'\n")
    config = load(path, overrides={"ensemble.size": 8})
    assert (config.ensemble.size, config.ensemble.sampler) == (8, "poisson")


def test_an_error_names_the_file_only_if_the_file_has_the_key(tmp_path: Path) -> None:
    path = written(tmp_path, "[ensemble]\nsize = 0\n")
    with pytest.raises(ConfigError) as in_file:
        load(path, overrides={"train.epochs": 3})
    assert (in_file.value.key, in_file.value.path) == ("ensemble.size", path)
    path.write_text("[ensemble]\nsize = 4\n", encoding="utf-8")
    with pytest.raises(ConfigError) as in_override:
        load(path, overrides={"ensemble.size": 0})
    assert (in_override.value.key, in_override.value.path) == ("ensemble.size", None)


@pytest.mark.parametrize(
    ("text", "key", "value"),
    [
        ("[ensemble]\nsize = 'four'", "ensemble.size", "four"),
        ("[ensemble]\nsize = 0", "ensemble.size", 0),
        ("[train]\naccumulation = 0", "train.accumulation", 0),
        ("[train]\ndecay_epochs = ['a']", "train.decay_epochs[0]", "a"),
        ("[train]\nbetas = [0.9]", "train.betas", [0.9]),
        ("[train]\nbase_learning_rate = -1", "train.base_learning_rate", -1),
        ("[train]\noptimizer = 'lambda'", "train.optimizer", "lambda"),
        ("ensemble = 3", "ensemble", 3),
        ("this is not toml", None, None),
    ],
)
def test_a_wrong_value_is_an_error_with_its_key(
    tmp_path: Path, text: str, key: str | None, value: object
) -> None:
    with pytest.raises(ConfigError) as error:
        load(written(tmp_path, text))
    assert (error.value.key, error.value.value, error.value.exit_code) == (key, value, 2)


@pytest.mark.parametrize(
    ("text", "key", "suggestion"),
    [
        ("[ensemble]\nszie = 4", "ensemble.szie", "size"),
        ("epochs = 4", "epochs", "train.epochs"),
        ("[train]\nsize = 4", "train.size", "ensemble.size"),
        ("[ensmble]\nsize = 4", "ensmble", "ensemble"),
        ("workload = 'image_clasification'", "workload", "image_classification"),
        ("problem_class = 'smok'", "problem_class", "smoke"),
        ("[ensemble]\nsampler = 'poison'", "ensemble.sampler", "poisson"),
        ("[train]\nprecision = 'fp9'", "train.precision", "fp8"),
        ("[train]\nprecision = 'bf16'", "train.precision", "mixed-bf16"),
        ("[train]\nschedule = 'polynom'", "train.schedule", "polynomial"),
    ],
)
def test_an_unknown_name_is_an_error_with_the_nearest_name(
    tmp_path: Path, text: str, key: str, suggestion: str
) -> None:
    with pytest.raises(ConfigError) as error:
        load(written(tmp_path, text))
    assert error.value.key == key
    assert repr(suggestion) in str(error.value).partition("did you mean ")[2]


@pytest.mark.parametrize("content", [None, b"\xff\xfe\x00"])
def test_a_missing_or_binary_file_is_an_error_with_a_remedy(
    tmp_path: Path, content: bytes | None
) -> None:
    path = tmp_path / "ai500.toml"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ConfigError) as error:
        load(path)
    assert error.value.path == path
    assert "ai500 init" in error.value.remedy


def test_the_template_has_every_key_and_changes_nothing(tmp_path: Path) -> None:
    text = template()
    for key, declaration, _ in documented_keys():
        assert f"\n#{key.rpartition('.')[2]} =" in text
        assert declaration.metadata["doc"]
    assert load(written(tmp_path, text)) == Config()


def test_an_uncommented_template_is_valid_toml() -> None:
    lines = [line for line in template().splitlines() if not line.startswith("# ")]
    uncommented = [line.removeprefix("#") for line in lines if not line.endswith("=")]
    assert tomllib.loads("\n".join(uncommented))["ensemble"]["sampler"] == "bootstrap"


@pytest.mark.parametrize(
    ("text", "pair"),
    [
        ("ensemble.size=4", ("ensemble.size", 4)),
        ("data.path=/a b/c", ("data.path", "/a b/c")),
        ("data.stage=false", ("data.stage", False)),
        ("train.base_learning_rate=1e-3", ("train.base_learning_rate", 1e-3)),
        ("workload='x=y'", ("workload", "x=y")),
    ],
)
def test_assignments(text: str, pair: tuple[str, object]) -> None:
    assert parse_assignment(text) == pair


@pytest.mark.parametrize("text", ["ensemble.size", "=4", ""])
def test_an_assignment_needs_a_key_and_a_value(text: str) -> None:
    with pytest.raises(ConfigError) as error:
        parse_assignment(text)
    assert error.value.value == text


def test_paths_in_a_file_are_relative_to_it_and_others_to_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    path = written(tmp_path, "[data]\npath = 'store'\n")
    assert load(path).data.path == str(tmp_path / "store")
    config = load(path, overrides={"data.path": "other", "data.scratch": "x"})
    assert config.data.path == str(tmp_path / "here" / "other")
    assert config.data.scratch == str(tmp_path / "here" / "x")
    # A program's path too, but its name is looked up on the node.
    path.write_text("[framework]\npython = '.venv-jax/bin/python'\n", encoding="utf-8")
    assert load(path).framework.python == str(tmp_path / ".venv-jax" / "bin" / "python")
    assert load(overrides={"framework.python": "python3"}).framework.python == "python3"


def test_an_assignment_into_a_value() -> None:
    with pytest.raises(ConfigError) as error:
        load(overrides={"workload": "image_classification", "workload.size": 3})
    assert (error.value.key, error.value.value) == ("workload.size", 3)


@given(path=st.text(), seed=st.integers(0, 2**62), rate=st.floats(1e-9, 1e9))
def test_the_resolved_file_reads_back_the_same(path: str, seed: int, rate: float) -> None:
    config = load(
        overrides={"data.scratch": path, "run.seed": seed, "train.base_learning_rate": rate}
    )
    again = load(overrides=tomllib.loads(to_toml(config)))
    assert again == config


def test_a_number_beyond_64_bits_is_rejected() -> None:
    with pytest.raises(ConfigError) as error:
        load(overrides={"train.epochs": 10**320})
    assert error.value.key == "train.epochs"
