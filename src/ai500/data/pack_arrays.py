"""Packs NumPy arrays into a store: images.npy with labels.npy, or one .npz with both."""

from __future__ import annotations

import hashlib
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ai500.core.errors import DataError
from ai500.data.pack import TRAIN, VALIDATION, Packed, held_out, require_same
from ai500.data.packed_store import PackedStore
from ai500.data.resumable_work import Chunk, Holes, Progress
from ai500.data.store import Arrays, Indices, data_error
from ai500.data.store_writer import Plan, StoreWriter, make_store
from ai500.records.fields import image_fields

Labels = NDArray[np.int64]

NAMES = (
    ("images", "labels", "validation_images", "validation_labels"),
    ("x_train", "y_train", "x_test", "y_test"),
)
"""Names of arrays in a .npz: `ai500`'s, and those of Keras' data sets."""


@dataclass(frozen=True)
class _Part:
    """A split to be packed: rows of an array of images."""

    images: NDArray[Any]
    labels: Labels
    rows: Indices

    def read(self, chunk: Chunk) -> Arrays:
        """Read the rows of one chunk into memory."""
        rows = self.rows[chunk.first : chunk.last]
        return {"images": np.array(self.images[rows]), "labels": self.labels[rows]}


def pack_arrays(
    images: Path,
    out: Path,
    *,
    labels: Path | None = None,
    classes: Sequence[str] | None = None,
    validation_fraction: float = 0.1,
    workers: int | None = None,
    progress: Progress | None = None,
) -> Packed:
    """Pack images [N, H, W, C] or [N, H, W] of uint8 with whole numbers as labels.

    A .npz with validation arrays is packed as it is; otherwise a part of each class is held out.
    """
    parts = _parts(images, labels, fraction=validation_fraction)
    names = _class_names(parts, classes, source=images)
    first = next(iter(parts.values())).images
    height, width, channels = map(int, first.shape[1:])
    plan = Plan(
        name=images.stem,
        classes=names,
        counts={split: part.rows.size for split, part in parts.items()},
        fields=image_fields(height, width, channels=channels, classes=len(names)),
        origin=f"arrays of {images.name}, labels {_sha256(parts)}",
    )

    def make() -> PackedStore:
        writer = StoreWriter.create(out, plan)
        journal = writer.complete(
            # Rows are read in this process: each worker would have to load the arrays again.
            lambda chunk: partial(_pack_chunk, writer, chunk, parts[chunk.split].read(chunk)),
            workers=workers,
            progress=progress,
        )
        return writer.finish(journal)

    store = make_store(out, make)
    return Packed(store, unreadable=require_same(store, plan), ignored=0)


def _pack_chunk(writer: StoreWriter, chunk: Chunk, arrays: Arrays) -> Holes:
    writer.write(chunk, arrays)
    return []


def _sha256(parts: dict[str, _Part]) -> str:
    digest = hashlib.sha256()
    for part in parts.values():
        digest.update(part.labels.tobytes() + part.rows.tobytes())
    return digest.hexdigest()


def _parts(images: Path, labels: Path | None, *, fraction: float) -> dict[str, _Part]:
    loaded = _load(images)
    if isinstance(loaded, np.ndarray):
        if labels is None:
            raise data_error(images, "needs labels.", "Give labels.npy, or a .npz that holds both.")
        separate = _load(labels)
        if not isinstance(separate, np.ndarray):
            raise data_error(
                labels, "is a .npz.", "Give labels as .npy, or images and labels in one .npz."
            )
        pixels, numbers = _checked(loaded, separate, where=f"{images}, {labels}")
    else:
        names = next((n for n in NAMES if n[0] in loaded and n[1] in loaded), None)
        if names is None or labels is not None:
            raise data_error(
                images,
                f"holds {sorted(loaded)}; a .npz needs `images` and `labels` in it "
                "(and no other file of labels).",
            )
        pixels, numbers = _checked(
            loaded[names[0]], loaded[names[1]], where=f"{images}: {names[0]}"
        )
        if names[2] in loaded and names[3] in loaded:
            held = _checked(loaded[names[2]], loaded[names[3]], where=f"{images}: {names[2]}")
            return {TRAIN: _whole(pixels, numbers), VALIDATION: _whole(*held)}
    keys = [str(i) for i in range(numbers.size)]
    places = held_out(keys, labels=numbers.tolist(), fraction=fraction)
    validation = np.array(sorted(places), dtype=np.int64)
    train = np.setdiff1d(np.arange(numbers.size, dtype=np.int64), validation)
    return {
        TRAIN: _Part(pixels, numbers, train),
        VALIDATION: _Part(pixels, numbers, validation),
    }


def _whole(images: NDArray[Any], labels: Labels) -> _Part:
    return _Part(images, labels, np.arange(labels.size, dtype=np.int64))


def _load(path: Path) -> NDArray[Any] | dict[str, NDArray[Any]]:
    try:
        if zipfile.is_zipfile(path):
            with np.load(path, allow_pickle=False) as archive:
                return {name: archive[name] for name in archive.files}
        array: NDArray[Any] = np.load(path, mmap_mode="r", allow_pickle=False)
        return array
    except FileNotFoundError:
        raise data_error(path, "no such file of arrays.") from None
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise data_error(path, f"not a readable .npy or .npz of numbers: {error}.") from error


def _checked(
    images: NDArray[Any], labels: NDArray[Any], *, where: str
) -> tuple[NDArray[Any], Labels]:
    """Return images as [N, H, W, C] and labels as int64, or raise `DataError`."""
    if images.dtype != np.uint8:
        raise DataError(
            f"{where}: images are {images.dtype}, a store holds uint8.",
            remedy="Scale them to 0 … 255 and convert: "
            "(images * 255).round().astype('uint8') if they lie between 0 and 1.",
        )
    if images.ndim not in (3, 4) or 0 in images.shape:
        raise DataError(
            f"{where}: images have shape {images.shape}; needed is [N, H, W, C] or [N, H, W], "
            "with at least one image."
        )
    if images.ndim == 3:
        images = images[..., None]
    if images.shape[1] in (1, 3) and images.shape[3] > 4:
        raise DataError(
            f"{where}: images have shape {images.shape}, which looks like channels first; "
            "needed is [N, H, W, C].",
            remedy="Transpose: images.transpose(0, 2, 3, 1).",
        )
    if labels.ndim == 2 and labels.shape[1] == 1:
        labels = labels[:, 0]
    if labels.dtype.kind not in "iu" or labels.shape != images.shape[:1]:
        raise DataError(
            f"{where}: labels are {labels.dtype} of shape {labels.shape}; needed are whole "
            f"numbers, one for each of the {len(images)} images."
        )
    return images, np.asarray(labels).astype(np.int64)


def _class_names(
    parts: dict[str, _Part], classes: Sequence[str] | None, *, source: Path
) -> tuple[str, ...]:
    labels = np.concatenate([part.labels for part in parts.values()])
    number = len(classes) if classes is not None else np.unique(parts[TRAIN].labels).size
    if int(labels.min()) < 0 or int(labels.max()) >= number:
        raise data_error(
            source,
            f"labels run from {labels.min()} to {labels.max()}; {number} classes have "
            f"labels 0 to {number - 1}, without gaps.",
            "Renumber them: numpy.unique(labels, return_inverse=True).",
        )
    shapes = {part.images.shape[1:] for part in parts.values()}
    if len(shapes) > 1:
        raise data_error(source, f"images of both splits must have one shape, not {shapes}.")
    return tuple(classes) if classes is not None else tuple(str(i) for i in range(number))
