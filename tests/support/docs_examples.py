"""The examples of the documentation: every fenced block, how it is meant, and running it.

A comment before a block says what is special about it:

    <!-- example: long -->                 run by the long tests
    <!-- example: exits 1 -->              its last command ends with this code
    <!-- example: not run, REASON -->      needs what a test machine has not

Of `console` blocks the lines after a command are its output: each must occur in what was printed,
in order; `…` stands for anything.
"""

from __future__ import annotations

import itertools
import os
import re
import shlex
import subprocess
import sys
import tempfile
import tomllib
import typing
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ai500 import config as configuration
from ai500.core import plugins, schema
from ai500.projection import platform
from ai500.ranking.registry import load_decisions, load_registry

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    path
    for path in (*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"))
    if path.name != "CHANGELOG.md"
)
_BLOCK = re.compile(
    r"(?:^<!-- example: (?P<mark>[^\n]*?) -->\n)?"
    r"^(?P<indent> *)```(?P<language>\w*)\n(?P<text>.*?)^ *```$",
    re.MULTILINE | re.DOTALL,
)
RUNNABLE = ("console", "sh", "bash", "python", "toml")
ANYTHING = "…"
TRAINING = {"run", "resume", "profile", "roofline", "--rerun"}
"""Commands that start processes and take over signals; the others are called in this process,
where Python, NumPy and torch are loaded already."""
Call = Callable[[list[str]], tuple[int, str, str]]


@dataclass(frozen=True)
class Example:
    """One fenced block."""

    page: Path
    line: int
    language: str
    text: str
    mark: str

    @property
    def where(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"

    @property
    def runs(self) -> bool:
        return self.language in RUNNABLE and not self.mark.startswith("not run")

    @property
    def is_long(self) -> bool:
        return self.mark.split(",")[0] == "long"

    @property
    def exit_code(self) -> int:
        exit_mark = re.search(r"exits (\d+)", self.mark)
        return int(exit_mark[1]) if exit_mark else 0


def examples_of(page: Path) -> list[Example]:
    """The blocks of a page, in order."""
    text = page.read_text(encoding="utf-8")
    commands = []
    for block in _BLOCK.finditer(text):
        indent = len(block["indent"])
        lines = [line[indent:] for line in block["text"].splitlines()]
        line = text.count("\n", 0, block.start("language")) + 1
        mark = block["mark"] or ""
        commands.append(Example(page, line, block["language"], "\n".join(lines), mark))
    return commands


def commands_of(example: Example) -> Iterator[tuple[str, list[str]]]:
    """Each command of a console block with the output that is shown after it."""
    command: str | None = None
    shown: list[str] = []
    lines = iter(example.text.splitlines())
    for line in lines:
        if example.language == "console" and not line.startswith("$ "):
            shown.append(line)
            continue
        if command is not None:
            yield command, shown
        command, shown = line.removeprefix("$ "), []
        while command.endswith("\\"):
            command = command[:-1] + next(lines).removeprefix("> ")
    if command is not None:
        yield command, shown


def made_by(example: Example) -> Iterator[Path]:
    """Return the files that the commands of a block write with --out."""
    commands = commands_of(example) if example.language == "console" else ()
    for command, _ in commands:
        words = shlex.split(command)
        yield from (Path(b) for a, b in itertools.pairwise(words) if a == "--out")


def run_console(example: Example, *, here: Call, environment: dict[str, str]) -> None:
    """All commands of a block, one after the other."""
    for command, shown in commands_of(example):
        words = shlex.split(command)
        if words[0] == "ai500" and not ({"&&", "|", ">"} | TRAINING) & set(words):
            code, printed, errors = here(words[1:])
        else:
            code, printed, errors = _in_a_shell(command, environment)
        context = f"{example.where}: $ {command}\n{printed}{errors}"
        assert code == example.exit_code, f"exit code {code}: {context}"
        assert "Traceback" not in errors, context
        compare(printed + errors, shown, context=context)


def _in_a_shell(command: str, environment: dict[str, str]) -> tuple[int, str, str]:
    ended = subprocess.run(
        ["bash", "-c", command],
        env=environment,
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=580,
    )
    return ended.returncode, ended.stdout, ended.stderr


def compare(printed: str, shown: list[str], *, context: str) -> None:
    """Each line that the page shows occurs in what was printed, in the same order."""
    lines = iter(_plain(line) for line in printed.splitlines())
    for line in filter(None, map(_plain, shown)):
        pattern = ".*".join(re.escape(part) for part in line.split(ANYTHING))
        assert any(re.fullmatch(pattern, printed) for printed in lines), (
            f"never printed: {line}\n{context}"
        )


def _plain(line: str) -> str:
    return " ".join(line.split())


def check_toml(example: Example) -> None:
    """A configuration that loads, a system of `ai500 project`, entry points of known groups, or a
    file of a list."""
    data = tomllib.loads(example.text)
    for table, load in (("organizations", load_registry), ("decisions", load_decisions)):
        if table in data:
            with tempfile.TemporaryDirectory() as folder:
                (Path(folder) / "list.toml").write_text(example.text, encoding="utf-8")
                load(Path(folder) / "list.toml")
            return
    if "topology" in data:
        platform.build(schema.decode(platform.PlatformText, data), folder=Path())
        return
    points: dict[str, Any] = data.get("project", {}).get("entry-points", {})
    for group in points:
        kind = group.removeprefix("ai500.")
        assert kind in typing.get_args(plugins.Kind), f"{example.where}: no group {group}"
    if not points:
        configuration.load(None, overrides=dict(_flat(data)))


def _flat(data: dict[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in data.items():
        if isinstance(value, dict) and f"{above}{key}" != "system.notes":
            yield from _flat(value, f"{above}{key}.")
        else:
            yield f"{above}{key}", value


def environment_with(shims: Path, *, cache: Path) -> dict[str, str]:
    """`ai500` and `python` are those of the source tree; a terminal of 80 columns."""
    for name, words in (("ai500", "-m ai500"), ("python", "")):
        shim = shims / name
        shim.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} {words} "$@"\n')
        shim.chmod(0o755)
    return {
        **os.environ,
        "PATH": f"{shims}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT / "src"),
        "AI500_CACHE": str(cache),
        "NO_COLOR": "1",
        "COLUMNS": "80",
    }
