"""The configuration file: validation, overrides, template, round trip."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ai500.config import Config, documented_keys, load, parse_assignment
from ai500.config_toml import template, to_toml
from ai500.core.errors import ConfigError


def written(folder: Path, text: str) -> Path:
    path = folder / "ai500.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_without_a_file_the_defaults_apply() -> None:
    assert load() == Config()


def test_overrides_win_over_the_file(tmp_path: Path) -> None:
    path = written(tmp_path, "[ensemble]\nsize = 3\nsampler = 'poisson'\n")
    found = load(path, overrides={"ensemble.size": 8})
    assert (found.ensemble.size, found.ensemble.sampler) == (8, "poisson")


def test_a_mistake_is_told_of_where_it_is(tmp_path: Path) -> None:
    path = written(tmp_path, "[ensemble]\nsize = 0\n")
    with pytest.raises(ConfigError, match=r"ai500\.toml: ensemble\.size"):
        load(path, overrides={"train.epochs": 3})
    with pytest.raises(ConfigError, match=r"the configuration: train\.epochs"):
        load(written(tmp_path, ""), overrides={"train.epochs": "three"})


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[ensemble]\nsize = 'four'", "ensemble.size: expected a whole number, found 'four'"),
        ("[ensemble]\nszie = 4", "ensemble.szie: unknown key; did you mean 'size'?"),
        ("epochs = 4", "epochs: unknown key; did you mean 'train.epochs'?"),
        ("[train]\nsize = 4", "train.size: unknown key; did you mean 'ensemble.size'?"),
        ("[ensmble]\nsize = 4", "ensmble: unknown key; did you mean 'ensemble'?"),
        ("[ensemble]\nsize = 0", "ensemble.size: 0 is too small; at least 1"),
        ("workload = 'image_clasification'", "did you mean 'image_classification'?"),
        ("problem_class = 'smok'", "did you mean 'smoke'?"),
        ("[ensemble]\nsampler = 'poison'", "did you mean 'poisson'?"),
        ("[train]\nprecision = 'fp9'", "train.precision = 'fp9': no such precision; did you mean"),
        ("[train]\noptimizer = 'lambda'", "train.optimizer = 'lambda': no such optimizer"),
        ("[train]\nprecision = 'bf16'", "did you mean 'mixed-bf16'?"),
        ("[train]\nschedule = 'polynom'", "did you mean 'polynomial'?"),
        ("[train]\naccumulation = 0", "train.accumulation: 0 is too small; at least 1"),
        ("[train]\ndecay_epochs = ['a']", "train.decay_epochs[0]: expected a whole number"),
        ("[train]\nbetas = [0.9]", "train.betas: expected 2 values, found 1"),
        ("[train]\nbase_learning_rate = -1", "it must be more than 0"),
        ("ensemble = 3", "ensemble: expected a table, found 3"),
        ("this is not toml", "not valid TOML"),
    ],
)
def test_a_mistake_is_named_with_its_fix(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(ConfigError) as error:
        load(written(tmp_path, text))
    assert says in str(error.value)
    assert error.value.exit_code == 2


def test_a_mistake_beside_the_file_is_not_said_to_be_in_it(tmp_path: Path) -> None:
    file = tmp_path / "ai500.toml"
    file.write_text("[ensemble]\nsize = 4\n")
    with pytest.raises(ConfigError, match=r"^the configuration: ensemble\.size: 0 is too small"):
        load(file, overrides={"ensemble.size": 0})


def test_a_missing_file_says_how_to_make_one(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="ai500 init"):
        load(tmp_path / "none.toml")


def test_a_file_that_is_not_text(tmp_path: Path) -> None:
    path = tmp_path / "ai500.toml"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match="no text in UTF-8"):
        load(path)


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
def test_what_is_no_assignment(text: str) -> None:
    with pytest.raises(ConfigError, match="expected key=value"):
        parse_assignment(text)


def test_paths_in_a_file_are_relative_to_it_and_others_to_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    path = written(tmp_path, "[data]\npath = 'store'\n")
    assert load(path).data.path == str(tmp_path / "store")
    found = load(path, overrides={"data.path": "mine", "data.scratch": "x"})
    assert found.data.path == str(tmp_path / "here" / "mine")
    assert found.data.scratch == str(tmp_path / "here" / "x")


def test_an_assignment_into_a_value() -> None:
    with pytest.raises(ConfigError, match="'workload' is not a section"):
        load(overrides={"workload": "image_classification", "workload.size": 3})


@given(path=st.text(), seed=st.integers(0, 2**62), rate=st.floats(1e-9, 1e9))
def test_the_resolved_file_reads_back_the_same(path: str, seed: int, rate: float) -> None:
    config = load(
        overrides={"data.scratch": path, "run.seed": seed, "train.base_learning_rate": rate}
    )
    again = load(overrides=tomllib.loads(to_toml(config)))
    assert again == config


def test_a_number_beyond_all_measure_is_told() -> None:
    with pytest.raises(ConfigError, match=r"train.epochs: this number is too large"):
        load(overrides={"train.epochs": 10**320})
