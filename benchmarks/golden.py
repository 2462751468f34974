"""Compare the numbers of two commits bit by bit: the guard of a refactoring.

Each commit is checked out into a scratch worktree and runs its own code. `.` as NEW is the working
tree. Numbers are compared, not file, key or parameter names: the tables of `golden_quantities.py`
and the settings below list every name that each has had. When a commit renames one, add the new
name there (`old|new`). A quantity that a side lacks is a failure, as is a part that does not run.

    python benchmarks/golden.py OLD NEW [--only PART ...] [--epochs N|full] [--keep DIR]

| part | what runs |
|---|---|
| classification, weather | class `smoke`, M = 2 members of P = 2 CPU slots, in waves |
| search | one automl worker of two slots on packed images, until SEARCH_MODELS models have ended |
| plan | `ai500 plan --class full --json` of every workload on stated systems |
| examples | `score`, `check`, `study report` of docs/examples, each commit on its own copy |

Results of a commit are kept (in the user's cache folder, or `--keep`) and not computed again; the
working tree, and NEW where it is the same commit as OLD, always run afresh. FLOPS, seconds and
watts of fresh runs depend on the load of the machine and are not compared.

Exit code: 0 all equal, 1 something differs or did not run, 2 bad usage.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import platform
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from golden_quantities import (
    QUANTITIES,
    SEARCH_MODELS,
    SEARCHED_WEIGHTS,
    Array,
    Labelled,
    MissingError,
    Value,
    find,
)

ROOT = Path(__file__).resolve().parents[1]
PARTS = ("classification", "weather", "search", "plan", "examples")
# Two of warm-up and one of decay for classification: the schedule's both branches.
EPOCHS = "3"
# Most epochs of a model. Rounds 3 and 4 train for three and four: enough to fit a learning curve.
SEARCH_EPOCHS = 5
SEARCH_CLASSES, SEARCH_IMAGES, SEARCH_SIDE = 10, 800, 24
# To be increased when a command below changes: results that are kept are then computed again.
RECIPE = 1
# Upper bound of one command; a hanging run then fails with the tail of its output.
LIMIT_SECONDS = 1800
TAIL_LINES = 15

# Configuration key of every setting, `old|new`; the names that a commit knows are read from the
# file that its `ai500 init` writes.
SETTINGS = {
    "members": "ensemble.size",
    "degree": "parallel.degree",
    "epochs": "train.epochs",
    "device": "system.device",
    "nodes": "system.nodes",
    "slots": "system.accelerators_per_node",
    "cores": "system.cores_per_slot",
    "meter seconds": "run.meter_seconds",
    "poll seconds": "scheduler.poll_seconds",
    "search minutes": "automl.minutes",
    "search batch sizes": "automl.batch_sizes",
    "kept models": "automl.kept_models",
}
# One core a slot: one thread a rank, so that sums have the same order on every machine.
CPU_SLOTS: dict[str, Any] = {
    "device": "cpu", "slots": 2, "cores": 1, "degree": 2, "meter seconds": 0, "poll seconds": 0.1,
}  # fmt: skip
SEARCH: dict[str, Any] = {
    **CPU_SLOTS, "members": 1, "epochs": SEARCH_EPOCHS, "search batch sizes": [16, 32],
    # Weights of every model stay on disk, and the search ends by the number of models, not by time.
    "kept models": 64, "search minutes": LIMIT_SECONDS / 60,
}  # fmt: skip
PLANNED_SYSTEMS: dict[str, dict[str, Any]] = {
    "8-nodes": {"nodes": 8, "slots": 8, "device": "cuda"},
    "two-nodes-a-member": {"nodes": 8, "slots": 8, "device": "cuda", "degree": 16},
}
WORKLOADS = ("image_classification", "extreme_weather", "automl")

# Names of the thread pool that prepares a search's next model beside the training. Which models it
# knows of depends on timing; `SYNCHRONOUS_POOLS` makes it run each call at once instead.
SEARCH_POOLS = ("search",)
SYNCHRONOUS_POOLS = """
import concurrent.futures
import concurrent.futures.thread
import os

ThreadPoolExecutor = concurrent.futures.thread.ThreadPoolExecutor


class Synchronous:
    def submit(self, function, /, *arguments, **options):
        future = concurrent.futures.Future()
        future.set_running_or_notify_cancel()
        try:
            future.set_result(function(*arguments, **options))
        except BaseException as error:
            future.set_exception(error)
        return future

    def shutdown(self, wait=True, *, cancel_futures=False):
        pass


class Pool(ThreadPoolExecutor):
    def __new__(cls, *arguments, **options):
        names = {options.get("thread_name_prefix"), *arguments[1:2]}
        if not names & set(os.environ["GOLDEN_POOLS"].split(",")):
            return super().__new__(cls)
        with open(os.environ["GOLDEN_MARKER"], "a") as marker:
            marker.write("x")
        return Synchronous()


concurrent.futures.ThreadPoolExecutor = Pool
"""

# Files that mark a folder of docs/examples as a run or a study, and suffixes of submissions.
RUN_MARKERS = ("run.json",)
STUDY_MARKERS = ("study.json",)
SUBMISSION_SUFFIXES = (".ai500",)


class PartError(Exception):
    """A part could not be run."""


class Checkout:
    """The code of one commit, and a scratch folder to run it in."""

    def __init__(self, tree: Path, scratch: Path) -> None:
        self.tree, self.scratch = tree, scratch
        self._known: set[str] | None = None

    def ai500(
        self,
        *arguments: str | Path,
        codes: tuple[int, ...] = (0,),
        environment: dict[str, str] | None = None,
    ) -> str:
        """Run a command of the commit to its end and return what it printed."""
        process = self.start(*arguments, environment=environment)
        try:
            output, errors = process.communicate(timeout=LIMIT_SECONDS)
        except subprocess.TimeoutExpired:
            self.stop(process)
            output, errors = process.communicate()
            errors += f"\nstopped after {LIMIT_SECONDS} s"
        except BaseException:
            self.stop(process)
            raise
        if process.returncode not in codes:
            command = " ".join(map(str, arguments))
            raise PartError(
                f"ai500 {command}\nexit code {process.returncode}\n{tail(output + errors)}"
            )
        return output

    def start(
        self, *arguments: str | Path, environment: dict[str, str] | None = None
    ) -> subprocess.Popen[str]:
        """Start a command in a process group of its own."""
        work = self.scratch / "work"
        work.mkdir(exist_ok=True)
        return subprocess.Popen(
            [sys.executable, "-m", "ai500", *map(str, arguments)],
            cwd=work,
            # A cache of the commit's own: what it generates is part of what is compared.
            env={
                **os.environ,
                "PYTHONPATH": str(self.tree / "src"),
                "AI500_CACHE": str(self.scratch / "cache"),
                "XDG_CACHE_HOME": str(self.scratch / "cache"),
                "TMPDIR": str(work),
                "OMP_NUM_THREADS": "1",
                **(environment or {}),
            },
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def stop(self, process: subprocess.Popen[str]) -> None:
        """Interrupt a command as Ctrl-C does; kill its process group if it does not end."""
        process.send_signal(signal.SIGINT)
        try:
            process.wait(timeout=60)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def settings(self, values: dict[str, Any]) -> list[str]:
        """Return `--set` options in the names that this commit knows."""
        if self._known is None:
            file = self.scratch / "work" / "ai500.toml"
            self.ai500("init")
            self._known = configuration_keys(file.read_text(encoding="utf-8"))
            file.unlink()  # the commands that follow would read it
        options = []
        for setting, value in values.items():
            key = next((key for key in SETTINGS[setting].split("|") if key in self._known), None)
            if key is None:
                raise PartError(f"`ai500 init` does not name {SETTINGS[setting]} ({setting})")
            options += ["--set", f"{key}={json.dumps(value)}"]
        return options


def configuration_keys(text: str) -> set[str]:
    """List the keys, with their sections, of the file that `ai500 init` writes."""
    keys, section = set(), ""
    for line in text.splitlines():
        if heading := re.fullmatch(r"\[([\w.]+)\]", line):
            section = f"{heading[1]}."
        elif assignment := re.match(r"#?(\w+) =", line):
            keys.add(section + assignment[1])
    return keys


def tail(output: str) -> str:
    """Return the last lines, indented."""
    return "\n".join(f"    {line}" for line in output.strip().splitlines()[-TAIL_LINES:])


def train(checkout: Checkout, results: Path, *, workload: str, epochs: str) -> None:
    """Train class `smoke` with M = 2 and P = 2."""
    values = {**CPU_SLOTS, "members": 2}
    if epochs != "full":
        values["epochs"] = int(epochs)
    settings = checkout.settings(values)
    checkout.ai500("run", "--workload", workload, "--class", "smoke", "--out", results, *settings)


def search(checkout: Checkout, results: Path) -> None:
    """Search until the compared models have ended, then interrupt the run."""
    scratch = checkout.scratch / "search"
    scratch.mkdir()
    (scratch / "sitecustomize.py").write_text(SYNCHRONOUS_POOLS)
    marker = scratch / "marker"
    environment = {
        "PYTHONPATH": os.pathsep.join([str(scratch), str(checkout.tree / "src")]),
        "GOLDEN_POOLS": ",".join(SEARCH_POOLS),
        "GOLDEN_MARKER": str(marker),
    }
    pack_images(checkout, scratch)
    arguments: list[str | Path] = [
        "run", "--workload", "automl", "--class", "smoke", "--data", scratch / "store",
        "--out", results, *checkout.settings(SEARCH),
    ]  # fmt: skip
    process = checkout.start(*arguments, environment=environment)
    ended = 0
    try:
        deadline = time.monotonic() + LIMIT_SECONDS
        # One more than compared: the last one's lines in the history are then complete.
        while ended <= SEARCH_MODELS and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.2)
            ended = sum(len(list(results.glob(pattern))) for pattern in SEARCHED_WEIGHTS.split("|"))
    finally:
        if process.poll() is None:
            checkout.stop(process)
        output = "".join(process.communicate())
    if ended <= SEARCH_MODELS:
        raise PartError(f"{ended} models ended, {SEARCH_MODELS + 1} are needed\n{tail(output)}")
    if not marker.exists():
        raise PartError(
            f"the search has no thread pool named {', '.join(SEARCH_POOLS)}: its order depends on "
            "timing. Add the pool's name to SEARCH_POOLS."
        )


def pack_images(checkout: Checkout, folder: Path) -> None:
    """Pack images that are a class's pattern under noise; the same draws on every machine."""
    draws = np.random.Generator(np.random.PCG64(20))
    shape = (SEARCH_SIDE, SEARCH_SIDE, 3)
    patterns = draws.integers(0, 256, (SEARCH_CLASSES, *shape))
    labels = np.arange(SEARCH_IMAGES) % SEARCH_CLASSES
    # Mostly noise: no model may reach an error of 0 within the compared rounds.
    images = (patterns[labels] + 9 * draws.integers(0, 256, (SEARCH_IMAGES, *shape))) // 10
    np.save(folder / "images.npy", images.astype(np.uint8))
    np.save(folder / "labels.npy", labels)
    checkout.ai500(
        "data", "pack", folder / "images.npy", "--labels", folder / "labels.npy",
        "--out", folder / "store", "--size", str(SEARCH_SIDE), "--validation", "0.2",
        "--workers", "1",
    )  # fmt: skip


def plan(checkout: Checkout, results: Path) -> None:
    """Plan class `full` of every workload on the stated systems."""
    for workload in WORKLOADS:
        for name, system in PLANNED_SYSTEMS.items():
            options = ("--workload", workload, "--class", "full", *checkout.settings(system))
            (results / workload).mkdir(exist_ok=True)
            text = checkout.ai500("plan", *options, "--json")
            (results / workload / f"{name}.json").write_text(text)


def examples(checkout: Checkout, results: Path) -> None:
    """Score and judge every run, submission and study of the commit's docs/examples."""
    source, copy = checkout.tree / "docs" / "examples", checkout.scratch / "examples"
    shutil.copytree(source, copy)
    for path in sorted(copy.rglob("*")):
        into = results / path.relative_to(copy)
        if path.is_file() and path.suffix in SUBMISSION_SUFFIXES:
            into.mkdir(parents=True)
            write(into / "score.json", checkout.ai500("verify", path, "--json", codes=(0, 1)))
            write(into / "check.json", checkout.ai500("check", path, "--json", codes=(0, 1)))
        elif path.name in RUN_MARKERS:
            into.parent.mkdir(parents=True)
            write(into.parent / "score.json", checkout.ai500("score", path.parent, "--json"))
            check = checkout.ai500("check", path.parent, "--json", codes=(0, 1))
            write(into.parent / "check.json", check)
        elif path.name in STUDY_MARKERS:
            into.parent.mkdir(parents=True)
            checkout.ai500("study", "report", path.parent)
            (result,) = find(path.parent, "result.json")
            write(into.parent / "study.json", result.read_text(encoding="utf-8"))


def write(path: Path, text: str) -> None:
    """Write JSON that a command printed; anything else is a failure of the part."""
    try:
        json.loads(text)
    except ValueError as error:
        raise PartError(f"{path.name} is no JSON ({error}):\n{tail(text)}") from None
    path.write_text(text, encoding="utf-8")


def run_part(part: str, checkout: Checkout, results: Path, *, epochs: str) -> None:
    """Leave a part's results in a folder that does not exist yet."""
    if part == "classification":
        train(checkout, results, workload="image_classification", epochs=epochs)
    elif part == "weather":
        train(checkout, results, workload="extreme_weather", epochs=epochs)
    else:
        if part != "search":  # whose folder `ai500 run` makes
            results.mkdir(parents=True)
        {"search": search, "plan": plan, "examples": examples}[part](checkout, results)


def recipe(part: str, *, epochs: str) -> str:
    """Digest what a part's numbers depend on besides the commit."""
    settings = [
        RECIPE, part, epochs if part in ("classification", "weather") else "", CPU_SLOTS, SEARCH,
        SEARCH_MODELS, SEARCH_IMAGES, PLANNED_SYSTEMS, SYNCHRONOUS_POOLS,
        sys.version, torch.__version__, np.__version__, platform.machine(), platform.node(),
    ]  # fmt: skip
    return hashlib.sha256(json.dumps(settings).encode()).hexdigest()[:12]


@contextmanager
def checked_out(commit: str | None, scratch: Path) -> Iterator[Checkout]:
    """Check a commit out; None is the working tree."""
    scratch.mkdir()
    tree = ROOT if commit is None else scratch / "tree"
    if commit is not None:
        git("worktree", "add", "--detach", "--quiet", str(tree), commit)
    try:
        yield Checkout(tree, scratch)
    finally:
        if commit is not None:
            git("worktree", "remove", "--force", str(tree))
        shutil.rmtree(scratch, ignore_errors=True)  # generated data are large


def results_of(
    commit: str | None,
    parts: Iterable[str],
    *,
    name: str,
    folder: Path,
    scratch: Path,
    epochs: str,
) -> dict[str, Path | PartError]:
    """Run the parts that are not kept yet; return the folder of each, or why it has none."""
    results: dict[str, Path | PartError] = {}
    missing = []
    for part in parts:
        place = folder / f"{part}-{recipe(part, epochs=epochs)}"
        if place.is_dir():
            print(f"{name}: {part} is kept in {place}", file=sys.stderr)
            results[part] = place
        else:
            missing.append((part, place))
    if not missing:
        return results
    with checked_out(commit, scratch / name) as checkout:
        for part, place in missing:
            began = time.monotonic()
            unfinished = scratch / f"{name}-{part}"
            try:
                run_part(part, checkout, unfinished, epochs=epochs)
            except (PartError, MissingError) as error:
                results[part] = PartError(str(error))
            else:
                place.parent.mkdir(parents=True, exist_ok=True)
                shutil.move(unfinished, place)
                results[part] = place
            seconds = time.monotonic() - began
            print(f"{name}: {part} took {seconds:.0f} s", file=sys.stderr, flush=True)
    return results


@dataclass(frozen=True)
class Row:
    """The comparison of one quantity."""

    part: str
    quantity: str
    compared: int
    result: Literal["equal", "DIFFERENT", "MISSING", "NOT RUN"]
    reason: str | None = None


def compare(part: str, old: Path | PartError, new: Path | PartError) -> Iterator[Row]:
    """Compare every quantity of a part."""
    for side, results in (("OLD", old), ("NEW", new)):
        if isinstance(results, PartError):
            yield Row(part, "all", 0, "NOT RUN", f"{side} could not run: {results}")
    if isinstance(old, PartError) or isinstance(new, PartError):
        return
    for quantity, read in QUANTITIES[part].items():
        values: list[list[Labelled]] = []
        missing = []
        for side, results in (("OLD", old), ("NEW", new)):
            try:
                values.append(list(read(results)))
            except Exception as error:  # a changed format may fail in any way: it is reported
                missing.append(f"missing in {side}: {type(error).__name__}: {error}")
        if missing:
            yield Row(part, quantity, 0, "MISSING", "; ".join(missing))
        else:
            compared = sum(size(value) for _, value in values[0])
            difference = first_difference(*values)
            result: Literal["equal", "DIFFERENT"] = "DIFFERENT" if difference else "equal"
            yield Row(part, quantity, compared, result, difference)


def size(value: Value) -> int:
    """Count the numbers in a value."""
    return value.size if isinstance(value, Array) else 1


def first_difference(old: list[Labelled], new: list[Labelled]) -> str | None:
    """Describe the first value that differs, or return None."""
    differing = [
        (label, before, after)
        for (label, before), (_, after) in zip(old, new, strict=False)
        if not same(before, after)
    ]
    if differing:
        label, before, after = differing[0]
        where = f"{len(differing)} of {len(old)} differ, first {label}"
        return f"{where}: {described(before, after)}"
    if len(old) != len(new):
        longer, side = (old, "OLD") if len(old) > len(new) else (new, "NEW")
        extra = longer[min(len(old), len(new))][0]
        return f"{len(old)} values, now {len(new)}; {side} alone has {extra}"
    return None if old else "nothing to compare"


def same(before: Value, after: Value) -> bool:
    """Compare exactly: bytes of arrays, numbers as numbers (5 is 5.0, NaN is NaN)."""
    return before == after or (before != before and after != after)


def described(before: Value, after: Value) -> str:
    """Describe how two values differ."""
    if not (isinstance(before, Array) and isinstance(after, Array)):
        return f"{shown(before)} → {shown(after)}"
    if (before.dtype, before.shape) != (after.dtype, after.shape):
        return f"{shown(before)} → {shown(after)}"
    try:
        left, right = (np.frombuffer(array.data, array.dtype) for array in (before, after))
    except TypeError:  # a dtype that NumPy lacks, such as bfloat16
        return f"bytes of {shown(before)} differ"
    # By bytes: NaN differs from itself, and −0 is not 0 here.
    width = left.dtype.itemsize
    left_bytes, right_bytes = (
        np.frombuffer(array.data, np.uint8).reshape(-1, width) for array in (before, after)
    )
    places = np.flatnonzero((left_bytes != right_bytes).any(axis=1))
    place = int(places[0])
    return (
        f"{places.size} of {left.size} elements, [{place}] {left[place].item()!r} → "
        f"{right[place].item()!r}"
    )


def shown(value: Value) -> str:
    """Print a value: of an array its type."""
    return f"{value.dtype}{list(value.shape)}" if isinstance(value, Array) else repr(value)


def print_table(rows: list[Row]) -> None:
    """Print one line for each quantity, and below them the differences."""
    cells = [("part", "quantity", "values", "result")]
    cells += [(row.part, row.quantity, f"{row.compared:,}", row.result) for row in rows]
    widths = [max(len(line[column]) for line in cells) for column in range(4)]
    for part, quantity, values, result in cells:
        print(
            f"{part:{widths[0]}}  {quantity:{widths[1]}}  {values:>{widths[2]}}  {result}".rstrip()
        )
    for row in rows:
        if row.reason:
            print(f"\n{row.part}, {row.quantity}: {row.reason}")


def git(*arguments: str) -> str:
    """Run git in this repository."""
    command = ["git", "-C", str(ROOT), *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def commit_of(name: str) -> str:
    """Return the hash of a commit."""
    try:
        return git("rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}")
    except subprocess.CalledProcessError:
        raise argparse.ArgumentTypeError(f"{name!r} is no commit of {ROOT.name}") from None


def commit_or_tree(name: str) -> str | None:
    """Return the hash of a commit, or None for the working tree."""
    return None if name == "." else commit_of(name)


def epochs_of(text: str) -> str:
    """Check `--epochs`: a positive number, or `full`."""
    if text != "full" and not (text.isdecimal() and int(text) > 0):
        raise argparse.ArgumentTypeError(f"{text!r} is neither a number of epochs nor 'full'")
    return text


def cache_folder() -> Path:
    """Return where results of commits are kept."""
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "ai500-golden"


def main() -> int:
    """Run both commits, print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("old", metavar="OLD", type=commit_of, help="a commit")
    parser.add_argument("new", metavar="NEW", type=commit_or_tree, help="a commit, or .")
    parser.add_argument("--only", nargs="+", metavar="PART", choices=PARTS, default=PARTS)
    parser.add_argument(
        "--epochs", type=epochs_of, default=EPOCHS, metavar="N",
        help="of classification and weather; 'full': those of the class (default %(default)s)",
    )  # fmt: skip
    parser.add_argument("--keep", type=Path, default=cache_folder(), metavar="DIR")
    options = parser.parse_args()
    parts = [part for part in PARTS if part in options.only]
    with tempfile.TemporaryDirectory(prefix="golden-") as folder:
        scratch = Path(folder).resolve()
        sides = []
        for name, commit in (("old", options.old), ("new", options.new)):
            afresh = commit is None or (name == "new" and commit == options.old)
            kept = scratch / "afresh" if afresh else options.keep.resolve() / commit[:16]
            sides.append(
                results_of(
                    commit, parts, name=name, folder=kept, scratch=scratch, epochs=options.epochs
                )
            )
        old, new = sides
        rows = [row for part in parts for row in compare(part, old[part], new[part])]
    print_table(rows)
    return 1 if any(row.result != "equal" for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
