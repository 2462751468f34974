"""`ai500 flops` as a person and a script use it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from ai500.cli import app
from ai500.core import plugins
from ai500.core.errors import AI500Error, ConfigError, InputError, RuleError
from ai500.frameworks.script import stated_operations
from ai500.operations.published import AIPERF_TABLE_III

pytestmark = pytest.mark.slow

TEXTS = Path(__file__).parent.parent / "operations" / "stablehlo_texts"

FACTORIES = """
import torch
from torch import nn

def small():
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(144, 10))

def reads_values():
    steps = [step.item() for step in torch.linspace(0, 1, 3)]
    return nn.Linear(len(steps), 2)

def raises():
    raise ValueError("no such width")

def raises_at_length():
    raise RuntimeError("two keys are missing:\\n\\tweight\\n\\tbias")

def raises_in_silence():
    raise ValueError

def narrow():
    return nn.Linear(4, 2)

def not_a_model():
    return 7

class Odd(nn.Module):
    def forward(self, x):
        return torch.special.bessel_j0(x)

class Branching(nn.Module):
    def forward(self, x):
        return x if x.sum() > 0 else -x

class Selecting(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(4, 2)

    def forward(self, x):
        return self.head(x[x[:, 0] > 0])

tokens = nn.Embedding(10, 4)
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "counted_models.py").write_text(FACTORIES)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "counted_models", raising=False)
    monkeypatch.setenv("COLUMNS", "80")
    return tmp_path


def flops(*arguments: str) -> Result:
    result = CliRunner().invoke(app, ["flops", *arguments])
    if isinstance(result.exception, AI500Error):
        raise result.exception
    return result


def flops_json(*arguments: str) -> dict[str, Any]:
    result = flops(*arguments, "--json")
    assert result.exit_code == 0, result.output
    data: dict[str, Any] = json.loads(result.stdout)
    return data


def test_resnet50_v1_json_is_aiperf_table_iii() -> None:
    data = flops_json("resnet50-v1")
    assert data["convention"] == "aiperf"
    assert data["parameters"] == 25_557_032
    assert data["by_kind"]["convolution"]["forward"] == 7_711_850_496
    assert data["by_kind"]["convolution"]["backward"] == 15_234_582_912
    assert data["total"] == data["forward"] + data["backward"] == 23_053_458_456
    assert set(AIPERF_TABLE_III) - {"total"} <= set(data["by_kind"])


def test_stablehlo_text_is_counted_and_states_the_operations_of_a_script(folder: Path) -> None:
    """The same figures as the torch model's, in the form that framework.operations reads."""
    text = str(TEXTS / "resnet50.mlir")
    data = flops_json(text, "--parameters", "161")
    expected = flops_json("resnet50", "--batch", "2")
    names = ("forward", "backward", "update", "parameters", "batch", "total", "unknown")
    assert {name: data[name] for name in names} == {name: expected[name] for name in names}
    (folder / "count.json").write_text(json.dumps(data))
    stated = stated_operations(str(folder / "count.json"))
    assert stated is not None
    assert stated.forward_per_sample == data["forward_per_sample"]
    assert stated.update_per_step == data["update"]
    assert "2×224×224×3" in flops(text).stdout


def test_stablehlo_text_with_uncounted_operators(folder: Path) -> None:
    loops = str(TEXTS / "loops.mlir")
    assert "stablehlo.case ×1" in " ".join(flops(loops).stdout.split())
    with pytest.raises(RuleError) as strict:
        flops(loops, "--strict")
    assert strict.value.key == "--strict"
    (folder / "count.json").write_text(flops(loops, "--json").stdout)
    with pytest.raises(ConfigError) as refused:
        stated_operations(str(folder / "count.json"))
    assert refused.value.key == "framework.operations"


@pytest.mark.parametrize(
    ("arguments", "key"),
    [
        (["{text}", "--input", "3,4"], "--input"),
        (["{text}", "--exact-backward"], "--exact-backward"),
        (["{text}", "--parameters", "99"], "parameters"),
        (["absent.mlir"], "model"),
        (["binary.mlir"], "model"),
        (["resnet50", "--parameters", "3"], "--parameters"),
    ],
)
def test_mistakes_with_stablehlo_text(arguments: list[str], key: str, folder: Path) -> None:
    (folder / "binary.mlir").write_bytes(b"ML\xefR\x0dStableHLO")
    text = str(TEXTS / "block.mlir")
    with pytest.raises(InputError) as caught:
        flops(*(argument.replace("{text}", text) for argument in arguments))
    assert caught.value.key == key


def test_workload_and_named_model_agree() -> None:
    named, workload = flops_json("resnet50"), flops_json("image_classification")
    assert named["total"] == workload["total"]


def test_a_workload_without_a_full_class_is_counted_at_its_last(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    table = plugins._table("workload")
    monkeypatch.setitem(table, "error_rate", "tests.support.lower_is_better:WORKLOAD")
    asked, known = flops_json("error_rate"), flops_json("image_classification/smoke")
    assert asked["total"] == known["total"]


@pytest.mark.parametrize("option", [[], ["--tree"], ["--compare"], ["--exact-backward"]])
def test_output_fits_80_columns_and_shows_the_total(option: list[str]) -> None:
    result = flops("resnet50-v1", *option)
    assert result.exit_code == 0, result.output
    assert max(map(len, result.stdout.splitlines())) <= 80
    assert "23,053,458,456" in result.stdout
    assert "…" not in result.stdout


def test_published_figures_stand_beside_ours() -> None:
    assert "2.10E+04*" in flops("resnet50-v1").stdout
    assert "Table III" not in flops("resnet50-v1", "--batch", "2").stdout


def test_tree_folds_at_depth() -> None:
    shallow = flops("resnet50", "--tree", "--depth", "1").stdout
    assert "modules inside" in shallow
    assert "conv1" not in shallow
    assert "conv1" in flops("resnet50", "--tree", "--depth", "4").stdout


def test_compare_has_every_convention() -> None:
    data = flops_json("counted_models:small", "--input", "3,8,8", "--compare")
    assert set(data["conventions"]) == {"v3", "aiperf", "matmul"}
    assert data["conventions"]["v3"]["by_kind"]["dense"]["forward"] == 1440
    assert data["conventions"]["matmul"]["by_kind"]["dense"]["forward"] == 2880


def test_the_scaling_ratio_of_any_model_is_v2_table_5() -> None:
    small = ("counted_models:small", "--input", "3,8,8", "--batch", "4")
    data = flops_json(*small)
    ratio = (data["total"] / 1e9) / (data["parameters"] / 1e6)
    assert data["scaling_ratio"] == pytest.approx(ratio) and ratio > 0
    assert f"scaling ratio {ratio:.2f} GFLOP per million parameters" in flops(*small).stdout


def test_every_total_names_its_convention() -> None:
    small = ("counted_models:small", "--input", "3,8,8")
    data = flops_json(*small, "--compare")["conventions"]
    printed = flops(*small, "--compare", "--convention", "v3").stdout
    for name in ("v3", "aiperf", "matmul"):
        assert f"total in {name}: {data[name]['total']:,} operations per step" in printed
    alone = flops(*small, "--convention", "v3").stdout
    assert "total in v3: " in alone
    assert "total in aiperf" not in alone


def test_stated_regions() -> None:
    selecting = ("counted_models:Selecting", "--input", "4", "--batch", "9")
    data = flops_json(*selecting, "--regions", "5", "--convention", "matmul", "--exact-backward")
    assert data["regions"] == 5
    assert data["forward"] == data["exact_backward"] == 2 * 5 * 4 * 2
    assert "5 regions" in flops(*selecting, "--regions", "5").stdout
    assert "regions" not in flops_json("counted_models:small", "--input", "3,8,8")


def test_exact_backward_equals_the_rule_for_products() -> None:
    arguments = ["counted_models:small", "--input", "3,8,8", "--convention", "matmul"]
    data = flops_json(*arguments, "--exact-backward")
    assert data["exact_backward"] == data["backward"]


def test_batch_and_dtype() -> None:
    single = flops_json("counted_models:small", "--input", "3,8,8")
    four = flops_json("counted_models:small", "--input", "3x8x8", "--batch", "4")
    assert four["forward"] == 4 * single["forward"]
    tokens = flops_json("counted_models:tokens", "--input", "5", "--dtype", "int64")
    assert (tokens["total"], tokens["parameters"]) == (0, 40)


def test_constructor_that_reads_values_is_built_for_real() -> None:
    assert flops_json("counted_models:reads_values", "--input", "3")["parameters"] == 8


def test_unknown_operators_are_listed_and_strict_refuses_them() -> None:
    result = flops("counted_models:Odd", "--input", "4")
    assert "aten::special_bessel_j0 ×1" in result.stdout
    assert flops_json("counted_models:Odd", "--input", "4")["unknown"]
    with pytest.raises(RuleError) as raised:
        flops("counted_models:Odd", "--input", "4", "--strict")
    assert (raised.value.key, raised.value.value) == ("--strict", {"aten::special_bessel_j0": 1})
    assert flops("resnet50", "--strict").exit_code == 0


@pytest.mark.parametrize(
    ("arguments", "key", "value", "cause"),
    [
        (["resnet51"], "model", "resnet51", "'resnet50'"),
        (["image_classification/smok"], "class", "smok", "'smoke'"),
        (["resnet50", "--convention", "aipref"], "convention", "aipref", "'aiperf'"),
        (["resnet50", "--input", "5,224,224"], "stem.0", "1×5×224×224", "Conv2d"),
        (["resnet50", "--input", "3,2.5"], "--input", "3,2.5", ""),
        (["resnet50", "--input", "3,0,9"], "--input", "3,0,9", ""),
        (["resnet50", "--dtype", "float3"], "--dtype", "float3", "'float32'"),
        (["counted_models:small"], "--input", None, ""),
        (["counted_models:nothing", "--input", "3"], "model", "counted_models:nothing", ""),
        (["no.such.module:x", "--input", "3"], "model", "no.such.module:x", "No module named"),
        (["counted_models:raises", "--input", "3"], "model", "counted_models:raises",
         "no such width"),
        (["counted_models:raises_at_length", "--input", "3"], "model",
         "counted_models:raises_at_length", "weight"),
        (["counted_models:raises_in_silence", "--input", "3"], "model",
         "counted_models:raises_in_silence", "ValueError"),
        (["counted_models:Selecting", "--input", "4"], "regions", None, "--regions N"),
        (["counted_models:not_a_model", "--input", "3"], "model", "counted_models:not_a_model",
         "int"),
        (["counted_models:Branching", "--input", "3"], "", None, "Branching"),
    ],
)  # fmt: skip
def test_mistakes_are_one_message(
    arguments: list[str], key: str, value: str | None, cause: str
) -> None:
    """`cause` is what came from elsewhere: the nearest name, the layer, an error of the user's."""
    with pytest.raises(InputError) as caught:
        flops(*arguments)
    assert (caught.value.key, caught.value.value) == (key, value)
    assert cause in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["counted_models:narrow", "--input", "9"], "the forward of Linear fails on an input of"),
        (["counted_models:raises_at_length", "--input", "3"], "counted_models:raises_at_length"),
    ],
)
def test_a_mistake_is_one_line_on_stderr(arguments: list[str], message: str, folder: Path) -> None:
    """In a process of its own, where torch's log would be seen too."""
    source = str(Path(__file__).parents[3] / "src")
    result = subprocess.run(
        [sys.executable, "-m", "ai500", "flops", *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": source},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == InputError.exit_code
    (line,) = result.stderr.splitlines()
    assert line.startswith(f"error: {message}")
    assert result.stdout == ""
