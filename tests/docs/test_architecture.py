"""docs/architecture.md draws import-linter's contract; the tests mirror the packages."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator

from tests.support.docs_examples import ROOT


def contract() -> list[set[str]]:
    """Return the layers of pyproject.toml that exist, top to bottom."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    (layers,) = settings["tool"]["importlinter"]["contracts"]
    assert "ignore_imports" not in layers  # no exceptions
    assert layers["exhaustive"] is True
    rows = [set(re.findall(r"\w+", re.sub(r"\(\w+\)", "", row))) for row in layers["layers"]]
    return [row for row in rows if row]


def test_the_page_draws_the_contract() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    table = page[page.index("| layer | packages |") :]
    rows = [line.split("|")[2] for line in table.splitlines()[2:] if line.startswith("|")]
    assert [set(re.findall(r"`(\w+)`", row)) for row in rows] == contract()


def test_every_package_is_in_a_layer() -> None:
    package = ROOT / "src" / "ai500"
    packages = {path.parent.name for path in package.glob("*/__init__.py")}
    packages |= {path.stem for path in package.glob("*.py")} - {"__init__", "__main__"}
    assert packages == set.union(*contract())


def test_the_walk_through_a_run_names_what_exists() -> None:
    """At most nine files, each with the functions that the page names."""
    page = (ROOT / "docs" / "how-a-run-works.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| \d \| `([\w/]+\.py)` \| ([^|]+) \|", page, re.MULTILINE)
    assert 1 <= len(rows) <= 9
    for file, functions in rows:
        tree = ast.parse((ROOT / "src" / "ai500" / file).read_text(encoding="utf-8"))
        for name in re.findall(r"`([\w.]+)`", functions):
            assert name in set(definitions(tree)), f"{file} has no {name}"
    for path in re.findall(r"`((?:\w+/)+\w+(?:\.py)?)`", page):
        assert (ROOT / "src" / "ai500" / path).exists(), path


def test_every_package_has_its_folder_of_unit_tests() -> None:
    packages = {path.parent.name for path in (ROOT / "src" / "ai500").glob("*/__init__.py")}
    assert {path.parent.name for path in (ROOT / "tests" / "unit").glob("*/test_*.py")} == packages


SHARED = re.compile(r"tests\.(support|(soak|mutation)\.(?!test_)|jobs\.conformance\.contract\.)")
"""Modules that tests may import: those of support, those of the programs `make soak` and
`make mutation`, and the contract of schedulers, which sites import too."""


def test_tests_import_neither_each_other_nor_benchmarks() -> None:
    folder = ROOT / "tests"
    wrong = {
        (str(path.relative_to(folder)), node.module)
        for path in (*folder.rglob("test_*.py"), *folder.rglob("conftest.py"))
        for node in ast.parse(path.read_text(encoding="utf-8")).body
        if isinstance(node, ast.ImportFrom) and node.module
        if re.match("tests|benchmarks", node.module) and not SHARED.match(f"{node.module}.")
    }
    assert wrong == set()


def definitions(tree: ast.Module) -> Iterator[str]:
    """Yield the functions and methods of a module by their qualified names."""
    for node in tree.body:
        if isinstance(node, ast.FunctionDef):
            yield node.name
        elif isinstance(node, ast.ClassDef):
            yield from (
                f"{node.name}.{method.name}"
                for method in node.body
                if isinstance(method, ast.FunctionDef)
            )


def test_the_program_of_a_run_is_chosen_once() -> None:
    """Only `programs.py` asks whether a class or a plan searches; the search's own code may,
    and `status`, which imports no program for an ensemble."""
    package = ROOT / "src" / "ai500"
    asking = {
        file.relative_to(package).as_posix()
        for file in package.rglob("*.py")
        if file.parent.name not in ("automl", "records")
        and re.search(r"(plan|class|base)\.search is (not )?None", file.read_text(encoding="utf-8"))
    }
    assert asking == {"pipeline/programs.py", "cli/status.py"}
