"""Mutate single expressions of the source at random; print the share that the unit tests detect.

`make mutation MUTANTS=70 SEED=1`. The mutants of a package are drawn with a seed and tested by the
tests that mirror the package. A mutant survives if all of them pass; one that changes no behaviour
(it is equivalent) is listed in `equivalent.txt` as `file:line: change`, with its reason.
"""

from __future__ import annotations

import argparse
import ast
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
SOURCE = REPOSITORY / "src"
EQUIVALENT = Path(__file__).with_name("equivalent.txt")
CPU_SECONDS = 600  # a mutant that computes for ever is detected
WALL_SECONDS = 1800  # a busy machine, or a mutant that waits for ever: undecided


@dataclass(frozen=True)
class Package:
    """Source files, and the tests that mirror them."""

    name: str
    files: tuple[str, ...]
    tests: tuple[str, ...]


PACKAGES = (
    Package("equations", ("metrics/*.py",), ("tests/unit/metrics", "tests/paper")),
    Package("rules", ("rules/*.py",), ("tests/unit/rules",)),
    Package("operations", ("operations/*.py",), ("tests/unit/operations", "tests/paper")),
    Package(
        "sampler", ("bagging/data_sampler.py", "data/bootstrap.py"),
        ("tests/unit/bagging", "tests/unit/data/test_store.py"),
    ),
    Package(
        "aggregation", ("bagging/aggregate.py", "bagging/predictions.py"), ("tests/unit/bagging",)
    ),
    Package(
        "checkpoint", ("records/checkpoint_file.py", "train/checkpoint.py"),
        ("tests/unit/records", "tests/unit/train/test_checkpoint.py"),
    ),
    Package("submission", ("submission/*.py",), ("tests/unit/submission",)),
)  # fmt: skip

OPERATORS: dict[type[ast.AST], type[ast.AST]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq, ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is,
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult, ast.Mod: ast.Mult, ast.Pow: ast.Mult, ast.And: ast.Or, ast.Or: ast.And,
    ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd,
}  # fmt: skip
"""Operators by what replaces them; comparisons move by one, as an off-by-one does."""


@dataclass(frozen=True)
class Mutant:
    """One change of one expression."""

    path: Path
    line: int
    before: str
    after: str
    source: str
    """Text of the whole file with the change."""

    def __str__(self) -> str:
        return f"{self.path.relative_to(SOURCE)}:{self.line}: {self.before} → {self.after}"


def mutants(path: Path) -> Iterator[Mutant]:
    """Yield every mutant of a file."""
    text = path.read_text(encoding="utf-8")
    tree = ast.parse(text)
    for node in _run_time_nodes(tree):
        for changed in _changes(node):
            before, after = ast.unparse(node), ast.unparse(changed)
            if before != after:
                mutated = _replaced(text, node, after)
                if mutated is not None:
                    yield Mutant(path, node.lineno, before, after, mutated)


def _run_time_nodes(tree: ast.AST) -> Iterator[ast.expr]:
    """Yield expressions that are computed: no annotations, no messages, no docstrings."""
    for child in ast.iter_child_nodes(tree):
        if isinstance(child, ast.JoinedStr | ast.Raise | ast.Import | ast.ImportFrom):
            continue
        if isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING":
            continue
        if isinstance(child, ast.arg) or child is getattr(tree, "annotation", None):
            continue
        if child is getattr(tree, "returns", None):
            continue
        if isinstance(child, ast.expr):
            yield child
        yield from _run_time_nodes(child)


def _changes(node: ast.expr) -> Iterator[ast.expr]:
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        other = OPERATORS.get(type(node.ops[0]))
        if other is not None:
            yield ast.Compare(node.left, [other()], node.comparators)  # type: ignore[list-item]
    elif isinstance(node, ast.BinOp) and type(node.op) in OPERATORS:
        if not isinstance(node.left, ast.Constant | ast.JoinedStr) or not isinstance(
            getattr(node.left, "value", 0), str
        ):
            yield ast.BinOp(node.left, OPERATORS[type(node.op)](), node.right)  # type: ignore[arg-type]
    elif isinstance(node, ast.BoolOp):
        yield ast.BoolOp(OPERATORS[type(node.op)](), node.values)  # type: ignore[arg-type]
        yield ast.BoolOp(node.op, node.values[:-1]) if len(node.values) > 2 else node.values[0]
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not | ast.USub):
        yield node.operand
    elif isinstance(node, ast.IfExp):
        yield ast.IfExp(ast.UnaryOp(ast.Not(), node.test), node.body, node.orelse)
    elif isinstance(node, ast.Constant) and not isinstance(node.value, str | bytes):
        if isinstance(node.value, bool):
            yield ast.Constant(not node.value)
        elif isinstance(node.value, int | float):
            yield ast.Constant(node.value + 1)


def _replaced(text: str, node: ast.expr, after: str) -> str | None:
    """Return the text with an expression replaced, its lines where they were; None: no Python."""
    lines = text.splitlines(keepends=True)
    assert node.end_lineno is not None and node.end_col_offset is not None
    first, last = lines[node.lineno - 1].encode(), lines[node.end_lineno - 1].encode()
    begin, end = first[: node.col_offset].decode(), last[node.end_col_offset :].decode()
    lines[node.lineno - 1 : node.end_lineno] = [f"{begin}({after}){end}"]
    mutated = "".join(lines)
    try:
        compile(mutated, "mutant", "exec")
    except SyntaxError:
        return None
    return mutated


def draw(package: Package, *, count: int, seed: int) -> list[Mutant]:
    """Draw mutants of a package; the same of the same source and seed."""
    paths = sorted(path for each in package.files for path in (SOURCE / "ai500").glob(each))
    every = [mutant for path in paths for mutant in mutants(path)]
    return random.Random(f"{seed} {package.name}").sample(every, min(count, len(every)))


def is_detected(mutant: Mutant | None, tree: Path, tests: tuple[str, ...]) -> bool | None:
    """Run the tests on a copy of the source that has the mutant (None: as it is).

    Return None if they did not end in time: on a busy machine that says nothing of the mutant.
    """
    path = tree / mutant.path.relative_to(SOURCE) if mutant else None
    if mutant and path:
        path.write_text(mutant.source, encoding="utf-8")
    words = [
        "-x",
        "-q",
        "--no-header",
        "-p",
        "no:cacheprovider",
        "-m",
        "not long and not serial and not slow",
    ]
    try:
        done = subprocess.run(
            ["prlimit", f"--cpu={CPU_SECONDS}", sys.executable, "-m", "pytest", *words, *tests],
            cwd=REPOSITORY,
            env={**os.environ, "PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": "1"},
            capture_output=True,
            timeout=WALL_SECONDS,
        )
    except subprocess.TimeoutExpired:
        return None
    finally:
        if mutant and path:
            shutil.copyfile(mutant.path, path)
    return done.returncode != 0


def main() -> int:
    """Test the mutants and print the shares."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutation", description=__doc__)
    parser.add_argument("--mutants", type=int, default=70, help="in all, the same of each package")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--packages", nargs="*", help="only these")
    parser.add_argument("--list", action="store_true", help="print the mutants, test none")
    arguments = parser.parse_args()
    known = EQUIVALENT.read_text(encoding="utf-8").splitlines() if EQUIVALENT.exists() else []
    equivalent = {line.partition("  # ")[0] for line in known}
    totals = [0, 0]
    with tempfile.TemporaryDirectory(prefix="ai500-mutation-") as name:
        tree = Path(shutil.copytree(SOURCE, Path(name) / "src"))
        for package in PACKAGES:
            if arguments.packages and package.name not in arguments.packages:
                continue
            sample = draw(
                package, count=-(-arguments.mutants // len(PACKAGES)), seed=arguments.seed
            )
            if arguments.list:
                print(*sample, sep="\n")
                continue
            began, detected, counted = time.monotonic(), 0, 0
            if is_detected(None, tree, package.tests) is not False:
                print(f"{package.name}: the tests fail, or do not end, without a mutant")
                return 1
            for mutant in sample:
                if str(mutant) in equivalent:
                    continue
                verdict = is_detected(mutant, tree, package.tests)
                if verdict is None:
                    print(f"  undecided: {mutant}", flush=True)
                    continue
                counted += 1
                detected += verdict
                if not verdict:
                    print(f"  survives: {mutant}", flush=True)
            seconds = time.monotonic() - began
            print(f"{package.name}: {detected} of {counted} ({seconds:.0f} s)", flush=True)
            totals = [totals[0] + detected, totals[1] + counted]
    if totals[1]:
        share = totals[0] / totals[1]
        print(f"detected: {totals[0]} of {totals[1]} ({share:.0%}), seed {arguments.seed}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
