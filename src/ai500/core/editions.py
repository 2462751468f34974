"""Editions of the list, and the seed that follows from each [D22]."""

from __future__ import annotations

import re

CURRENT = "2026-11"
"""Edition that runs enter unless `run.edition` names another."""
_FORMAT = re.compile(r"20\d\d-(0[1-9]|1[0-2])")
# Month before the first edition, 2026-11, so that its seed is 1.
_ORIGIN = 12 * 2026 + 10


def is_edition(text: str) -> bool:
    """Return True for a year and a month such as 2026-11."""
    return _FORMAT.fullmatch(text) is not None


def months_of(edition: str) -> int:
    """Return the months from year 0 to an edition, or to any date that begins like one."""
    year, month = edition.split("-")[:2]
    return 12 * int(year) + int(month)


def edition_seed(edition: str) -> int | None:
    """Return the seed of an edition's runs: its number of months after October 2026.

    Trials derive their seeds from it (`randomness.derive`), so close editions share no draws. None:
    there is no such edition.
    """
    if not is_edition(edition) or months_of(edition) <= _ORIGIN:
        return None
    return months_of(edition) - _ORIGIN
