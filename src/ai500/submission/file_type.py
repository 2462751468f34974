"""What a file is that was given for a submission and never was one."""

from __future__ import annotations

from pathlib import Path

from ai500.submission.archive import BLOCK

EXPECTED = (
    "Expected is a file that `ai500 submit RUN --level hardware --out FILE.ai500` wrote; "
    "`ai500 check RUN` judges a run folder as it is."
)
_MAGIC = b"ustar\x0000"
_MAGIC_AT = 257
_KNOWN = (
    (b"PK\x03\x04", "a zip archive"),
    (b"\x1f\x8b", "compressed by gzip"),
    (b"\xfd7zXZ", "compressed by xz"),
    (b"\x28\xb5\x2f\xfd", "compressed by zstd"),
    (b"\x89PNG", "a picture (PNG)"),
    (b"\xff\xd8\xff", "a picture (JPEG)"),
    (b"%PDF", "a PDF"),
    (b"\x7fELF", "a program"),
    (b"\x89HDF", "HDF5 data"),
    (b"-----BEGIN", "a key or certificate (PEM)"),
)


def kind_of(path: Path) -> str | None:
    """What a file is, in words; None: it begins as `ai500 submit` begins one."""
    with path.open("rb") as file:
        start = file.read(BLOCK)
    if start[_MAGIC_AT:].startswith(_MAGIC):
        return None
    if not start:
        return "an empty file"
    if start[_MAGIC_AT:].startswith(b"ustar"):
        return "a tar archive of another program's"
    for magic, words in _KNOWN:
        if start.startswith(magic):
            return words
    return "a text file" if _is_text(start) else "a file of another kind"


def _is_text(start: bytes) -> bool:
    # The last character may be cut in the middle.
    text = start.decode("utf-8", errors="ignore")
    whole = len(text.encode()) >= len(start) - 3
    return whole and all(c.isprintable() or c in "\t\n\r\f" for c in text)
