"""Compare the numbers of two commits bit by bit: the guard of a refactoring.

Each commit is checked out into a scratch worktree and runs its own code. `.` as NEW is the working
tree. Numbers are compared, not file, key or parameter names: the tables below list every name that
a quantity has had. When a commit renames one, add the new name there (`old|new`). A quantity that a
side lacks is a failure, as is a part that does not run.

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
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

ROOT = Path(__file__).resolve().parents[1]
PARTS = ("classification", "weather", "search", "plan", "examples")
# Two of warm-up and one of decay for classification: the schedule's both branches.
EPOCHS = "3"
# Five rounds warm the search up; TPE chooses batch and kernel sizes of the last ones.
SEARCH_MODELS = 7
# Most epochs of a model. Rounds 3 and 4 train for three and four: enough to fit a learning curve.
SEARCH_EPOCHS = 5
SEARCH_CLASSES, SEARCH_IMAGES, SEARCH_SIDE = 10, 800, 24
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
# Words of a severity or verdict that were changed: new → old.
CHANGED_WORDS: dict[str, str] = {}


@dataclass(frozen=True)
class Array:
    """Numbers of one dtype and shape."""

    dtype: str
    shape: tuple[int, ...]
    data: bytes

    @property
    def size(self) -> int:
        """Number of elements."""
        return int(np.prod(self.shape, dtype=np.int64))


Value = Array | int | float | str
Labelled = tuple[str, Value]
"""Where a value was found, and the value."""
Reader = Callable[[Path], Iterator[Labelled]]
"""Reads one quantity from a part's results."""


class MissingError(Exception):
    """A quantity is not where the tables say it is."""


class PartError(Exception):
    """A part could not be run."""


def find(results: Path, globs: str) -> list[Path]:
    """List the files of the first alternative (`old|new`) that matches any."""
    for pattern in globs.split("|"):
        if paths := sorted(results.glob(pattern)):
            return paths
    raise MissingError(f"no file {globs}")


def numbers(globs: str, *fields: str, models: int | None = None) -> Reader:
    """Read numbers by key from JSON or JSON lines.

    A field is the end of a dotted path, `old|new`; a leading dot anchors it at the top. Null is no
    value; a field without any value in any of the files is missing.
    """

    def read(results: Path) -> Iterator[Labelled]:
        documents = [
            (str(path.relative_to(results)), load_json(path, models=models))
            for path in find(results, globs)
        ]
        for field in fields:
            values = [
                (f"{file}: {field}", leaf)
                for file, document in documents
                for value in lookup(document, field)
                for leaf in leaves(value)
                if leaf is not None
            ]
            if not values:
                raise MissingError(f"no {field} in {globs}")
            yield from values

    return read


def structures(globs: str, field: str, *, models: int | None = None) -> Reader:
    """Read nested values by key; of words only the pattern counts, for words may be renamed."""

    def read(results: Path) -> Iterator[Labelled]:
        words: dict[str, str] = {}
        count = 0
        for path in find(results, globs):
            for value in lookup(load_json(path, models=models), field):
                for leaf in leaves(value):
                    count += 1
                    if isinstance(leaf, str):
                        leaf = words.setdefault(leaf, f"word {len(words)}")
                    label = f"{path.relative_to(results)}: {field}"
                    yield label, "null" if leaf is None else leaf
        if not count:
            raise MissingError(f"no {field} in {globs}")

    return read


def tensors(globs: str, field: str, *, models: int | None = None) -> Reader:
    """Read tensors and numbers below a key of checkpoints, in order; `` is the whole file."""

    def read(results: Path) -> Iterator[Labelled]:
        for path in find(results, globs)[:models]:
            file = str(path.relative_to(results))
            content = torch.load(path, map_location="cpu", weights_only=True)
            names = field.split("|")
            name = next((name for name in names if not name or name in content), None)
            if name is None:
                raise MissingError(f"no {field} in {file}, which has {sorted(content)}")
            yield from walk_tensors(content[name] if name else content, label=f"{file}: {name}")

    return read


def arrays(globs: str) -> Reader:
    """Read arrays of .npy and .npz files."""

    def read(results: Path) -> Iterator[Labelled]:
        for path in find(results, globs):
            file = str(path.relative_to(results))
            loaded = np.load(path, allow_pickle=False)
            parts = {"": loaded} if isinstance(loaded, np.ndarray) else dict(loaded)
            for name, array in parts.items():
                yield f"{file} {name}".strip(), as_array(array)

    return read


def bootstraps(globs: str) -> Reader:
    """Read the repeat counts of every member: a line of magic, a line of JSON, zlib."""

    def read(results: Path) -> Iterator[Labelled]:
        for path in find(results, globs):
            _, header_line, payload = path.read_bytes().split(b"\n", 2)
            header = json.loads(header_line)
            (bits,), (samples,) = lookup(header, "bits_per_count"), lookup(header, "samples")
            counts = np.frombuffer(zlib.decompress(payload), dtype=np.uint8)
            if bits == 4:
                counts = np.stack([counts & 15, counts >> 4], axis=1).reshape(-1)
            yield str(path.relative_to(results)), as_array(counts[:samples])

    return read


def findings(globs: str) -> Reader:
    """Read the number of findings by layer and severity, and every layer's verdict."""

    def read(results: Path) -> Iterator[Labelled]:
        for path in find(results, globs):
            file, report = str(path.relative_to(results)), load_json(path)
            counts = Counter(
                (str(first(finding, "layer")), canonical(first(finding, "severity|verdict")))
                for kind in ("layers", "findings")
                for finding in first(report, f".{kind}")
            )
            for (layer, severity), count in sorted(counts.items()):
                yield f"{file}: layer {layer}, {severity}", f"{layer} {severity} × {count}"
            yield f"{file}: rules broken", int(first(report, ".broken"))

    return read


MEMBERS = "trials/*/members/*"
OPERATIONS = ("forward_per_image", "backward_per_image", "update_per_step", "operations.parameters")
TRAINED: dict[str, Reader] = {
    "bootstraps": bootstraps("trials/*/bootstraps/*.bootstrap"),
    "weights": tensors(f"{MEMBERS}/checkpoint.pt", "model"),
    "optimizer state": tensors(f"{MEMBERS}/checkpoint.pt", "optimizer"),
    "position": tensors(f"{MEMBERS}/checkpoint.pt", "position"),
    "validation predictions": arrays(f"{MEMBERS}/validation.npy"),
    "out-of-bag predictions": arrays(f"{MEMBERS}/out_of_bag.npy"),
    "loss, rate, quality by epoch": numbers(
        f"{MEMBERS}/events.jsonl", "loss", "learning_rate", "quality"
    ),
    "operations": numbers(f"{MEMBERS}/record.json", *OPERATIONS),
    "images, steps, seeds": numbers(
        f"{MEMBERS}/record.json", ".images", ".steps", ".parameters", "seeds.seed",
        "seeds.initial_weights", "traffic.inside_node", "traffic.calls",
    ),
    "members' qualities": numbers(
        "trials/*/ensemble.json", "member_qualities", "out_of_bag_samples"
    ),
    "score": numbers(
        "trials/*/score.json", "penalty_coefficient", "target_quality", "ensemble_quality",
        "members_mean_quality", "out_of_bag_quality", ".operations", ".validation_operations",
        "apc", "ensemble_size", "parallel_degree", "system_scale", "waves",
    ),
}  # fmt: skip
HISTORY, SEARCHED_WEIGHTS = f"{MEMBERS}/history.jsonl", f"{MEMBERS}/weights/*.pt"
# The line of a history that begins a model has this key.
MODEL_BEGINS = "architecture"
SEARCHED: dict[str, Reader] = {
    "architectures": structures(HISTORY, MODEL_BEGINS, models=SEARCH_MODELS),
    "parents": structures(HISTORY, "entry.parent", models=SEARCH_MODELS),
    "operations": numbers(HISTORY, *OPERATIONS, models=SEARCH_MODELS),
    "batch, kernel, steps": numbers(
        HISTORY, "batch_size", "entry.kernel", "tuned", "steps_per_epoch", models=SEARCH_MODELS
    ),
    "loss, accuracy by epoch": numbers(
        HISTORY, "loss", "accuracy", "predicted", models=SEARCH_MODELS
    ),
    "weights": tensors(SEARCHED_WEIGHTS, "", models=SEARCH_MODELS),
}
PLANS = "*/*.json"
PLANNED: dict[str, Reader] = {
    "Eq. 5": numbers(
        PLANS, ".ensemble_size", ".parallel_degree", ".system_scale", ".members_per_accelerator",
        ".waves", ".trials", ".seed",
    ),
    "mapping": structures(PLANS, ".mapping"),
    "operations": numbers(PLANS, *OPERATIONS, ".operations_per_trial", ".apc"),
    "bytes": numbers(PLANS, ".bytes_per_node"),
    "steps, batch, rate": numbers(
        PLANS, ".steps_per_epoch", ".global_batch_size", ".learning_rate"
    ),
    "hyper-parameters": numbers(
        PLANS, *(f".hyperparameters.{name}" for name in (
            "epochs", "batch_size", "base_learning_rate", "reference_batch_size", "warmup_epochs",
            "momentum", "weight_decay", "label_smoothing", "evaluate_every_epochs", "decay_epochs",
            "decay_power", "accumulation", "betas", "trust_coefficient",
        )),
    ),
    "definition": numbers(
        PLANS, *(f".definition.{name}" for name in (
            "ensemble_size", "target_quality", "penalty_exponent", "least_runs", "input_shape",
            "classes", "train_samples", "validation_samples", "out_of_bag_samples",
        )),
    ),
    "search": numbers(
        PLANS, *(f".search.{name}" for name in (
            "minutes", "initial.blocks", "initial.width", "patience", "batch_sizes",
            "kernel_sizes", "warmup_rounds", "most_growth", "kept_models",
        )),
    ),
}  # fmt: skip
SCORE = (
    "flops", "vflops", "penalty_coefficient", "target_quality", "ensemble_quality",
    "members_mean_quality", "out_of_bag_quality", "score.seconds|.seconds|trials.seconds",
    "time_to_quality_seconds", "time_to_target_seconds", "operations", "validation_operations",
    "apc", "members_flops_sum", "start_skew_seconds", "idle_seconds", "ensemble_size",
    "parallel_degree", "system_scale", "waves",
)  # fmt: skip
SCORED: dict[str, Reader] = {
    "scores of runs": numbers(
        "**/score.json", *SCORE, "energy_joules", "watts", "flops_per_watt", "vflops_per_watt",
        "kept_trials", "score_variation", "epochs_to_target",
    ),
    "scores of studies": numbers("**/study.json", *SCORE),
    "findings": findings("**/check.json"),
}  # fmt: skip
QUANTITIES = {
    "classification": TRAINED,
    "weather": TRAINED,
    "search": SEARCHED,
    "plan": PLANNED,
    "examples": SCORED,
}


def load_json(path: Path, *, models: int | None = None) -> Any:
    """Read a JSON file, or the lines of a .jsonl: of a history those of its first models."""
    text = path.read_text(encoding="utf-8")
    if path.suffix != ".jsonl":
        return json.loads(text)
    lines: list[Any] = []
    begun = 0
    for line in map(json.loads, text.splitlines()):
        begun += bool(lookup(line, MODEL_BEGINS))
        if models is not None and begun > models:
            break
        lines.append(line)
    if models is not None and begun < models:
        raise MissingError(f"{begun} of {models} models in {path.name}")
    return lines


def lookup(document: Any, field: str) -> list[Any]:
    """List what the first alternative of a field finds, upper levels first.

    Breadth first, so that the order of keys does not matter; list indices are no part of a path.
    """
    for name in field.split("|"):
        ending = name.split(".")
        found, level = [], [([""], document)]
        while level:
            below = []
            for path, value in level:
                if isinstance(value, list):
                    below += [(path, item) for item in value]
                elif isinstance(value, dict):
                    for key, item in value.items():
                        inner = [*path, key]
                        if inner[-len(ending) :] == ending:
                            found.append(item)
                        below.append((inner, item))
            level = below
        if found:
            return found
    return []


def first(document: Any, field: str) -> Any:
    """Return the uppermost value of a field."""
    values = lookup(document, field)
    if not values:
        raise MissingError(f"no {field}")
    return values[0]


def leaves(value: Any) -> Iterator[int | float | str | None]:
    """Yield the values of nested lists and objects in order."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        for item in value:
            yield from leaves(item)
    else:
        yield int(value) if isinstance(value, bool) else value


def canonical(word: str) -> str:
    """Return the first name of a severity or verdict."""
    return CHANGED_WORDS.get(word, word)


def walk_tensors(value: Any, *, label: str) -> Iterator[Labelled]:
    """Yield tensors and numbers of nested containers in order; names are only labels."""
    if isinstance(value, torch.Tensor):
        dense = value.detach().contiguous()
        data = dense.reshape(-1).view(torch.uint8).numpy().tobytes() if dense.numel() else b""
        yield label, Array(str(dense.dtype).removeprefix("torch."), tuple(dense.shape), data)
    elif isinstance(value, dict):
        for name, item in value.items():
            yield from walk_tensors(item, label=f"{label}/{name}")
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            yield from walk_tensors(item, label=f"{label}/{index}")
    elif isinstance(value, bool | int | float):
        yield label, value


def as_array(array: np.ndarray) -> Array:
    """Return the array as bytes."""
    return Array(str(array.dtype), array.shape, array.tobytes())


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
    run = ("run", "--workload", workload, "--class", "smoke", "--out", results, *settings)
    checkout.ai500(*run)


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
    arguments = (
        "run", "--workload", "automl", "--class", "smoke", "--data", scratch / "store",
        "--out", results, *checkout.settings(SEARCH),
    )  # fmt: skip
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
        part, epochs if part in ("classification", "weather") else "", CPU_SLOTS, SEARCH,
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
    difference: str | None


def compare(part: str, old: Path | PartError, new: Path | PartError) -> Iterator[Row]:
    """Compare every quantity of a part."""
    for side, results in (("OLD", old), ("NEW", new)):
        if isinstance(results, PartError):
            yield Row(part, "all", 0, f"{side} could not run: {results}")
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
            yield Row(part, quantity, 0, "; ".join(missing))
        else:
            compared = sum(size(value) for _, value in values[0])
            yield Row(part, quantity, compared, first_difference(*values))


def size(value: Value) -> int:
    """Number of numbers in a value."""
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
    cells += [
        (row.part, row.quantity, f"{row.compared:,}", "DIFFERENT" if row.difference else "equal")
        for row in rows
    ]
    widths = [max(len(line[column]) for line in cells) for column in range(4)]
    for part, quantity, values, result in cells:
        print(
            f"{part:{widths[0]}}  {quantity:{widths[1]}}  {values:>{widths[2]}}  {result}".rstrip()
        )
    for row in rows:
        if row.difference:
            print(f"\n{row.part}, {row.quantity}: {row.difference}")


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
    return 1 if any(row.difference for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
