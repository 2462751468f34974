"""The public API: what is exported, that it loads lazily, and that outsiders need nothing else."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

import ai500
from ai500 import api
from tests.support.docs_examples import ROOT, examples_of

OUTSIDE = sorted((ROOT / "docs" / "examples").glob("outside-*/**/*.py"))
PAGES = [ROOT / "docs" / name for name in ("python-api.md", "plugins.md", "adding-a-workload.md")]


@pytest.mark.parametrize("name", api.__all__)
def test_every_name_loads_from_the_module_that_defines_it(name: str) -> None:
    module = next(module for module, names in api.EXPORTS.items() if name in names)
    assert getattr(ai500, name) is getattr(import_module(module), name)


def test_type_checkers_see_the_same_names() -> None:
    tree = ast.parse(Path(api.__file__).read_text(encoding="utf-8"))
    block = next(node for node in tree.body if isinstance(node, ast.If))
    imported = {
        (node.module, alias.name)
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert imported == {(module, name) for module, names in api.EXPORTS.items() for name in names}


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="'ai500' has no attribute 'nothing'"):
        ai500.nothing  # noqa: B018


def test_import_loads_nothing_else() -> None:
    script = (
        "import sys, ai500; ai500.Hyperparameters; "
        "print([m for m in sys.modules if m in ('torch', 'typer', 'jinja2', 'ai500.pipeline')])"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


def imports_of(source: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


@pytest.mark.parametrize("path", [*OUTSIDE, *PAGES], ids=lambda path: path.name)
def test_outsiders_import_the_public_api_alone(path: Path) -> None:
    sources = (
        [path.read_text(encoding="utf-8")]
        if path.suffix == ".py"
        else [block.text for block in examples_of(path) if block.language == "python"]
    )
    modules = {module for source in sources for module in imports_of(source)}
    assert {m for m in modules if m.partition(".")[0] == "ai500"} <= {"ai500", "ai500.api"}
