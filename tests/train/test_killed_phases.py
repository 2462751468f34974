"""SIGKILL inside every phase of a run of each workload: resumed, it has the same result."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.soak.ensembles import ENSEMBLES, Ensemble
from tests.support.commands import SOURCE, Command, processes_of

pytestmark = [pytest.mark.long, pytest.mark.timeout(3600)]
HOOK = Path(__file__).parents[1] / "support" / "kill_points"
COMMAND_SECONDS = 1500  # a busy machine takes a hundred times as long as an idle one

RENAME = ("pathlib", "Path.replace")  # between a temporary file and its place
PHASES = {
    "stage": ("ai500.parallel.data_duplicator", "_finish", "", 1),
    "sample": (*RENAME, "bootstraps.json", 1),
    "train": ("ai500.train.loop", "_step_seed", "", 1),
    "evaluate": ("ai500.train.evaluate", "_gather", "", 1),
    "checkpoint": (*RENAME, "checkpoint.pt'", 2),
    "predictions": (*RENAME, "out_of_bag.npy", 1),
    "record": (*RENAME, "record.json", 1),
    "aggregate": (*RENAME, "ensemble.json", 1),
    "score": (*RENAME, "01/score.json", 1),
    "report": (*RENAME, "report.html", 1),
}
OF_ENSEMBLES_ONLY = ("predictions",)
MADE = {
    "generate": ("ai500.data.store_writer", "StoreWriter.write", "", 1),
    "append": ("ai500.data.store_writer", "Appender._append", "", 1),
    "finish": ("ai500.data.store_writer", "StoreWriter.finish", "", 1),
}
EACH_WORKLOAD = {ensemble.workload: ensemble for ensemble in ENSEMBLES}
GENERATE = """
import sys
from pathlib import Path
from tests.soak.ensembles import ENSEMBLES
if __name__ == "__main__":
    ensemble = next(each for each in ENSEMBLES if each.workload == sys.argv[1])
    ensemble.write_store(Path(sys.argv[2]))
"""


def environment(points: dict[str, tuple[str, str, str, int]], folder: Path) -> dict[str, str]:
    marks = folder / "marks"
    marks.mkdir(exist_ok=True)
    return {
        "PYTHONPATH": f"{HOOK}{os.pathsep}{SOURCE}{os.pathsep}{SOURCE.parent}",
        "AI500_KILL_POINTS": json.dumps(points),
        "AI500_KILL_MARKS": str(marks),
        "TMPDIR": str(folder),
        "COLUMNS": "1000",
    }


def killed_in(folder: Path) -> set[str]:
    return {mark.name for mark in (folder / "marks").iterdir()}


def finish(ensemble: Ensemble, store: Path, run: Path, variables: dict[str, str]) -> None:
    """Begin a run and resume it until it ends by itself."""
    before: set[str] = set()
    while True:
        words = ["resume", run] if (run / "run.json").exists() else ensemble.arguments(store, run)
        command = Command(*words, cwd=run.parent, environment=variables)
        code = command.wait(timeout=COMMAND_SECONDS)
        assert not processes_of(run)
        if code == 0:
            return
        now = killed_in(run.parent)
        assert now > before, f"exit code {code}, but nothing was killed: {command.err}"
        before = now


@pytest.mark.parametrize("workload", EACH_WORKLOAD)
def test_a_run_killed_in_each_phase_has_the_same_result(workload: str, tmp_path: Path) -> None:
    ensemble = EACH_WORKLOAD[workload]
    store = ensemble.write_store(tmp_path)
    undisturbed, disturbed = tmp_path / "undisturbed", tmp_path / "disturbed"
    finish(ensemble, store, undisturbed, environment({}, tmp_path))
    phases = {
        name: point
        for name, point in PHASES.items()
        if not (ensemble.is_search and name in OF_ENSEMBLES_ONLY)
    }
    finish(ensemble, store, disturbed, environment(phases, tmp_path))
    assert killed_in(tmp_path) == set(phases)
    assert ensemble.result(disturbed) == ensemble.result(undisturbed)


@pytest.mark.parametrize("workload", EACH_WORKLOAD)
def test_a_store_whose_generation_is_killed_in_each_phase_is_the_same(
    workload: str, tmp_path: Path
) -> None:
    script = tmp_path / "generate.py"
    script.write_text(GENERATE)
    stores = []
    for name, points in (("undisturbed", {}), ("disturbed", MADE)):
        folder = tmp_path / name
        folder.mkdir()
        for _ in range(len(points) + 1):
            subprocess.run(
                [sys.executable, script, workload, folder],
                env={**os.environ, **environment(points, folder)},
                stderr=subprocess.DEVNULL,
                timeout=COMMAND_SECONDS,
            )
        assert killed_in(folder) == set(points)
        files = (folder / "store").iterdir()
        stores.append({file.name: file.read_bytes() for file in files if file.suffix != ".lock"})
    assert stores[0].keys() >= {"manifest.json", "train.digests.npy"}
    assert stores[0] == stores[1]
