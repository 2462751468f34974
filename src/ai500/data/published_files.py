"""Identity of published data: files whose MD5 is publicly known, compared when a store is packed.

A store of decoded images has an identity of its own, which depends on the decoder. What its samples
were read from is shown by the archives' published hashes, kept beside the store in
`published.json`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ai500.core import atomic
from ai500.data.resumable_work import Progress

PUBLISHED_MD5 = {
    # ILSVRC 2012, as image-net.org and torchvision's `ImageNet` state them.
    "ILSVRC2012_img_train.tar": "1d675b47d978889d74fa0da5fadfb00e",
    "ILSVRC2012_img_val.tar": "29b22e2961454d5413ddabcf34fc5622",
    "ILSVRC2012_devkit_t12.tar.gz": "fa75699e90414af021442c21a62c3abf",
}
"""Name of a published file → its MD5."""
FILE = "published.json"
BLOCK_BYTES = 1 << 22


@dataclass(frozen=True, slots=True)
class PublishedFile:
    """A file of the source whose published hash is known."""

    name: str
    md5: str
    """MD5 of the file that was packed."""
    published_md5: str

    @property
    def same(self) -> bool:
        """True if it is the published file, to the byte."""
        return self.md5 == self.published_md5


def published_files(source: Path) -> list[Path]:
    """Return the files of a source that are known by name."""
    paths = [source / name for name in PUBLISHED_MD5] if source.is_dir() else [source]
    return [path for path in paths if path.name in PUBLISHED_MD5 and path.is_file()]


def compare_published(
    files: Sequence[Path], *, progress: Progress | None = None
) -> list[PublishedFile]:
    """Hash files that are known by name."""
    total, done = sum(path.stat().st_size for path in files), 0
    compared = []
    for path in files:
        digest = hashlib.md5(usedforsecurity=False)
        with path.open("rb") as file:
            while block := file.read(BLOCK_BYTES):
                digest.update(block)
                done += len(block)
                if progress is not None:
                    progress(done, total)
        compared.append(PublishedFile(path.name, digest.hexdigest(), PUBLISHED_MD5[path.name]))
    return compared


def record(store: Path, *, sha256: str, files: list[PublishedFile]) -> None:
    """Write the comparison beside a store; it names the store that was packed from the files."""
    body = {"store_sha256": sha256, "files": [asdict(file) for file in files]}
    atomic.write_json(store / FILE, body)


def recorded(store: Path, *, sha256: str) -> list[PublishedFile] | None:
    """Read the comparison of a store; None: there is none, or it is another store's."""
    try:
        body: dict[str, Any] = json.loads((store / FILE).read_text(encoding="utf-8"))
        if body["store_sha256"] != sha256:
            return None
        return [PublishedFile(**file) for file in body["files"]]
    except (OSError, ValueError, KeyError, TypeError):
        return None
