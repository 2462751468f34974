"""JSON records that carry their SHA-256, so that a changed byte is noticed when they are read.

The digest is of the values, not of the text: a file that a tool indented anew is intact. It is the
last key of an object and the last item of a list. Records of earlier versions have none.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

KEY = "record_sha256"


def seal(value: Any) -> Any:
    """Return plain data with its digest; text and numbers can't carry one."""
    if isinstance(value, dict):
        return {**value, KEY: _digest(value)}
    if isinstance(value, list):
        return [*value, {KEY: _digest(value)}]
    return value


def unseal(value: Any) -> tuple[Any, bool]:
    """Return plain data without its digest, and False if the digest is another value's."""
    if isinstance(value, dict) and KEY in value:
        body = {key: item for key, item in value.items() if key != KEY}
        return body, value[KEY] == _digest(body)
    if isinstance(value, list) and value and isinstance(value[-1], dict) and [*value[-1]] == [KEY]:
        return value[:-1], value[-1][KEY] == _digest(value[:-1])
    return value, True


def _digest(value: Any) -> str:
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()
