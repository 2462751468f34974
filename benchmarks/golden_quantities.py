"""Read the numbers of a run that `golden.py` compares, by every name that they have had.

The tables at the end of this file name the files and keys of each quantity. When a commit renames
one, add the new name: `old|new`. A quantity that is nowhere is an error, never skipped.
"""

from __future__ import annotations

import io
import json
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

# Five rounds warm the search up; TPE chooses batch and kernel sizes of the last ones.
SEARCH_MODELS = 7
# The line of a history that begins a model has this key.
MODEL_BEGINS = "architecture"
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
"""Place of a value, and the value."""
Reader = Callable[[Path], Iterator[Labelled]]
"""Reads one quantity from a part's results."""


class MissingError(Exception):
    """A quantity is not where the tables say it is."""


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


def without_seal(path: Path) -> bytes:
    """Return the framework's own file of a checkpoint; later commits put two lines before it."""
    data = path.read_bytes()
    return data.split(b"\n", 2)[2] if data.startswith(b"ai500 checkpoint ") else data


def tensors(globs: str, field: str, *, models: int | None = None) -> Reader:
    """Read tensors and numbers below a key of checkpoints, in order; `` is the whole file."""

    def read(results: Path) -> Iterator[Labelled]:
        for path in find(results, globs)[:models]:
            file = str(path.relative_to(results))
            content = torch.load(
                io.BytesIO(without_seal(path)), map_location="cpu", weights_only=True
            )
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
    """List what a field finds by any of its names, upper levels first.

    Breadth first, so that the order of keys does not matter; list indices are no part of a path.
    """
    endings = [name.split(".") for name in field.split("|")]
    found, level = [], [([""], document)]
    while level:
        below = []
        for path, value in level:
            if isinstance(value, list):
                below += [(path, item) for item in value]
            elif isinstance(value, dict):
                for key, item in value.items():
                    inner = [*path, key]
                    if any(inner[-len(ending) :] == ending for ending in endings):
                        found.append(item)
                    below.append((inner, item))
        level = below
    return found


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


MEMBERS = "trials/*/members/*"
OPERATIONS = (
    "forward_per_image|forward_per_sample", "backward_per_image|backward_per_sample",
    "update_per_step", "operations.parameters",
)  # fmt: skip
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
    # Anchored: later records have the counts of the other conventions beside it.
    "operations": numbers(
        f"{MEMBERS}/record.json", ".operations.forward_per_image|.operations.forward_per_sample",
        ".operations.backward_per_image|.operations.backward_per_sample",
        ".operations.update_per_step", ".operations.parameters",
    ),
    "samples, steps, seeds": numbers(
        f"{MEMBERS}/record.json", ".images|.samples", ".steps", ".parameters", "seeds.seed",
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
            "ensemble_size", "target_quality", "penalty_exponent", "input_shape",
            "classes", "train_samples", "validation_samples", "out_of_bag_samples",
        )),
        ".definition.least_runs|.definition.required_runs",
    ),
    "search": numbers(
        PLANS, *(f".search.{name}" for name in (
            "minutes", "initial.blocks", "initial.width", "patience", "batch_sizes",
            "kernel_sizes", "warmup_rounds", "kept_models",
        )),
        ".search.most_growth|.search.max_growth",
    ),
}  # fmt: skip
SCORE = (
    "flops", "vflops", "penalty_coefficient", "target_quality", "ensemble_quality",
    "members_mean_quality", "out_of_bag_quality", "seconds",
    "time_to_quality_seconds", "time_to_target_seconds", "operations", "validation_operations",
    "apc", "members_flops_sum", "start_skew_seconds", "idle_seconds", "ensemble_size",
    "parallel_degree", "system_scale", "waves",
)  # fmt: skip
SCORED: dict[str, Reader] = {
    "scores of runs": numbers(
        "**/score.json", *SCORE, "energy_joules", "watts", "flops_per_watt", "vflops_per_watt",
        "kept_trials", "score_variation", "epochs_to_target",
    ),
    # Anchored: a search's improvements have seconds and operations, too, once or twice a point.
    "scores of studies, as stored": numbers(
        "**/study.json", *(f"score.{name}|trials.{name}" for name in SCORE)
    ),
    "findings": findings("**/check.json"),
}  # fmt: skip
QUANTITIES = {
    "classification": TRAINED,
    "weather": TRAINED,
    "search": SEARCHED,
    "plan": PLANNED,
    "examples": SCORED,
}
