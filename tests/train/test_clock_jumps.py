"""The wall clock jumps by an hour while a run trains, in either direction: the same result."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ai500.records import Score, run_folder
from ai500.records.run_folder import RunFolder
from tests.soak.ensembles import Ensemble
from tests.support.commands import Command, wait_for

pytestmark = [pytest.mark.long, pytest.mark.timeout(3600)]
HOUR = 3600
COMMAND_SECONDS = 1500  # a busy machine
ENSEMBLE = Ensemble("image_classification", (256, 64), epochs=8, size=1)


def environment(folder: Path, offset: Path | None) -> dict[str, str]:
    if offset is None:
        return {"TMPDIR": str(folder)}
    libraries = sorted(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"))
    assert libraries, "Debian's package faketime is missing: `make debian-packages` installs it"
    return {
        "TMPDIR": str(folder),
        "LD_PRELOAD": str(libraries[0]),
        "FAKETIME_TIMESTAMP_FILE": str(offset),
        "FAKETIME_NO_CACHE": "1",  # read the file at every call: the clock jumps
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
    }


def violations(run: Path) -> set[str]:
    """Return the rules that a finished run breaks."""
    findings = json.loads((run / "findings.json").read_text(encoding="utf-8"))
    return {finding["rule"] for finding in findings if finding["severity"] == "violation"}


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return ENSEMBLE.write_store(tmp_path_factory.mktemp("data"))


@pytest.fixture(scope="module")
def undisturbed(store: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("undisturbed")
    command = Command(
        *ENSEMBLE.arguments(store, folder / "run"), cwd=folder, environment={"TMPDIR": str(folder)}
    )
    assert command.wait(COMMAND_SECONDS) == 0, command.err
    return folder / "run"


@pytest.mark.parametrize("jump", [HOUR, -HOUR])
def test_the_clock_jumps_while_a_member_trains(
    jump: int, store: Path, undisturbed: Path, tmp_path: Path
) -> None:
    offset, run = tmp_path / "offset", tmp_path / "run"
    offset.write_text("+0\n")
    variables = environment(tmp_path, offset)
    command = Command(*ENSEMBLE.arguments(store, run), cwd=tmp_path, environment=variables)
    log = RunFolder(run).trial(1).member(0).events
    before = wait_for(log, "epoch", timeout=COMMAND_SECONDS)
    offset.write_text(f"{jump:+}\n")
    assert command.wait(COMMAND_SECONDS) == 0, command.err
    after = wait_for(log, "end")
    seconds = after["monotonic"] - before["monotonic"]
    assert after["wall"] - before["wall"] == pytest.approx(seconds + jump, abs=5), "no jump"
    assert ENSEMBLE.result(run) == ENSEMBLE.result(undisturbed)
    score = run_folder.read(Score, RunFolder(run).score)
    assert 0 < score.seconds < HOUR / 2
    assert violations(run) == violations(undisturbed)
