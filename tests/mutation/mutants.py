"""Mutants: single expressions of the source that are changed, drawn with a seed."""

from __future__ import annotations

import ast
import builtins
import hashlib
import random
import tomllib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
SOURCE = REPOSITORY / "src"
MODULE = 0
"""Line that stands for a module's own code, which every test of its package executes."""

EQUIVALENT = Path(__file__).with_name("equivalent.toml")

_Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Package:
    """Source files, and the tests that mirror them."""

    name: str
    files: tuple[str, ...]
    tests: tuple[str, ...]

    def paths(self) -> list[Path]:
        """List its source files, but tables of the papers: a test could only repeat them."""
        files = [path for each in self.files for path in (SOURCE / "ai500").glob(each)]
        return sorted(path for path in files if path.name != "published.py")


PACKAGES = (
    Package(
        "equations", ("metrics/*.py",),
        (
            "tests/unit/metrics", "tests/unit/bagging/test_score.py",
            "tests/paper/test_equations.py", "tests/paper/test_rules_and_ranking.py",
        ),
    ),
    Package("rules", ("rules/*.py",), ("tests/unit/rules",)),
    Package(
        "operations", ("operations/*.py",),
        ("tests/unit/operations", "tests/paper/test_operations.py"),
    ),
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
    function: str
    """Name of the function that contains it; empty: the module itself, or a class."""
    function_line: int
    """First line of the function, its decorators included; MODULE: no function."""
    number: int
    """Counts equal changes in a function, from 1."""
    digest: str
    """First digits of the SHA-256 of the function's text, or of the expression's outside of one."""
    before: str
    after: str
    source: str
    """Text of the whole file with the change."""

    def __str__(self) -> str:
        return f"{self.path.relative_to(SOURCE)}:{self.line}: {self.before} → {self.after}"

    @property
    def key(self) -> str:
        """Identify the change as long as its function stays the same."""
        place = f"{self.path.relative_to(SOURCE / 'ai500')} {self.function or 'module'}"
        return f"{place} {self.digest} #{self.number}: {self.before} → {self.after}"


def mutants(path: Path) -> Iterator[Mutant]:
    """Yield every mutant of a file."""
    text = path.read_text(encoding="utf-8")
    functions = _functions(ast.parse(text))
    numbers: Counter[tuple[str, str, str, str]] = Counter()
    for node in _run_time_nodes(ast.parse(text)):
        name, function = functions.get((node.lineno, node.col_offset), ("", None))
        own_text = ast.get_source_segment(text, function or node) or ""
        digest = hashlib.sha256(own_text.encode()).hexdigest()[:8]
        first = MODULE if function is None else _first_line(function)
        for changed in _changes(node):
            before, after = ast.unparse(node), ast.unparse(changed)
            mutated = _replaced(text, node, after) if before != after else None
            if mutated is not None:
                key = (name, digest, before, after)
                numbers[key] += 1
                yield Mutant(
                    path, node.lineno, name, first, numbers[key], digest, before, after, mutated
                )


def _functions(tree: ast.AST) -> dict[tuple[int, int], tuple[str, _Function]]:
    """Map the places of expressions inside functions to the innermost function and its name."""
    places: dict[tuple[int, int], tuple[str, _Function]] = {}

    def visit(node: ast.AST, name: str, function: _Function | None) -> None:
        if isinstance(node, ast.expr) and function is not None:
            places[node.lineno, node.col_offset] = (name, function)
        for child in ast.iter_child_nodes(node):
            inner_name, inner = name, function
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                inner_name = f"{name}.{node.name}".strip(".")
                if not isinstance(node, ast.ClassDef) and child in node.body:
                    inner = node  # its defaults and decorators are the outer one's
            visit(child, inner_name, inner)

    visit(tree, "", None)
    return places


def _first_line(function: _Function) -> int:
    return min([function.lineno, *(each.lineno for each in function.decorator_list)])


def _run_time_nodes(tree: ast.AST) -> Iterator[ast.expr]:
    """Yield expressions that are computed: no annotations, no messages, no docstrings.

    The options of a dataclass are left out: strict mypy refuses what `frozen` and `slots` forbid.
    """
    for child in ast.iter_child_nodes(tree):
        if child in getattr(tree, "decorator_list", ()) and "dataclass" in ast.unparse(child):
            continue
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
    elif isinstance(node, ast.BinOp) and type(node.op) in OPERATORS and not _is_type(node):
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


def _is_type(node: ast.BinOp) -> bool:
    """Return True of a union of types, such as `int | None`, outside of an annotation."""
    if not isinstance(node.op, ast.BitOr):
        return False
    names = [ast.unparse(operand) for operand in (node.left, node.right)]
    return any(name == "None" or name in dir(builtins) or name[:1].isupper() for name in names)


def _replaced(text: str, node: ast.expr, after: str) -> str | None:
    """Return the text with an expression replaced, its lines where they were; None: no Python."""
    lines = text.splitlines(keepends=True)
    assert node.end_lineno is not None and node.end_col_offset is not None
    first, last = lines[node.lineno - 1].encode(), lines[node.end_lineno - 1].encode()
    begin, end = first[: node.col_offset].decode(), last[node.end_col_offset :].decode()
    kept = "\n" * (node.end_lineno - node.lineno)  # functions below stay on their lines
    lines[node.lineno - 1 : node.end_lineno] = [f"{begin}({after}{kept}){end}"]
    mutated = "".join(lines)
    try:
        compile(mutated, "mutant", "exec")
    except SyntaxError:
        return None
    return mutated


def draw(package: Package, *, count: int, seed: int) -> list[Mutant]:
    """Draw mutants of a package; the same of the same source and seed."""
    every = [mutant for path in package.paths() for mutant in mutants(path)]
    return random.Random(f"{seed} {package.name}").sample(every, min(count, len(every)))


def equivalent() -> dict[str, str]:
    """Return the reviewed mutants that change no behaviour: key → reason."""
    with EQUIVALENT.open("rb") as file:
        entries = tomllib.load(file)["mutant"]
    return {entry["key"]: entry["reason"] for entry in entries}
