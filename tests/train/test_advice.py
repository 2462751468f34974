"""Advice is never circular: followed word for word, it mends a run, or says that nothing can."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from ai500.records import Score, TrainRecord, run_folder
from ai500.records.run_folder import RunFolder
from tests.support.commands import SOURCE

pytestmark = [pytest.mark.long, pytest.mark.timeout(3000)]

WORD = r"(?:'[^']*'|[^\s`]+)"
ADVICE = re.compile(rf"(?:rm {WORD} && |mv {WORD} {WORD} && )?ai500 resume {WORD}")
NO_REMEDY = re.compile("[Rr]estore (it|the file|the folder) from a backup")
IRREPLACEABLE = {"run.json", "plan.json", "config.toml", "trial.json", "bootstraps.json",
                 "system.json"}  # fmt: skip
"""Files from which all others follow: if one is lost, only a new run is left."""
MAX_COMMANDS = 7


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


DAMAGES: dict[str, Callable[[Path], object]] = {
    "removed": Path.unlink,
    "emptied": lambda path: path.write_bytes(b""),
    "flipped": flip,
}


def one_of_each_kind(run: Path) -> list[Path]:
    """List the last file of each kind: those that differ in numbers only are of one kind."""
    kinds = {
        re.sub(r"\d+", "0", str(path.relative_to(run))): path.relative_to(run)
        for path in sorted(run.rglob("*"))
        if path.is_file() and path.stat().st_size
    }
    return sorted(kinds.values())


def result(run: Path) -> object:
    folder = RunFolder(run)
    members = [folder.trial(trial).member(m) for trial in (1, 2) for m in (0, 1)]
    score = run_folder.read(Score, folder.score)
    weights = [run_folder.read(TrainRecord, member.record).weights_sha256 for member in members]
    return weights, score.ensemble_quality, score.operations


class Shell:
    """A user who types a command, and then what its error advises."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        script = folder / "bin" / "ai500"
        script.parent.mkdir()
        script.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m ai500 "$@"\n')
        script.chmod(0o755)
        self._environment = {
            **os.environ, "PATH": f"{script.parent}:{os.environ['PATH']}", "COLUMNS": "1000",
            "PYTHONPATH": str(SOURCE), "TMPDIR": str(folder), "NO_COLOR": "1",
        }  # fmt: skip

    def type(self, line: str) -> tuple[int, str]:
        done = subprocess.run(
            ["sh", "-c", line], cwd=self._folder, env=self._environment, capture_output=True,
            text=True, timeout=600,
        )  # fmt: skip
        assert "Traceback" not in done.stderr, done.stderr
        return done.returncode, done.stderr

    def follow(self, command: str) -> str:
        """Type a command, what its error advises, and it again; return an error without advice."""
        line, typed = command, set()
        for _ in range(MAX_COMMANDS):
            code, err = self.type(line)
            advice = ADVICE.search(err)
            if code == 0 and line == command:
                return ""
            if code == 0:
                line = command
            elif advice is None:
                return err
            else:
                assert advice.group() not in typed, f"circular: {err}"
                typed.add(advice.group())
                line = advice.group()
        raise AssertionError(f"no end: {typed}")


@pytest.mark.parametrize("damage", DAMAGES)
def test_advice_about_any_file_of_a_run_works(
    damage: str, finished_run: Path, tmp_path: Path
) -> None:
    shell, run = Shell(tmp_path), tmp_path / "my [first] run"
    problems = []
    for file in one_of_each_kind(finished_run):
        shutil.rmtree(run, ignore_errors=True)
        shutil.copytree(finished_run, run)
        DAMAGES[damage](run / file)
        try:
            for command in ("score", "report", "resume"):
                if err := shell.follow(f"ai500 {command} {shlex.quote(str(run))}"):
                    assert NO_REMEDY.search(err), f"no advice: {err}"
                    assert file.name in IRREPLACEABLE, f"not mended: {err}"
                    break
            else:
                assert result(run) == result(finished_run)
        except Exception as error:
            problems.append(f"{file}: {error}")
    assert not problems, "\n".join(problems)
