"""A reader of arrays of structs in MATLAB's files (level 5), such as ImageNet's `meta.mat`."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from typing import Any

import numpy as np

HEADER_BYTES = 128
COMPRESSED, MATRIX = 15, 14
STRUCT, CHAR = 2, 4
NUMBERS = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 9: "f8", 12: "i8",
           13: "u8", 16: "u1", 17: "u2", 18: "u4"}  # fmt: skip
"""NumPy's types of MATLAB's; 16 to 18 are UTF-8, UTF-16 and UTF-32."""
ENCODINGS = {
    1: "latin-1",
    2: "latin-1",
    4: "utf-16",
    16: "utf-8",
    17: "utf-16",
    18: "utf-32",
}


def read_structs(data: bytes, name: str) -> list[dict[str, Any]]:
    """Return the structs of a variable; a `ValueError` says what is wrong."""
    if len(data) < HEADER_BYTES or data[126:128] not in (b"IM", b"MI"):
        raise ValueError("not a MATLAB file of level 5")
    order = "<" if data[126:128] == b"IM" else ">"
    try:
        for kind, content in _elements(data[HEADER_BYTES:], order):
            if kind == COMPRESSED:
                kind, content = next(_elements(zlib.decompress(content), order))
            if kind != MATRIX:
                continue
            variable, value = _matrix(content, order)
            if variable == name:
                if not isinstance(value, list):
                    raise ValueError(f"{name} is no array of structs")
                return value
    except (zlib.error, struct.error, StopIteration, UnicodeDecodeError) as error:
        raise ValueError(f"damaged ({error})") from error
    raise ValueError(f"no variable {name}")


def _elements(data: bytes, order: str) -> Iterator[tuple[int, bytes]]:
    """Yield type and content of the elements, each of which begins at a multiple of 8 bytes."""
    place = 0
    while place + 8 <= len(data):
        kind, size = struct.unpack_from(f"{order}II", data, place)
        if kind >> 16:  # up to four bytes stand in the tag itself
            kind, size = kind & 0xFFFF, kind >> 16
            yield kind, data[place + 4 : place + 4 + size]
            place += 8
            continue
        content = data[place + 8 : place + 8 + size]
        if len(content) < size:
            raise ValueError("damaged (it ends too early)")
        yield kind, content
        place += 8 + size + (0 if kind == COMPRESSED else -size % 8)


def _matrix(content: bytes, order: str) -> tuple[str, Any]:
    """Return name and value of an array: structs, a text, or a number (or several)."""
    elements = _elements(content, order)
    flags, sizes = next(elements)[1], next(elements)[1]
    name = next(elements)[1].decode("latin-1")
    shape = np.frombuffer(sizes, f"{order}i4")
    array_class = struct.unpack_from(f"{order}I", flags)[0] & 0xFF
    if array_class == STRUCT:
        width = struct.unpack(f"{order}i", next(elements)[1])[0]
        packed = next(elements)[1]
        starts = range(0, len(packed), width)
        names = [packed[at : at + width].split(b"\0")[0].decode("latin-1") for at in starts]
        values = [_matrix(element, order)[1] if element else None for _, element in elements]
        if len(values) != len(names) * int(shape.prod()):
            raise ValueError("damaged (fields are missing)")
        cells = range(0, len(values), len(names) or 1)
        return name, [dict(zip(names, values[at:], strict=False)) for at in cells]
    kind, raw = next(elements, (1, b""))
    if array_class == CHAR:
        encoding = ENCODINGS[kind] + (
            "" if kind in (1, 2, 16) else "-le" if order == "<" else "-be"
        )
        return name, raw.decode(encoding)
    if kind not in NUMBERS:
        return name, None
    numbers = np.frombuffer(raw, order + NUMBERS[kind])
    return name, numbers[0].item() if numbers.size == 1 else numbers.tolist()
