"""Where generated data, and what is known of a person's own, is kept between runs."""

from __future__ import annotations

import os
from pathlib import Path


def cache_folder() -> Path:
    """$AI500_CACHE, or `ai500` in the user's cache folder."""
    if "AI500_CACHE" in os.environ:
        return Path(os.environ["AI500_CACHE"])
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "ai500"
