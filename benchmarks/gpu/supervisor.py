"""Run parts of a benchmark in a child process: a crash or a hang costs one part only."""

from __future__ import annotations

import argparse
import gc
import json
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from ai500.core import atomic

# Timeout of a part.
PART_TIMEOUT_SECONDS = 150.0


@dataclass(frozen=True)
class Benchmark:
    """A module with several parts, each of which adds to `results`."""

    module: str
    parts: Mapping[str, Callable[[], None]]
    begin: Callable[[], object]
    """Called before the first part, and again in each process that continues after a crash."""
    results: dict[str, Any]
    file: Path
    table: Callable[[dict[str, Any]], str]
    without_gpu: str
    """Explanation printed where there is no GPU."""


def make_parser(benchmark: Benchmark, description: str | None) -> argparse.ArgumentParser:
    """Return a parser with the options of every benchmark; a module may add to it."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--only", default=",".join(benchmark.parts))
    parser.add_argument("--child", action="store_true", help="used by the supervisor")
    return parser


def run_benchmark(
    benchmark: Benchmark, parser: argparse.ArgumentParser, arguments: argparse.Namespace
) -> None:
    """Run the selected parts, then print the table; a child runs only the parts."""
    parts = arguments.only.split(",")
    unknown = [part for part in parts if part not in benchmark.parts]
    if unknown:
        parser.error(f"no such part: {', '.join(unknown)}")
    if arguments.child:
        _run(benchmark, parts)
        return
    if not torch.cuda.is_available():
        parser.error(f"no GPU: {benchmark.without_gpu}")
    run_supervised(benchmark.module, parts, benchmark.file)
    if benchmark.file.exists():
        print(benchmark.table(json.loads(benchmark.file.read_text())))


def _run(benchmark: Benchmark, parts: list[str]) -> None:
    """Run each part, report its error, and save the results so far."""
    results, file = benchmark.results, benchmark.file
    if file.exists():
        results.update(json.loads(file.read_text()))
    benchmark.begin()
    print(torch.__version__, torch.cuda.get_device_name(), flush=True)
    for name in parts:
        start = time.perf_counter()
        try:
            benchmark.parts[name]()
        except Exception as error:
            results.setdefault("errors", {})[name] = traceback.format_exc()
            print(f"{name}: FAILED {type(error).__name__}: {str(error)[:1500]}", flush=True)
            traceback.clear_frames(error.__traceback__)
        torch.cuda.synchronize()  # raises, and ends the process, if the GPU is unusable
        gc.collect()
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        print(f"[{name}: {time.perf_counter() - start:.0f} s]", flush=True)
        results.setdefault("done", []).append(name)
        atomic.write_text(file, json.dumps(results, indent=1))


def run_supervised(module: str, parts: list[str], results: Path) -> None:
    """Run `module --child --only …`, which adds each finished part to `done` in `results`.

    A part that crashes the child, or takes too long, is reported and skipped at the restart.
    """
    results.unlink(missing_ok=True)
    pending = list(parts)
    while pending:
        count = len(pending)
        command = [sys.executable, "-m", module, "--child", "--only", ",".join(pending)]
        child = subprocess.Popen(command)
        code = _wait_for(child, results)
        pending = [part for part in pending if part not in _read(results).get("done", [])]
        if code == 0 or not pending:
            return
        reason = "took too long" if code is None else f"ended its process with {code}"
        print(
            f"{pending[0]}: FAILED, {reason}; {count - len(pending)} parts before it ran",
            flush=True,
        )
        pending = pending[1:]


def _wait_for(child: subprocess.Popen[bytes], results: Path) -> int | None:
    """Return the exit code; None if the child was killed because no part finished in time."""
    done, since = 0, time.monotonic()
    while child.poll() is None:
        time.sleep(0.5)
        finished = len(_read(results).get("done", []))
        if finished > done:
            done, since = finished, time.monotonic()
        if time.monotonic() - since > PART_TIMEOUT_SECONDS:
            child.kill()
            child.wait()
            return None
    return child.returncode


def _read(results: Path) -> dict[str, list[str]]:
    try:
        data: dict[str, list[str]] = json.loads(results.read_text())
    except (OSError, ValueError):
        return {}
    return data
