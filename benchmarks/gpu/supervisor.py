"""Parts of a benchmark in a process that may die: an illegal access or a hang costs one part."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

LONGEST_PART_SECONDS = 150.0


def supervised(module: str, parts: list[str], results: Path) -> None:
    """Runs `module --child --only …`, which adds to `done` in `results` after each part; a part
    that kills it, or takes too long, is noted and left out when it starts again."""
    results.unlink(missing_ok=True)
    left = list(parts)
    while left:
        before = len(left)
        command = [sys.executable, "-m", module, "--child", "--only", ",".join(left)]
        child = subprocess.Popen(command)
        code = _watched(child, results)
        left = [part for part in left if part not in _read(results).get("done", [])]
        if code == 0 or not left:
            return
        why = "took too long" if code is None else f"ended its process with {code}"
        print(f"{left[0]}: FAILED, {why}; {before - len(left)} parts before it ran", flush=True)
        left = left[1:]


def _watched(child: subprocess.Popen[bytes], results: Path) -> int | None:
    """Its exit code; None if it was stopped because no part came to an end for too long."""
    done, since = 0, time.monotonic()
    while child.poll() is None:
        time.sleep(0.5)
        now = len(_read(results).get("done", []))
        if now > done:
            done, since = now, time.monotonic()
        if time.monotonic() - since > LONGEST_PART_SECONDS:
            child.kill()
            child.wait()
            return None
    return child.returncode


def _read(results: Path) -> dict[str, list[str]]:
    try:
        found: dict[str, list[str]] = json.loads(results.read_text())
    except (OSError, ValueError):
        return {}
    return found
