"""Samples of a user's Python code, `module:factory`: a PyTorch `Dataset`, or any iterable.

The factory is called without arguments, in every process that reads. It returns a data set or an
iterable of samples, or a mapping with one for `train` and one for `validation`. A sample is a
mapping of names to arrays, tensors, numbers or images, or a pair of input and target.
"""

from __future__ import annotations

import dataclasses
import importlib
import itertools
import re
import sys
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from ai500.core.errors import DataError
from ai500.data.readers.naming import (
    Choice,
    NamedColumn,
    by_choice,
    by_convention,
    listed,
)
from ai500.data.readers.pixels import decode, dtype_of, image_field, read_dtype, squared
from ai500.data.readers.protocol import (
    TRAIN,
    VALIDATION,
    VALIDATION_NAMES,
    Ignored,
    Part,
    Sample,
    Unreadable,
    stacked,
)
from ai500.data.readers.split import Rows, held_out, require_fraction, validates
from ai500.data.resumable_work import Holes
from ai500.data.store import Arrays
from ai500.records.fields import ITEM_BYTES, RAGGED, Field

PEEKED_SAMPLES = 64
"""First samples that decide on shapes and on what is ragged."""
_FACTORY = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")
_THIS_PACKAGE = str(Path(__file__).parent)


def is_factory(source: str) -> bool:
    """Return True for the text `module:factory`."""
    return _FACTORY.fullmatch(source) is not None


@contextmanager
def _explained(spec: str, doing: str) -> Iterator[None]:
    """Turn an exception of the user's code into a `DataError` with its place."""
    try:
        yield
    except (DataError, KeyboardInterrupt, MemoryError):
        raise
    except Exception as error:
        frames = traceback.extract_tb(error.__traceback__)
        own = [frame for frame in frames if not frame.filename.startswith(_THIS_PACKAGE)]
        at = f" ({own[-1].filename}, line {own[-1].lineno})" if own else ""
        raise DataError(
            f"{spec}: {doing} raised {type(error).__name__}: {error}{at}.",
            key=spec,
            value=type(error).__name__,
            remedy="Correct it; the same command then continues.",
        ) from error


@lru_cache(maxsize=4)
def load(spec: str) -> Any:
    """Import the module, from the current folder too, and call the factory."""
    module_name, _, attribute = spec.partition(":")
    if (here := str(Path.cwd())) not in sys.path:
        sys.path.insert(0, here)
    with _explained(spec, f"importing {module_name}"):
        factory = importlib.import_module(module_name)
        for name in attribute.split("."):
            factory = getattr(factory, name)
    with _explained(spec, "the factory"):
        return factory() if callable(factory) else factory


def by_number(data: Any) -> bool:
    """Return True for data with a length whose samples can be read by number."""
    kinds = {kind.__name__ for kind in type(data).__mro__}
    if "IterableDataset" in kinds:
        return False
    return hasattr(data, "__getitem__") and hasattr(data, "__len__")


def _splits(spec: str) -> dict[str, Any]:
    """Return the data of each split; one entry `train`: it has to be divided."""
    data = load(spec)
    if isinstance(data, Mapping):
        held = next((name for name in (*VALIDATION_NAMES, "test") if name in data), None)
        if TRAIN not in data or held is None:
            raise DataError(
                f"{spec} returns a mapping with {listed([str(name) for name in data])}.",
                key=spec,
                value=list(data),
                remedy="Return one data set, or a mapping with `train` and `validation`.",
            )
        splits = {TRAIN: data[TRAIN], VALIDATION: data[held]}
    else:
        splits = {TRAIN: data}
    for data_set in splits.values():
        if type(data_set).__name__ == "DataLoader" or not (
            by_number(data_set) or hasattr(data_set, "__iter__")
        ):
            raise DataError(
                f"{spec} returns a {type(data_set).__name__}, which gives no single samples.",
                key=spec,
                value=type(data_set).__name__,
                remedy="Return a PyTorch Dataset, a generator or another iterable of dicts.",
            )
    return splits


def as_mapping(sample: Any, *, spec: str) -> Mapping[str, Any]:
    """Return a sample by names; a pair is an input and a target."""
    if isinstance(sample, Mapping):
        return {str(name): value for name, value in sample.items()}
    if isinstance(sample, tuple | list) and len(sample) == 2:
        first, second = sample
        image = isinstance(first, Image.Image | bytes)
        label = isinstance(second, int | np.integer) and not isinstance(second, bool)
        return {
            "images" if image else "inputs": first,
            "labels" if label else "targets": second,
        }
    raise DataError(
        f"{spec} gives a sample of type {type(sample).__name__}.",
        key=spec,
        value=type(sample).__name__,
        remedy="A sample is a dict of arrays, or a pair (input, target).",
    )


def as_array(value: Any) -> NDArray[Any]:
    """Return a tensor, number or list as an array."""
    if hasattr(value, "detach"):  # a PyTorch tensor, on any device
        value = value.detach().cpu().numpy()
    return np.asarray(value)


def is_image(value: Any) -> bool:
    """Return True for an image of Pillow's, or an encoded one."""
    return isinstance(value, Image.Image | bytes)


@dataclass(frozen=True)
class Shaper:
    """Brings samples to the fields that the first ones showed."""

    spec: str
    fields: tuple[Field, ...]
    keys: Mapping[str, str]
    """Key in the user's samples by field."""

    def __call__(self, sample: Any, number: int) -> Sample | Unreadable:
        """Return the arrays of a sample; a damaged image makes it unreadable."""
        values = as_mapping(sample, spec=self.spec)
        arrays: dict[str, NDArray[Any]] = {}
        for field in self.fields:
            key = self.keys[field.name]
            if key not in values:
                raise DataError(
                    f"{self.spec}: sample {number} has no {key!r}, only {listed(list(values))}.",
                    key=field.name,
                    value=number,
                    remedy="Give every sample the same keys.",
                )
            if is_image(values[key]):
                try:
                    arrays[field.name] = _pixels(values[key], field, f"{self.spec} {number}")
                except (DataError, MemoryError):
                    raise
                except Exception as error:  # a broken image may raise anything in a decoder
                    return Unreadable(f"sample {number}", f"{type(error).__name__}: {error}")
                continue
            arrays[field.name] = self._fitting(field, as_array(values[key]), number)
        return arrays

    def _fitting(self, field: Field, array: NDArray[Any], number: int) -> NDArray[Any]:
        shape = array.shape[1:] if field.ragged else array.shape
        if shape != field.row_shape or (field.ragged and not array.ndim):
            raise self._error(
                field,
                number,
                f"has shape {array.shape}; the first samples have {field.shape}",
            )
        if not np.can_cast(array.dtype, field.dtype, "same_kind"):
            raise self._error(
                field, number, f"is {array.dtype}; the first samples are {field.dtype}"
            )
        converted = array.astype(field.dtype)
        if field.dtype[0] in "iu" and not np.array_equal(converted, array):
            raise self._error(field, number, f"has values that do not fit {field.dtype}")
        return converted

    def _error(self, field: Field, number: int, why: str) -> DataError:
        return DataError(
            f"{self.spec}: {field.name} of sample {number} {why}.",
            key=field.name,
            value=number,
            remedy=f"Give every sample the same type and shape; if samples differ in length: "
            f"--ragged {field.name}.",
        )


def _pixels(value: Any, field: Field, name: str) -> NDArray[Any]:
    size = field.shape[0]
    if isinstance(value, bytes):
        return decode(value, size=size, dtype=field.dtype, name=name)
    return squared(value, size=size, dtype=field.dtype, name=name)


def shaper_of(spec: str, samples: Sequence[Any], choice: Choice) -> tuple[Shaper, list[str]]:
    """Return what brings samples to fields, by the first ones, and the keys that are not used."""
    if not samples:
        raise DataError(f"{spec} gives no sample.", key=spec, value=0)
    mappings = [as_mapping(sample, spec=spec) for sample in samples]
    keys = list(mappings[0])
    chosen = choice.inputs or choice.targets
    named = by_choice(keys, choice, path=spec) if chosen else by_convention(keys)
    if {entry.role for entry in named} != {"input", "target"}:
        raise DataError(
            f"{spec} gives samples with {listed(keys)}: no input, or no target, among them.",
            key=spec,
            value=keys,
            remedy="Call them inputs… and targets…, or name them: --input NAME --target NAME.",
        )
    fields = tuple(
        _field_of(spec, entry, [mapping.get(entry.column) for mapping in mappings], choice)
        for entry in sorted(named, key=lambda entry: (entry.role, entry.name))
    )
    used = {entry.column for entry in named}
    shaper = Shaper(spec, fields, {entry.name: entry.column for entry in named})
    return shaper, [key for key in keys if key not in used]


def _field_of(spec: str, named: NamedColumn, values: Sequence[Any], choice: Choice) -> Field:
    if is_image(values[0]):
        first = values[0]
        name = f"{spec} 0"
        dtype = read_dtype(first, name) if isinstance(first, bytes) else dtype_of(first, name)
        return replace(image_field(named.name, dtype, choice.size), role=named.role)
    arrays = [as_array(value) for value in values if value is not None]
    dtype = np.result_type(*(array.dtype for array in arrays)).name
    shapes = {array.shape for array in arrays}
    if dtype not in ITEM_BYTES:
        raise DataError(
            f"{spec}: {named.column} is {dtype}; a field holds numbers of a fixed size.",
            key=named.column,
            value=dtype,
            remedy="Return numbers: tokens instead of texts, arrays instead of objects.",
        )
    shape = arrays[0].shape
    if len(shapes) > 1 or named.name in choice.ragged:
        inner = {shape[1:] for shape in shapes}
        if len(inner) > 1 or not shape:
            raise DataError(
                f"{spec}: {named.column} has shapes {listed([str(s) for s in sorted(shapes)])}.",
                key=named.column,
                value=sorted(shapes),
                remedy="Only the first size may differ between samples: resize or pad the others.",
            )
        shape = (RAGGED, *inner.pop())
    if named.name == "labels" and not shape and np.dtype(dtype).kind in "iub":
        dtype = "int64"  # the type of the workloads' labels
    return Field(named.name, named.role, dtype, shape)


@dataclass(frozen=True)
class PythonSource:
    """Common part of both kinds of Python sources."""

    spec: str
    shaper: Shaper
    whole: bool
    """True where the factory gives one data set, which is divided."""
    fraction: float
    seed: int
    classes: tuple[str, ...] = ()
    ignored: Ignored = dataclasses.field(default_factory=Ignored)

    @property
    def name(self) -> str:
        """Name of the module and the factory."""
        return self.spec.replace(":", ".")

    @property
    def fields(self) -> tuple[Field, ...]:
        """Fields that the first samples showed."""
        return self.shaper.fields

    @property
    def origin(self) -> str:
        """Name of the factory, and how its samples are divided."""
        division = f", {self.fraction} validates, seed {self.seed}" if self.whole else ""
        return f"samples of {self.spec}{division}"


class DatasetReader(PythonSource):
    """Reader of a data set's samples by index, in many processes."""

    @cached_property
    def rows(self) -> dict[str, Rows]:
        """Samples of each split."""
        splits = _splits(self.spec)
        counts = {split: len(data) for split, data in splits.items()}
        if not self.whole:
            return {split: np.arange(count, dtype=np.int64) for split, count in counts.items()}
        keys, one_class = (
            map(str, range(counts[TRAIN])),
            np.zeros(counts[TRAIN], np.int64),
        )
        train, held = held_out(keys, labels=one_class, fraction=self.fraction, seed=self.seed)
        return {TRAIN: train, VALIDATION: held}

    @property
    def counts(self) -> dict[str, int]:
        return {split: len(rows) for split, rows in self.rows.items()}

    def sample_name(self, split: str, number: int) -> str:
        """Return the number of a sample in the user's data set."""
        return f"sample {self.rows[split][number]}"

    def part(self, split: str, first: int, last: int) -> Part:
        """Return the call that reads samples first … last − 1 of a split."""
        source = TRAIN if self.whole else split
        return partial(_read_numbers, self.shaper, source, self.rows[split][first:last].tolist())


def _read_numbers(shaper: Shaper, split: str, numbers: list[int]) -> tuple[Arrays, Holes]:
    data = _splits(shaper.spec)[split]
    samples: list[Sample] = []
    holes: Holes = []
    for place, number in enumerate(numbers):
        with _explained(shaper.spec, f"sample {number}"):
            sample = shaper(data[number], number)
        if isinstance(sample, Unreadable):
            holes.append((place, sample.why))
        else:
            samples.append(sample)
    return stacked(shaper.fields, samples), holes


class IterableStream(PythonSource):
    """Reads an iterable from its first sample to its last."""

    @property
    def total(self) -> int | None:
        """Number of samples where the iterables have a length."""
        splits = _splits(self.spec).values()
        try:
            return sum(len(data) for data in splits)
        except TypeError:
            return None

    def samples(self) -> Iterator[tuple[str, Sample | Unreadable]]:
        """Yield the samples of new iterables."""
        load.cache_clear()  # a generator that was begun does not begin again
        for split, data in _splits(self.spec).items():
            with _explained(self.spec, "beginning to iterate"):
                iterator = iter(data)
            for number in itertools.count():
                with _explained(self.spec, f"the iterable, after {number} samples,"):
                    sample = next(iterator, _END)
                if sample is _END:
                    break
                held = self.whole and validates(number, fraction=self.fraction, seed=self.seed)
                yield (VALIDATION if held else split), self.shaper(sample, number)


_END = object()


def python_source(
    spec: str, *, choice: Choice, fraction: float, seed: int = 0
) -> DatasetReader | IterableStream:
    """Return the source of a factory, whose first samples decide on the fields."""
    load.cache_clear()  # a generator that was begun does not begin again
    splits = _splits(spec)
    whole = len(splits) == 1
    if whole:
        require_fraction(fraction)
    numbered = all(by_number(data) for data in splits.values())
    first = splits[TRAIN]
    with _explained(spec, "reading the first samples"):
        if numbered:
            samples = [first[number] for number in range(min(PEEKED_SAMPLES, len(first)))]
        else:
            samples = list(itertools.islice(iter(first), PEEKED_SAMPLES))
    shaper, unused = shaper_of(spec, samples, choice)
    ignored = Ignored()
    for key in unused:
        ignored.add(f"{spec}: {key}")
    names = getattr(first, "classes", ())
    known = isinstance(names, list | tuple) and "labels" in {field.name for field in shaper.fields}
    classes = tuple(str(name) for name in names) if known else ()
    kind = DatasetReader if numbered else IterableStream
    return kind(spec, shaper, whole, fraction, seed, classes, ignored)
