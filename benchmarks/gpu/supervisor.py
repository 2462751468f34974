"""Parts of a benchmark in a process that may die: an illegal access or a hang costs one part."""

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

LONGEST_PART_SECONDS = 150.0


@dataclass(frozen=True)
class Benchmark:
    """A module of many parts, each of which adds to `results`."""

    module: str
    parts: Mapping[str, Callable[[], None]]
    begin: Callable[[], object]
    """Before the first part, and again in each process that goes on after one died."""
    results: dict[str, Any]
    file: Path
    table: Callable[[dict[str, Any]], str]
    without_gpu: str
    """What to do, or why nothing can be done, where there is none."""


def make_parser(benchmark: Benchmark, description: str | None) -> argparse.ArgumentParser:
    """For what every such module is asked; a module may add to it."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--only", default=",".join(benchmark.parts))
    parser.add_argument("--child", action="store_true", help="used by the supervisor")
    return parser


def run_benchmark(
    benchmark: Benchmark, parser: argparse.ArgumentParser, arguments: argparse.Namespace
) -> None:
    """The parts that are asked for, then the table; as a child the parts alone."""
    parts = arguments.only.split(",")
    unknown = [one for one in parts if one not in benchmark.parts]
    if unknown:
        parser.error(f"no such part: {', '.join(unknown)}")
    if arguments.child:
        _run(benchmark, parts)
        return
    if not torch.cuda.is_available():
        parser.error(f"no GPU: {benchmark.without_gpu}")
    supervised(benchmark.module, parts, benchmark.file)
    if benchmark.file.exists():
        print(benchmark.table(json.loads(benchmark.file.read_text())))


def _run(benchmark: Benchmark, parts: list[str]) -> None:
    """Each part, its error if it has one, and the results so far."""
    results, file = benchmark.results, benchmark.file
    if file.exists():
        results.update(json.loads(file.read_text()))
    benchmark.begin()
    print(torch.__version__, torch.cuda.get_device_name(), flush=True)
    for name in parts:
        began = time.perf_counter()
        try:
            benchmark.parts[name]()
        except Exception as error:
            results.setdefault("errors", {})[name] = traceback.format_exc()
            print(f"{name}: FAILED {type(error).__name__}: {str(error)[:1500]}", flush=True)
            traceback.clear_frames(error.__traceback__)
        torch.cuda.synchronize()  # raises, and ends the process, if the GPU is of no more use
        gc.collect()
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        print(f"[{name}: {time.perf_counter() - began:.0f} s]", flush=True)
        results.setdefault("done", []).append(name)
        atomic.write_text(file, json.dumps(results, indent=1))


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
