"""Images keep their precision and stand upright, or are refused with the reason."""

from __future__ import annotations

import io
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from ai500.core.errors import DataError
from ai500.data.pack import pack
from ai500.data.readers.open_source import Options
from ai500.data.readers.pixels import PrecisionError, decode

SIZE = 16
DEEP = (np.arange(SIZE * SIZE, dtype=np.uint32) * 257 % 65536).astype(np.uint16)
DEEP = DEEP.reshape(SIZE, SIZE)


def tree(folder: Path, images: list[Image.Image], *, suffix: str) -> Path:
    """Two classes with the same images."""
    for name in ("ant", "bee"):
        (folder / name).mkdir(parents=True)
        for number, image in enumerate(images):
            image.save(folder / name / f"{number}.{suffix}")
    return folder


@pytest.mark.parametrize(
    ("suffix", "values"),
    [
        ("png", DEEP), ("tif", DEEP), ("pgm", DEEP),
        ("tif", DEEP.astype(np.float32) / 7 - 1000),
    ],
    ids=["png", "tiff", "pgm", "float"],
)  # fmt: skip
def test_deep_images_keep_every_value(tmp_path: Path, suffix: str, values: np.ndarray) -> None:
    source = tree(tmp_path / "deep", [Image.fromarray(values)] * 3, suffix=suffix)
    store = pack(source, tmp_path / "store", options=Options(size=SIZE), workers=1).store
    (images, _) = store.fields
    assert (images.dtype, images.shape) == (values.dtype.name, (SIZE, SIZE, 1))
    stored = store.splits["train"].array("images")
    assert np.array_equal(stored[0, ..., 0], values)


def test_deep_images_are_scaled_in_their_own_range(tmp_path: Path) -> None:
    values = np.full((32, 32), 1000, np.uint16)
    values[:, ::2] = 60000
    Image.fromarray(values).save(tmp_path / "stripes.png")
    scaled = decode(tmp_path / "stripes.png", size=8, dtype="uint16", name="stripes")
    assert np.all(np.abs(scaled[:, 1:-1].astype(int) - 30500) < 600)


def png_of_16_bit_colours() -> bytes:
    def chunk(kind: bytes, data: bytes) -> bytes:
        return (
            struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        )

    rows = b"".join(b"\0" + np.arange(9, dtype=">u2").tobytes() for _ in range(3))
    header = struct.pack(">IIBBBBB", 3, 3, 16, 2, 0, 0, 0)
    signature = b"\x89PNG\r\n\x1a\n"
    parts = (b"IHDR", header), (b"IDAT", zlib.compress(rows)), (b"IEND", b"")
    return signature + b"".join(chunk(kind, data) for kind, data in parts)


def tiff(values: np.ndarray, *, kind: int) -> bytes:
    """A TIFF of one channel; kind 2: signed integers, 3: floats, which Pillow does not write."""
    height, width = values.shape
    data = values.astype(values.dtype.newbyteorder("<")).tobytes()
    entries = {
        256: width, 257: height, 258: 8 * values.itemsize, 259: 1, 262: 1, 277: 1, 278: height,
        279: len(data), 339: kind,
    }  # fmt: skip
    entries[273] = 8 + 2 + 12 * (len(entries) + 1) + 4
    table = b"".join(
        struct.pack("<HHII", tag, 4, 1, value) for tag, value in sorted(entries.items())
    )
    return b"II*\0" + struct.pack("<IH", 8, len(entries)) + table + bytes(4) + data


def test_signed_integers_keep_their_sign(tmp_path: Path) -> None:
    values = DEEP.view(np.int16)
    assert values.min() < -20000
    (tmp_path / "scan.tif").write_bytes(tiff(values, kind=2))
    decoded = decode(tmp_path / "scan.tif", size=SIZE, dtype="int16", name="scan.tif")
    assert np.array_equal(decoded[..., 0], values)


def tiff_of_32_bit_integers() -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(DEEP.astype(np.int32)).save(buffer, "TIFF")
    return buffer.getvalue()


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("colours.png", png_of_16_bit_colours()),
        ("colours.ppm", b"P6 2 2 65535\n" + np.arange(12, dtype=">u2").tobytes()),
        ("integers.tif", tiff_of_32_bit_integers()),
    ],
)
def test_precision_that_would_be_lost_is_refused(tmp_path: Path, name: str, data: bytes) -> None:
    source = tree(tmp_path / "mixed", [], suffix="png")
    for number in range(2):
        (source / "ant" / f"{number}{name}").write_bytes(data)
        (source / "bee" / f"{number}{name}").write_bytes(data)
    with pytest.raises(PrecisionError) as raised:
        pack(source, tmp_path / "store", options=Options(size=8), workers=1)
    assert raised.value.key == "dtype"
    assert str(raised.value.path).endswith(name)
    assert ".npy" in raised.value.remedy
    assert not (tmp_path / "store" / "manifest.json").exists()


def test_a_type_that_pillow_does_not_know_is_refused(tmp_path: Path) -> None:
    source = tree(tmp_path / "doubles", [], suffix="tif")
    for name in ("ant/0", "ant/1", "bee/0", "bee/1"):
        data = tiff(np.linspace(0, 1, 16).reshape(4, 4), kind=3)
        (source / f"{name}.tif").write_bytes(data)
    with pytest.raises(DataError) as raised:
        pack(source, tmp_path / "store", options=Options(size=8), workers=1)
    assert (raised.value.key, raised.value.value) == ("train", 2)
    assert ".npy" in str(raised.value)  # the file type to write instead
    assert not (tmp_path / "store" / "manifest.json").exists()


@pytest.mark.parametrize("first", ["uint8", "uint16"])
def test_one_image_of_another_type_stops_the_packing(tmp_path: Path, first: str) -> None:
    kinds = {"uint8": DEEP.astype(np.uint8), "uint16": DEEP}
    source = tree(tmp_path / "mixed", [Image.fromarray(kinds[first])] * 4, suffix="png")
    (other,) = set(kinds) - {first}
    Image.fromarray(kinds[other]).save(source / "bee" / "2.png")
    with pytest.raises(PrecisionError) as raised:
        pack(source, tmp_path / "store", options=Options(size=8), workers=1)
    assert (raised.value.value, raised.value.path) == (other, "bee/2.png")
    Image.fromarray(kinds[first]).save(source / "bee" / "2.png")
    packed = pack(source, tmp_path / "store", options=Options(size=8), workers=1)
    assert packed.store.fields[0].dtype == first


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("suffix", ["jpg", "png", "tif"])
def test_images_are_turned_as_exif_says(tmp_path: Path, suffix: str, orientation: int) -> None:
    upright = np.zeros((SIZE, SIZE, 3), np.uint8)
    upright[:8, :8, 0] = 240  # red top left
    upright[:8, 8:, 1] = 240  # green top right
    turns = {
        1: [], 2: [Image.Transpose.FLIP_LEFT_RIGHT], 3: [Image.Transpose.ROTATE_180],
        4: [Image.Transpose.FLIP_TOP_BOTTOM], 5: [Image.Transpose.TRANSPOSE],
        6: [Image.Transpose.ROTATE_90], 7: [Image.Transpose.TRANSVERSE],
        8: [Image.Transpose.ROTATE_270],
    }  # fmt: skip
    image = Image.fromarray(upright)
    for turn in turns[orientation]:
        image = image.transpose(turn)
    exif = Image.Exif()
    exif[0x0112] = orientation
    file = tmp_path / f"photo.{suffix}"
    image.save(file, exif=exif, **({"quality": 95} if suffix == "jpg" else {}))
    decoded = decode(file, size=SIZE, dtype="uint8", name=file.name).astype(int)
    assert np.abs(decoded[2:6, 2:6] - [240, 0, 0]).max() < 40
    assert np.abs(decoded[2:6, 10:14] - [0, 240, 0]).max() < 40


def test_a_damaged_exif_block_is_no_reason_to_leave_an_image_out(tmp_path: Path) -> None:
    file = tmp_path / "photo.jpg"
    Image.new("RGB", (8, 8), "white").save(file, exif=b"Exif\0\0MM\0*\0\0\xff\xff" + bytes(8))
    assert decode(file, size=8, dtype="uint8", name="photo").min() > 250
