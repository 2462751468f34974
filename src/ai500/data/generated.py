"""Generated data: samples that are computed by their numbers, and the store that they make."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import ClassVar, Protocol

from ai500.core.errors import InputError
from ai500.data.packed_store import FORMAT, PackedStore
from ai500.data.resumable_work import Chunk, Holes, Progress
from ai500.data.store import Arrays, DataSource, data_error
from ai500.data.store_writer import Plan, StoreWriter, make_store
from ai500.records.fields import Field
from ai500.records.problem import ProblemClass


class SampleSource(Protocol):
    """Source of samples that are computed from their indices."""

    @property
    def fields(self) -> tuple[Field, ...]:
        """Fields of every sample."""

    def draw(self, split: str, first: int, last: int) -> Arrays:
        """Return samples first … last − 1 of a split.

        A sample's bytes depend on its number alone, not on how the samples are chunked.
        """


class Generated(SampleSource):
    """A `DataSource` of computed samples: a subclass has `fields`, `draw` and a `repr`."""

    own_data: ClassVar[str] = (
        "Pack it with `ai500 data pack SOURCE --out STORE` and pass --data STORE."
    )
    store_format: ClassVar[str] = FORMAT
    """Part of the store's name in the cache: another edition's format is another store."""

    def write_store(
        self,
        folder: Path,
        *,
        name: str,
        problem_class: ProblemClass,
        progress: Progress | None = None,
    ) -> PackedStore:
        """Write the samples of a class with all cores, or open the store that is there."""
        return generate(
            folder,
            self,
            name=name,
            classes=[f"class {number}" for number in range(problem_class.classes)],
            splits={
                "train": problem_class.train_samples,
                "validation": problem_class.validation_samples,
            },
            expected_sha256=problem_class.store_sha256,
            progress=progress,
        )

    def resized(self, samples: int, *, height: int | None, width: int | None) -> DataSource:
        """Refuse: number and size of the samples are the class's."""
        raise InputError(
            "--frames, --height and --width are for climate data; this workload's samples have a "
            "fixed number and size.",
            key="frames",
            value=samples,
            remedy="Leave them out.",
        )


def generate(
    path: Path,
    source: SampleSource,
    *,
    name: str,
    splits: dict[str, int],
    classes: Sequence[str] = (),
    expected_sha256: str | None = None,
    workers: int | None = None,
    progress: Progress | None = None,
) -> PackedStore:
    """Write a store of computed samples; all cores unless `workers` says otherwise."""

    def make() -> PackedStore:
        plan = Plan(name, tuple(classes), dict(splits), tuple(source.fields), origin=repr(source))
        writer = StoreWriter.create(path, plan)
        journal = writer.complete(
            lambda chunk: partial(_generate_chunk, writer, source, chunk),
            workers=workers,
            progress=progress,
        )
        return writer.finish(journal, expected_sha256=expected_sha256)

    store = make_store(path, make)
    counts = {split.name: split.count for split in store.splits.values()}
    contents = (store.name, store.classes, store.fields, counts)
    same = contents == (name, tuple(classes), tuple(source.fields), splits)
    if not same or expected_sha256 not in (None, store.sha256):
        raise data_error(
            path,
            f"holds another store: {store.name!r} with {counts}, SHA-256 {store.sha256}; "
            f"expected {name!r} with {splits}"
            f"{f', SHA-256 {expected_sha256}' if expected_sha256 else ''}.",
            "Choose another folder.",
            key="sha256",
            value=store.sha256,
        )
    return store


def _generate_chunk(writer: StoreWriter, source: SampleSource, chunk: Chunk) -> Holes:
    writer.write(chunk, source.draw(chunk.split, chunk.first, chunk.last))
    return []
