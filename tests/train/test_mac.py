"""A local run where /proc, prctl, CPU affinity and all else that macOS lacks are hidden."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.commands import SOURCE, wait_for

MAC = Path(__file__).parents[1] / "support" / "mac"
HIDE_PROC = 'mount -t tmpfs none /proc && exec "$@"'


def on_a_mac(*words: str | Path, folder: Path) -> subprocess.Popen[str]:
    """Start Python without what macOS lacks; processes that it starts are without it, too."""
    namespace = ["unshare", "--mount", *([] if os.getuid() == 0 else ["--map-root-user"])]
    return subprocess.Popen(
        [*namespace, "sh", "-c", HIDE_PROC, "sh", sys.executable, *words],
        cwd=folder,
        env={
            **os.environ,
            "PYTHONPATH": f"{MAC}{os.pathsep}{SOURCE}",
            "PATH": f"{MAC}{os.pathsep}{os.environ['PATH']}",  # its sysctl
            "TMPDIR": str(folder),
            "AI500_CACHE": str(folder / "cache"),
            "NO_COLOR": "1",
        },
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def ended(process: subprocess.Popen[str]) -> tuple[int, str]:
    out, err = process.communicate(timeout=500)
    assert "Traceback" not in err, err
    return process.returncode, out + err


def ai500(*words: str | Path, folder: Path) -> tuple[int, str]:
    return ended(on_a_mac("-m", "ai500", *words, folder=folder))


@pytest.mark.slow
def test_it_is_hidden(tmp_path: Path) -> None:
    seen = "import ctypes, os, sys; print(sys.platform, os.listdir('/proc'), "
    seen += "hasattr(os, 'sched_getaffinity'), hasattr(ctypes.CDLL(None), 'prctl'))"
    assert ended(on_a_mac("-c", seen, folder=tmp_path)) == (0, "darwin [] False False\n")


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_a_run_is_interrupted_resumed_and_scored(tiny_store: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    process = on_a_mac(
        "-m", "ai500", "run", "--out", run, "--data", tiny_store, "--set", "train.epochs=6",
        "--set", "system.cores_per_slot=1", "--set", "system.accelerators_per_node=1",
        folder=tmp_path,
    )  # fmt: skip
    first = wait_for(run / "events.jsonl", "epoch", timeout=500)
    process.send_signal(signal.SIGINT)
    assert ended(process)[0] == 130
    assert first["boot"]
    code, out = ai500("resume", run, folder=tmp_path)
    assert code == 0, out
    (trial,) = json.loads((run / "score.json").read_text())["trials"]
    assert trial["clock_uncertainty_seconds"] == 0  # one host, one boot
    for command in ("runs", "score", "status", "report", "check", "doctor", "system", "clean"):
        words = (command,) if command in ("runs", "doctor") else (command, run)
        code, out = ai500(*words, folder=tmp_path)
        assert code in (0, 1), out
    code, out = ai500("clean", "--scratch", folder=tmp_path)
    assert (code, "/proc" in out) == (3, True)


@pytest.mark.long
@pytest.mark.timeout(900)
def test_ceilings_are_measured(tmp_path: Path) -> None:
    code, out = ai500("roofline", "--seconds", "2", "--ranks", "1", folder=tmp_path)
    assert code == 0, out
