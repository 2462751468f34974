"""`ai500.run` and `ai500.resume` from a script, without an observer."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import ai500
from tests.support.commands import SOURCE

SCRIPT = """
import sys
import ai500

if __name__ == "__main__":
    config = ai500.load_config(overrides={
        "data.path": sys.argv[1], "train.epochs": 1, "ensemble.size": 1, "parallel.degree": 1,
        "system.accelerators_per_node": 1, "system.cores_per_slot": 1,
    })
    run = ai500.run(config, "run")
    again = ai500.resume("run")
    assert again.score == run.score
    print(run.score.vflops)
"""


def test_a_run_from_python_prints_nothing_of_its_own(tiny_store: Path, tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)
    done = subprocess.run(
        [sys.executable, "script.py", str(tiny_store)],
        cwd=tmp_path,
        env={"PYTHONPATH": str(SOURCE), "PATH": "/usr/bin:/bin", "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    run = ai500.open_run(tmp_path / "run")
    assert run.state == "finished"
    assert float(done.stdout) == run.score.vflops
    assert run.report.exists()
