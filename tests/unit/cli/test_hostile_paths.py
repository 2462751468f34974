"""Pipes, folders, circles of links, devices and texts of no sense in place of files: one error.

All cases: HOSTILE_CASES=all pytest tests/unit/cli/test_hostile_paths.py
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any, get_type_hints

import pytest
import typer.main

from ai500.cli import app
from tests.support.commands import Run
from tests.support.submitted import small_run

MAX_SECONDS = 30
DEEP = b'{"a": ' + b"[" * 100_000
THINGS: dict[str, bytes | Callable[[Path], object]] = {
    "a pipe": os.mkfifo,
    "a folder": Path.mkdir,
    "a circle of links": lambda path: path.symlink_to(path.name),
    "a device": lambda path: path.symlink_to("/dev/zero"),
    "a socket": lambda path: os.mknod(path, stat.S_IFSOCK | 0o600),
    "nothing": b"",
    "deep": DEEP,
    "not a number": b'{"trials": NaN, "event": "epoch"}\n',
    "many digits": b'{"trials": 1' + b"0" * 6000 + b"}\n",
    "not UTF-8": b"\xff\xfe\x00",
    "null characters": b"\0" * 100,
    "a list": b"[1]\n",
}


STUDIES = ("scaling", "tradeoff", "optimizations", "data-parallel", "frameworks", "repeatability",
           "sharing")  # fmt: skip
OUTPUTS = ("a pipe", "a circle of links", "a device", "a socket", "nothing")
"""Things that a command refuses to write to; a folder may be what it wants."""
ACCEPTED = {
    *((f"study {name} out", "a circle of links") for name in STUDIES),  # by --dry-run
    *((f"study {name} reuse", "a folder") for name in STUDIES),
    ("runs folder", "a folder"), ("init path", "a circle of links"),
    ("system out", "a circle of links"), ("roofline out", "nothing"), ("system out", "nothing"),
    ("config", "nothing"), ("notes", "nothing"), ("notes", "deep"), ("notes", "a list"),
    ("notes", "null characters"), ("notes", "many digits"), ("notes", "not a number"),
}  # fmt: skip
"""(parameter, thing): what is no mistake. Files that a command writes replace others."""


def commands() -> Iterator[tuple[str, Any]]:
    """All commands of the command line, with their groups' names."""
    for name, command in typer.main.get_command(app).commands.items():  # type: ignore[attr-defined]
        below = getattr(command, "commands", None)
        if below is None:
            yield name, command
        else:
            yield from ((f"{name} {subcommand}", inner) for subcommand, inner in below.items())


def paths_of(command: Any) -> Iterator[str]:
    """The names of a command's parameters that are paths, or may be one."""
    hints = get_type_hints(command.callback)
    for parameter in command.params:
        if "Path" in str(hints.get(parameter.name)) or parameter.name == "model":
            yield parameter.name


def cases() -> Iterator[tuple[str, str, str]]:
    """Each command with each of its paths and each hostile thing there."""
    for name, command in commands():
        for parameter in paths_of(command):
            for thing in OUTPUTS if parameter == "out" else THINGS:
                if not {(parameter, thing), (f"{name} {parameter}", thing)} & ACCEPTED:
                    yield name, parameter, thing


def chosen(all_cases: list[Any], number: int) -> list[Any]:
    """A sample that is the same each time, or all cases."""
    if os.environ.get("HOSTILE_CASES") == "all":
        return all_cases
    return sorted(random.Random(25).sample(all_cases, number))


def make(thing: str, path: Path) -> None:
    content = THINGS[thing]
    if isinstance(content, bytes):
        path.write_bytes(content)
    else:
        content(path)


def words(name: str, hostile: str, path: Path, run: Path) -> list[str]:
    """A command line in which one path is hostile, and all else is in order."""
    arguments = {"path": run, "first": run, "second": run, "run": run, "folder": run, "model": "x",
             "level": "hardware", "system": "marenostrum", "source": run}  # fmt: skip
    line = name.split()
    if line[0] == "study" and line[1] != "report":
        line.append("--dry-run")
    for parameter in dict(commands())[name].params:
        if parameter.name == hostile:
            value = str(path)
        elif parameter.required:
            value = str(arguments.get(parameter.name, path.with_name("new.ai500")))
        else:
            continue
        is_option = parameter.param_type_name == "option"
        line += [parameter.opts[0], value] if is_option else [value]
    if name == "roofline" and hostile in ("ceilings", "beside"):
        line += ["--run", str(run)]
    if name == "verify" and hostile in ("out", "config", "data"):
        line += ["--rerun"] + ([] if hostile == "out" else ["--out", str(path.with_name("again"))])
    return line


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_run(tmp_path_factory.mktemp("intact") / "run", trials=2).path


@pytest.fixture
def in_time() -> Iterator[None]:
    """An alarm that interrupts a command that waits."""

    def late(number: int, frame: FrameType | None) -> None:
        raise TimeoutError(f"it took more than {MAX_SECONDS} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(MAX_SECONDS)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def is_clear(err: str) -> bool:
    """One message, without a traceback."""
    return err.startswith(("error: ", "Usage: ")) and "Traceback" not in err and len(err) < 8000


@pytest.mark.usefixtures("in_time")
@pytest.mark.parametrize(("name", "parameter", "thing"), chosen(list(cases()), 60))
def test_a_hostile_path_is_one_error(
    ai500: Run, run: Path, tmp_path: Path, name: str, parameter: str, thing: str
) -> None:
    path = tmp_path / "hostile"
    make(thing, path)
    code, _, err = ai500(*words(name, parameter, path, run))
    assert (code, is_clear(err)) == (2, True), err


RUN_COMMANDS = [
    name
    for name, command in commands()
    if any(parameter in ("path", "run") for parameter in paths_of(command))
    # A profile and a roofline are measurements of minutes when nothing is wrong.
    and not name.startswith(("init", "keygen", "verify", "data", "study", "profile", "roofline"))
]
FILES = (
    "run.json", "plan.json", "config.toml", "system.json", "events.jsonl", "score.json",
    "findings.json", ".lock", "trials/01/jobs.json", "trials/01/placement.json",
    "trials/01/ensemble.json", "trials/01/bootstraps.json", "trials/01/members/000/record.json",
    "trials/01/members/000/task.json", "trials/01/members/000/events.jsonl",
    "trials/01/members/000/log.txt", "trials/01/members/000/progress.json",
    "trials/01/members/000/graph.json", "trials/01/meters/n1-000.jsonl",
    "trials/01/systems/n1-000.json",
)  # fmt: skip
INSIDE = [(name, file, thing) for name in RUN_COMMANDS for file in FILES for thing in THINGS]


@pytest.mark.usefixtures("in_time")
@pytest.mark.parametrize(("name", "file", "thing"), chosen(INSIDE, 60))
def test_a_hostile_file_of_a_run_is_one_error(
    ai500: Run, run: Path, tmp_path: Path, name: str, file: str, thing: str
) -> None:
    """A command may not read the file at all, or find that the run has no such trial any more."""
    copy = tmp_path / "run"
    shutil.copytree(run, copy)
    path = copy / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    make(thing, path)
    code, _, err = ai500(*words(name, "", tmp_path / "x", copy))
    assert code in (0, 1, 2)
    assert code == 0 or not err or is_clear(err), err


@pytest.mark.parametrize(
    "value", ["1" * 5000, "[" * 100_000, "{a=" * 50_000, "a." * 20_000 + "a=1", "nan", "inf",
              "-1", "1e999", "9" * 300, '"\\u0000"', '"\\ud800"', "\u202e", "[[[[1]]]]"],
)  # fmt: skip
@pytest.mark.parametrize("key", ["run.seed", "train.batch_size", "ensemble.size", "a" * 5000])
def test_hostile_settings(ai500: Run, in_time: None, key: str, value: str) -> None:
    code, _, err = ai500("plan", "--set", f"{key}={value}")
    assert (code, is_clear(err)) == (2, True), err[:300]


@pytest.mark.parametrize(
    "shape", ["99999999999,99999999999,3", "9" * 5000, "-1,3", "0,0,0", "nan,1", "[" * 5000, "x"]
)
def test_hostile_shapes(ai500: Run, in_time: None, shape: str) -> None:
    code, _, err = ai500("flops", "resnet50", "--input", shape)
    assert (code, is_clear(err)) == (2, True), err[:300]
