"""Any changed value of a sealed record is noticed; another indentation is not a change."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest

from ai500.core import sealed_json

RECORD = {"name": "first", "seed": 2**53 + 1, "loss": 0.1 + 0.2, "none": None, "many": [1, [2.0]]}


@pytest.mark.parametrize("value", [RECORD, {}, [], [1, {"a": 2}], [RECORD, RECORD]])
def test_what_was_sealed_is_intact_after_a_file_of_any_indentation(value: Any) -> None:
    for indent in (None, 0, 2):
        text = json.dumps(sealed_json.seal(value), indent=indent, sort_keys=indent == 0)
        assert sealed_json.unseal(json.loads(text)) == (value, True)


@pytest.mark.parametrize("value", [RECORD, [1, {"a": 2}], "text", 5, None, [], {}])
def test_records_of_earlier_versions_have_no_digest(value: Any) -> None:
    assert sealed_json.unseal(copy.deepcopy(value)) == (value, True)


@pytest.mark.parametrize(
    "change",
    [{"name": "First"}, {"seed": 2**53}, {"loss": 0.3}, {"none": 0}, {"many": [1, [2]]},
     {"more": None}],
)  # fmt: skip
def test_a_changed_value_is_noticed(change: dict[str, Any]) -> None:
    sealed = sealed_json.seal(RECORD)
    assert sealed_json.unseal(sealed | change) == (RECORD | change, False)


def test_a_lost_item_and_a_lost_key_are_noticed() -> None:
    assert sealed_json.unseal(sealed_json.seal([1, 2, 3])[1:])[1] is False
    sealed = sealed_json.seal(RECORD)
    del sealed["none"]
    assert sealed_json.unseal(sealed)[1] is False
