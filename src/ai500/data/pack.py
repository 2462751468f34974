"""Packs a source of samples into a store; after a kill, the same call resumes.

A sample that cannot be read is left out and listed in `unreadable.json` in the store.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np

from ai500.core import atomic
from ai500.core.errors import DataError
from ai500.data.packed_store import PackedStore
from ai500.data.readers.open_source import Options, open_source
from ai500.data.readers.protocol import (
    TRAIN,
    VALIDATION,
    Ignored,
    Part,
    Reader,
    Sample,
    Source,
    Stream,
    Unreadable,
    stacked,
)
from ai500.data.resumable_work import JOURNAL, Chunk, Holes, Journal, Progress
from ai500.data.store import Arrays, data_error, digests_of
from ai500.data.store_writer import Appender, Plan, StoreWriter, make_store
from ai500.records.fields import Field

UNREADABLE = "unreadable.json"
LABELS = "labels"
LABEL_BLOCK_ROWS = 1 << 20
Limits = Mapping[str, tuple[float, float]]
"""Least and largest valid value by field."""


@dataclass(frozen=True)
class Packed:
    """Result of packing."""

    store: PackedStore
    unreadable: int
    """Number of samples left out; `unreadable.json` in the store lists them."""
    ignored: Ignored
    """Files and arrays of the source that were not packed."""


def pack(
    source: str | Path,
    out: Path,
    *,
    options: Options | None = None,
    workers: int | None = None,
    progress: Progress | None = None,
) -> Packed:
    """Pack a source with all cores, unless `workers` says otherwise; a stream with one."""
    options = options or Options()
    opened = open_source(source, options, out=out)
    return pack_source(opened, out, limits=options.limits, workers=workers, progress=progress)


def pack_source(
    opened: Reader | Stream,
    out: Path,
    *,
    limits: Limits,
    workers: int | None = None,
    progress: Progress | None = None,
) -> Packed:
    """Pack a source that is open; progress is in samples, of 0 where their number is not known."""
    if isinstance(opened, Reader):
        return _pack_reader(opened, out, limits=limits, workers=workers, progress=progress)
    return _pack_stream(opened, out, limits=limits, progress=progress)


def _pack_reader(
    reader: Reader,
    out: Path,
    *,
    limits: Limits,
    workers: int | None,
    progress: Progress | None,
) -> Packed:
    plan = Plan(
        name=reader.name,
        classes=reader.classes,
        counts=dict(reader.counts),
        fields=_limited(reader.fields, reader.classes, limits),
        origin=reader.origin,
    )

    def make() -> PackedStore:
        writer = StoreWriter.create(out, plan)

        def job_of(chunk: Chunk) -> partial[Holes]:
            part = reader.part(chunk.split, chunk.first, chunk.last)
            return partial(_pack_chunk, writer, part, chunk)

        journal = writer.complete(job_of, workers=workers, progress=progress)
        entries = [
            {"split": split, "file": reader.sample_name(split, row), "why": why}
            for split in plan.counts
            for row, why in journal.holes(split)
        ]
        if entries:
            atomic.write_json(out / UNREADABLE, entries)
        for split, count in plan.counts.items():
            reasons = journal.holes(split)
            if len(reasons) == count:
                raise data_error(
                    out,
                    f"no sample of split {split!r} can be read; the first: {reasons[0][1]}",
                    key=split,
                    value=count,
                )
        holes = {split: [row for row, _ in journal.holes(split)] for split in plan.counts}
        return _with_classes(writer, holes).finish(journal)

    store = make_store(out, make)
    unreadable = _require_same(store, reader, counts=dict(reader.counts), limits=limits)
    return Packed(store, unreadable, reader.ignored)


def _pack_chunk(writer: StoreWriter, part: Part, chunk: Chunk) -> Holes:
    arrays, holes = part()
    placed = [(chunk.first + place, why) for place, why in holes]
    writer.write(chunk, arrays, holes=placed)
    return placed


def _limited(
    fields: tuple[Field, ...], classes: tuple[str, ...], limits: Limits
) -> tuple[Field, ...]:
    """Set the limits of fields that have some; those of labels are the numbers of the classes."""
    known = dict(limits)
    if classes:
        known[LABELS] = (0.0, float(len(classes) - 1))
    return tuple(replace(field, limits=known.get(field.name, field.limits)) for field in fields)


def _with_classes(writer: StoreWriter, holes: dict[str, list[int]]) -> StoreWriter:
    """Count the classes by the labels that were written, where the source does not say them."""
    plan = writer.plan
    if plan.classes or not _has_labels(plan.fields):
        return writer
    highest = -1
    for split, count in plan.counts.items():
        missing = np.array(holes.get(split, ()), dtype=np.int64)
        column = writer.split(split, count).column(LABELS)
        for first in range(0, count, LABEL_BLOCK_ROWS):
            rows = np.arange(first, min(count, first + LABEL_BLOCK_ROWS), dtype=np.int64)
            labels = column.read(np.setdiff1d(rows, missing))
            if labels.size and int(labels.min()) < 0:
                raise data_error(
                    writer.path,
                    f"label {labels.min()} in {split!r}: classes are numbered from 0.",
                    "Renumber them: numpy.unique(labels, return_inverse=True).",
                    key=LABELS,
                    value=int(labels.min()),
                )
            highest = max(highest, int(labels.max(initial=-1)))
    classes = tuple(str(label) for label in range(highest + 1))
    final = replace(plan, classes=classes, fields=_limited(plan.fields, classes, {}))
    return StoreWriter(writer.path, final)


def _has_labels(fields: tuple[Field, ...]) -> bool:
    return any(
        field.name == LABELS and field.dtype == "int64" and not field.shape for field in fields
    )


def _pack_stream(stream: Stream, out: Path, *, limits: Limits, progress: Progress | None) -> Packed:
    """Pack a stream; samples that an earlier call wrote are compared and skipped."""
    written: dict[str, int] = {}

    def make() -> PackedStore:
        fields = _limited(stream.fields, stream.classes, limits)
        plan = Plan(
            stream.name,
            stream.classes,
            {TRAIN: 1, VALIDATION: 1},
            fields,
            stream.origin,
        )
        writer = StoreWriter.create(out, plan)
        journal = Journal.open(out / JOURNAL)
        entries: list[dict[str, str]] = []
        total = stream.total or 0
        for chunk, arrays in _chunks(stream, plan.rows_per_chunk, entries):
            if chunk in journal.done:
                _require_written(writer, chunk, arrays)
            else:
                writer.write(chunk, arrays)
                journal.record(chunk, [])
            written[chunk.split] = chunk.last
            if progress:
                progress(sum(written.values()), total)
        _require_both(stream, written)
        counts = {split: written[split] for split in (TRAIN, VALIDATION)}
        writer = StoreWriter(out, replace(plan, counts=counts))
        if plan.ragged:
            Appender(writer, journal).advance()
        if entries:
            atomic.write_json(out / UNREADABLE, entries)
        return _with_classes(writer, {}).finish(journal)

    store = make_store(out, make)
    unreadable = _require_same(store, stream, counts=None, limits=limits)
    return Packed(store, unreadable, stream.ignored)


def _chunks(
    stream: Stream, rows: int, entries: list[dict[str, str]]
) -> Iterator[tuple[Chunk, Arrays]]:
    """Yield a stream's samples in chunks of each split; `entries` gets those left out."""
    waiting: dict[str, list[Sample]] = {}
    counts: Counter[str] = Counter()
    for split, sample in stream.samples():
        if isinstance(sample, Unreadable):
            entries.append({"split": split, "file": sample.name, "why": sample.why})
            continue
        waiting.setdefault(split, []).append(sample)
        if len(waiting[split]) == rows:
            samples = waiting.pop(split)
            yield _chunk(split, counts, samples), stacked(stream.fields, samples)
    for split, samples in waiting.items():
        yield _chunk(split, counts, samples), stacked(stream.fields, samples)


def _chunk(split: str, counts: Counter[str], samples: list[Sample]) -> Chunk:
    first = counts[split]
    counts[split] += len(samples)
    return Chunk(split, first, first + len(samples))


def _require_written(writer: StoreWriter, chunk: Chunk, arrays: Arrays) -> None:
    """Raise `DataError` where a stream gives other samples than before the interruption."""
    computed = digests_of(arrays, writer.plan.fields)
    if not np.array_equal(computed, writer.written_digests(chunk)):
        raise data_error(
            writer.path,
            f"samples {chunk.first} to {chunk.last - 1} of {chunk.split!r} are not those that "
            "were written before the interruption.",
            "The source must give the same samples in the same order each time: fix its seed, "
            "delete the folder, and pack again.",
            value=chunk.first,
        )


def _require_both(stream: Stream, counts: dict[str, int]) -> None:
    missing = next((split for split in (TRAIN, VALIDATION) if not counts.get(split)), None)
    if missing is not None:
        raise DataError(
            f"{stream.name}: no sample of split {missing!r} among {sum(counts.values())}.",
            key=missing,
            value=counts,
            remedy="Give more samples, or a larger --validation.",
        )


def _require_same(
    store: PackedStore, source: Source, *, counts: dict[str, int] | None, limits: Limits
) -> int:
    """Return the number of samples left out; raise `DataError` for another source's store."""
    file = store.path / UNREADABLE
    listed = json.loads(file.read_bytes()) if file.exists() else []
    missing = Counter(entry["split"] for entry in listed)
    stored = {name: split.count + missing[name] for name, split in store.splits.items()}
    classes = source.classes or store.classes
    contents = (store.name, store.classes, store.fields, stored)
    expected = (
        source.name,
        classes,
        _limited(source.fields, classes, limits),
        counts or stored,
    )
    if contents != expected:
        raise data_error(
            store.path,
            f"holds another store: {store.name!r}, {len(store.classes)} classes, {stored}, "
            f"{', '.join(map(str, store.fields))}; expected {source.name!r}, {len(classes)} "
            f"classes, {expected[3]}, {', '.join(map(str, source.fields))}.",
            "Delete it, or choose another folder.",
            key="sha256",
            value=store.sha256,
        )
    return len(listed)
