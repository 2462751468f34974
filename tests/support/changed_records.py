"""Records that are changed as their writer would: with the digest of the new values."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ai500.core import atomic, sealed_json


def load(path: Path) -> Any:
    """Return the values of a record without their digest."""
    return sealed_json.unseal(json.loads(path.read_text(encoding="utf-8")))[0]


def save(path: Path, value: Any) -> None:
    """Write values with their digest."""
    atomic.write_json(path, sealed_json.seal(value))
