"""Law 2: planning, scoring, checking, reporting and ranking work where torch is not installed."""

from __future__ import annotations

import ast
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer.main

from ai500.cli import app
from ai500.records import run_folder
from tests.support import synthetic_roofline
from tests.support.commands import SOURCE
from tests.support.submitted import submittable_run

pytestmark = pytest.mark.slow

FRAMEWORKS = ("torch", "torchvision", "triton", "jax", "tensorflow", "mindspore")

MAY_IMPORT_TORCH = {
    "ai500.train": "the training loop of PyTorch",
    "ai500.parallel.engines": "modules, gradients and process groups of a member",
    "ai500.parallel.collectives": "gradient averaging",
    "ai500.parallel.compression": "gradient averaging",
    "ai500.parallel.message_passing": "gradient averaging",
    "ai500.parallel.cuda_graph": "CUDA graph capture",
    "ai500.parallel.targets": "tensors of a batch",
    "ai500.operations.torch_modes": "the operation tracer",
    "ai500.operations.torch_trace": "the operation tracer",
    "ai500.workloads.models": "networks",
    "ai500.workloads.detection": "the detector's network and losses",
    "ai500.workloads.kernels": "Triton kernels",
    "ai500.workloads.crop_kernel": "augmentation on the device",
    "ai500.workloads.image_inputs": "augmentation on the device",
    "ai500.workloads.volume_inputs": "augmentation on the device",
    "ai500.workloads.volume_kernels": "augmentation and pooling on the device",
    "ai500.workloads.climate": "the generator of climate data",
    "ai500.frameworks.jax_backend": "JAX's worker",
    "ai500.frameworks.jax_resnet": "JAX's worker",
    "ai500.frameworks.jax_setup": "JAX's worker",
    "ai500.frameworks.jax_transformer": "JAX's worker",
    "ai500.frameworks.tensorflow_backend": "TensorFlow's worker",
    "ai500.frameworks.tensorflow_ranks": "TensorFlow's worker",
    "ai500.frameworks.tensorflow_setup": "TensorFlow's worker",
    "ai500.frameworks.mindspore_backend": "MindSpore's worker",
    "ai500.frameworks.mindspore_ranks": "MindSpore's worker",
    "ai500.automl.candidates": "a search worker",
    "ai500.automl.coordinator": "a search worker",
    "ai500.automl.memory": "a search worker",
    "ai500.automl.morphism": "a search worker",
    "ai500.automl.training": "a search worker",
    "ai500.automl.weights": "a search worker",
    "ai500.automl.worker": "a search worker",
    "ai500.roofline.kernel_benchmarks": "measures kernels",
    "ai500.roofline.link_worker": "measures links",
}
"""Packages and modules → why they may import a framework at module level."""


@cache
def modules() -> dict[str, Path]:
    """Name → file of every module of the package."""
    imported = {}
    for path in SOURCE.rglob("*.py"):
        parts = path.relative_to(SOURCE).with_suffix("").parts
        imported[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return imported


@cache
def imports(module: str) -> frozenset[str]:
    """Names that are imported when the module is: its parents', and those outside functions."""
    tree = ast.parse(modules()[module].read_text(encoding="utf-8"))
    names = set(_parents(module))
    for node in _executed_on_import(tree.body):
        if isinstance(node, ast.Import):
            names.update(name for alias in node.names for name in _with_parents(alias.name))
        elif isinstance(node, ast.ImportFrom):
            assert node.module is not None and node.level == 0, f"{module}: a relative import"
            names.update(_with_parents(node.module))
            names.update(f"{node.module}.{alias.name}" for alias in node.names)
    return frozenset(names - {module})


def _executed_on_import(nodes: Iterable[ast.AST]) -> Iterator[ast.AST]:
    for node in nodes:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            continue
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            yield from _executed_on_import(node.orelse)
            continue
        yield node
        yield from _executed_on_import(ast.iter_child_nodes(node))


def _parents(name: str) -> list[str]:
    parts = name.split(".")
    return [".".join(parts[:count]) for count in range(1, len(parts))]


def _with_parents(name: str) -> list[str]:
    return [*_parents(name), name]


def import_chain(module: str) -> list[str] | None:
    """Shortest chain of module-level imports from `module` to a framework; None: there is none."""
    chains, seen = [[module]], {module}
    for chain in chains:  # grows while it is read: a breadth-first search
        for name in sorted(imports(chain[-1])):
            if name.split(".")[0] in FRAMEWORKS:
                return [*chain, name]
            if name in modules() and name not in seen:
                seen.add(name)
                chains.append([*chain, name])
    return None


def test_no_other_module_imports_a_framework() -> None:
    other_modules = [
        module for module in modules() if not MAY_IMPORT_TORCH.keys() & set(_with_parents(module))
    ]
    assert len(other_modules) > 100
    chains = [" → ".join(chain) for module in other_modules if (chain := import_chain(module))]
    assert not chains, "\n".join(chains)


def test_each_room_that_may_import_torch_does() -> None:
    using = [module for module in modules() if import_chain(module)]
    assert MAY_IMPORT_TORCH.keys() <= {room for module in using for room in _with_parents(module)}


RUN_COMMANDS = f"""
import contextlib, io, json, sys
for name in {FRAMEWORKS!r}:
    sys.modules[name] = None  # an import of it now fails, as where it is not installed
from ai500.cli import main
results = {{}}
for name, arguments in json.load(sys.stdin).items():
    sys.argv = ["ai500", *arguments]
    out, err, code = io.StringIO(), io.StringIO(), 0
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main()
        except SystemExit as end:
            code = end.code or 0
    results[name] = {{"code": code, "out": out.getvalue(), "err": err.getvalue()}}
json.dump(results, sys.stdout)
"""

EXAMPLES = SOURCE.parent / "docs/examples"
STABLEHLO_TEXTS = Path(__file__).parent / "operations" / "stablehlo_texts"
COMMANDS = {
    "init": ["init"],
    "plan": [
        "plan", "--class", "full", "--json", "--set", "system.device=cuda",
        "--set", "system.nodes=8", "--set", "system.accelerators_per_node=8",
    ],
    "plan extreme_weather": ["plan", "--workload", "extreme_weather"],
    "plan automl": ["plan", "--workload", "automl"],
    "status": ["status", "run", "--json"],
    "score": ["score", "run", "--json"],
    "report": ["report", "run"],
    "check": ["check", "run", "--json"],
    "compare": ["compare", "run", "run"],
    "runs": ["runs", "."],
    "export": ["export", "run", "--csv", "--out", "tables"],
    "keygen": ["keygen", "key.pem"],
    "submit": [
        "submit", "run", "--level", "hardware", "--out", "submissions/a.ai500",
        "--key", "key.pem", "--name", "A. Tester",
    ],
    "check a submission": ["check", "submissions/a.ai500"],
    "verify": ["verify", "submissions/a.ai500"],
    "rank": ["rank", "submissions", "--out", "list"],
    "system": ["system"],
    "system of a run": ["system", "h200"],
    "roofline": ["roofline", "--show", "roofline.json"],
    "data check": ["data", "check", "store"],
    "study report": ["study", "report", "study"],
    "flops of StableHLO text": ["flops", "block.mlir"],
    "flops": ["flops", "resnet50"],
}  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, tiny_store: Path) -> Path:
    """A folder with a run, an example's run, a study and a store."""
    folder = tmp_path_factory.mktemp("without torch")
    submittable_run(folder / "run")
    run_folder.write(folder / "roofline.json", synthetic_roofline.synthetic_roofline())
    shutil.copytree(EXAMPLES / "h200", folder / "h200")
    shutil.copy(STABLEHLO_TEXTS / "block.mlir", folder)
    shutil.copytree(EXAMPLES / "studies/scaling", folder / "study")
    (folder / "store").symlink_to(tiny_store)
    (folder / "submissions").mkdir()
    return folder


@pytest.fixture(scope="module")
def results(folder: Path) -> dict[str, Any]:
    """Name → exit code and output of every command, run with all frameworks blocked."""
    helps = {f"{name} --help": [*name.split(), "--help"] for name in _names(_command())}
    done = subprocess.run(
        [sys.executable, "-c", RUN_COMMANDS],
        input=json.dumps(COMMANDS | helps),
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(SOURCE), "NO_COLOR": "1"},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    outcome: dict[str, Any] = json.loads(done.stdout)
    return outcome


def _command() -> Any:
    return typer.main.get_command(app)


def _names(command: Any, prefix: str = "") -> list[str]:
    below = getattr(command, "commands", {})
    names = [name for word in below for name in _names(below[word], f"{prefix} {word}")]
    return names or [prefix.strip()]


@pytest.mark.parametrize("name", [name for name in COMMANDS if name != "flops"])
def test_a_login_node_command_needs_no_framework(results: dict[str, Any], name: str) -> None:
    assert results[name]["code"] == 0, results[name]["err"]


def test_the_help_of_every_command_needs_no_framework(results: dict[str, Any]) -> None:
    helps = [name for name in results if name.endswith("--help")]
    assert len(helps) > 20
    assert not [name for name in helps if results[name]["code"] != 0]


def test_counting_without_torch_exits_with_code_3(results: dict[str, Any]) -> None:
    assert results["flops"]["code"] == 3
    assert "torch" in results["flops"]["err"]


def test_the_plan_is_complete_without_torch(results: dict[str, Any]) -> None:
    plan = json.loads(results["plan"]["out"])
    assert (plan["ensemble_size"], plan["parallel_degree"], plan["system_scale"]) == (8, 8, 64)
    assert plan["operations"]["convention"] == "aiperf"
    assert plan["operations"]["parameters"] == 25_557_032
    assert plan["operations_per_trial"] > 0
    assert len(plan["mapping"]) == 8
    assert plan["estimated_seconds"] is None  # not measured: nothing is invented


def test_score_status_and_report_are_complete_without_torch(
    results: dict[str, Any], folder: Path
) -> None:
    score = run_folder.read_json(folder / "run/score.json")
    assert json.loads(results["score"]["out"]) == score
    assert json.loads(results["status"]["out"])["state"] == "finished"
    assert (folder / "run/report.html").stat().st_size > 10_000
