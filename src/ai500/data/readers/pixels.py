"""Decoding of images: upright, square, and at the precision that they were saved with.

Images of 8 bits per value become RGB; the short side is resized and the centre cropped, as
torchvision's Resize and CenterCrop do. A channel of 16-bit or floating-point values keeps its type.
"""

from __future__ import annotations

import io
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import ExifTags, Image, UnidentifiedImageError

from ai500.core.errors import DataError
from ai500.records.fields import Field

SUFFIXES = frozenset(
    (
        ".bmp",
        ".gif",
        ".jfif",
        ".jpeg",
        ".jpg",
        ".pgm",
        ".png",
        ".ppm",
        ".tif",
        ".tiff",
        ".webp",
    )
)
MAX_SIZE = 4096
AS_ARRAYS = "Pack them as arrays: a .npy or .npz of uint16 or float32 keeps every value."

TURNS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
"""Transposition that turns an image upright, by EXIF orientation (Pillow's own for TIFF)."""

Pixels = NDArray[Any]


class PrecisionError(DataError):
    """An image that has more bits per value than the store, or than can be decoded here."""


def image_field(name: str, dtype: str, size: int) -> Field:
    """Return the field of images of a type: RGB for 8 bits, else one channel."""
    if not 1 <= size <= MAX_SIZE:
        raise DataError(
            f"size = {size}: the side of a packed image must be 1 to {MAX_SIZE} pixels.",
            key="size",
            value=size,
        )
    return Field(name, "input", dtype, (size, size, 3 if dtype == "uint8" else 1))


def dtype_of(image: Image.Image, name: str) -> str:
    """Return the type that keeps every value; raise `PrecisionError` where Pillow would cut it."""
    mode, raw = image.mode, _raw_mode(image)
    if mode == "I" and "16S" in raw:
        return "int16"
    if mode.startswith("I;16") or (mode == "I" and "16" in raw):
        return "uint16"
    if mode == "F" and "64" not in raw:
        return "float32"
    # Pillow decodes several channels of 16 bits to 8, and whole numbers of 32 bits to RGB by
    # clipping them to 255: both lose nearly all that such an image holds.
    kept = {"I": "32-bit integers", "F": "64-bit floats"}.get(mode)
    if kept or "16" in raw:
        raise PrecisionError(
            f"{name}: {kept or 'colours of 16 bits'} cannot be decoded without losing precision.",
            key="dtype",
            value=f"{mode} {raw}",
            path=name,
            remedy=AS_ARRAYS,
        )
    return "uint8"


def _raw_mode(image: Image.Image) -> str:
    """Return the layout of the encoded values, with `16` in it where values have 16 bits."""
    tiles = getattr(image, "tile", None)
    if not tiles:
        return image.mode
    arguments = tiles[0][3]
    first, *rest = arguments if isinstance(arguments, tuple) else (arguments,)
    if tiles[0][0].startswith("ppm") and rest and isinstance(rest[0], int) and rest[0] > 255:
        return f"{first};16"
    return str(first)


def read_dtype(encoded: bytes | Path, name: str) -> str:
    """Return the type of an encoded image's values, from its header."""
    with _opened(encoded, name) as image:
        return dtype_of(image, name)


def decode(encoded: bytes | Path, *, size: int, dtype: str, name: str) -> Pixels:
    """Decode an image and bring it to size × size pixels; a damaged one may raise anything."""
    with _opened(encoded, name) as image:
        return squared(image, size=size, dtype=dtype, name=name)


def squared(image: Image.Image, *, size: int, dtype: str, name: str) -> Pixels:
    """Turn an image upright and scale its centre square to size × size, antialiased."""
    actual = dtype_of(image, name)
    if actual != dtype:
        raise PrecisionError(
            f"{name}: values are {actual}; those of the first image are {dtype}, and a store has "
            "one type.",
            key="dtype",
            value=actual,
            path=name,
            remedy=f"Save it as {dtype} (the same command then continues), or pack {actual} "
            "images by themselves.",
        )
    if dtype == "uint8":
        return _cropped(image.convert("RGB"), _orientation(image), size=size)
    # float32 holds whole numbers of 16 bits exactly.
    values = Image.fromarray(np.asarray(image, dtype=np.float32))
    scaled = _cropped(values, _orientation(image), size=size)[..., None]
    if dtype == "float32":
        return scaled
    limits = np.iinfo(dtype)
    return np.rint(scaled).clip(limits.min, limits.max).astype(dtype)


def _opened(encoded: bytes | Path, name: str) -> Image.Image:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # odd metadata is no reason to leave an image out
        try:
            return Image.open(io.BytesIO(encoded) if isinstance(encoded, bytes) else encoded)
        except UnidentifiedImageError:
            if name.lower().endswith((".tif", ".tiff")):
                text = f"Pillow cannot decode this TIFF (several float channels?). {AS_ARRAYS}"
                raise ValueError(text) from None
            # Pillow's own text has an address in memory, which differs in every run.
            raise UnidentifiedImageError("not an image of a known format") from None


def _orientation(opened: Image.Image) -> int:
    """Return the EXIF orientation of an image that is loaded; 1: upright."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return int(opened.getexif().get(ExifTags.Base.Orientation, 1))
        except Exception:  # a damaged EXIF block may raise anything, and the pixels are fine
            return 1


def _cropped(image: Image.Image, orientation: int, *, size: int) -> Pixels:
    """Turn an image upright, crop its centre and scale it."""
    if orientation in TURNS:
        image = image.transpose(TURNS[orientation])
    short = min(image.size)
    left, top = (image.width - short) / 2, (image.height - short) / 2
    box = (left, top, left + short, top + short)
    return np.asarray(image.resize((size, size), Image.Resampling.BILINEAR, box=box))
