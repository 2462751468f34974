"""Untrusted files are refused if their content is unsafe or of another type."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ai500.core import events, reading
from ai500.core.reading import UnsafeTextError
from ai500.submission import untrusted
from ai500.submission.untrusted import Budget

EVIL = {
    "NaN": '{"a": NaN}',
    "infinity": '{"a": -Infinity}',
    "overflow": '{"a": 1e999}',
    "huge": '{"a": 1' + "0" * 100 + "}",
    "very huge": '{"a": 1' + "0" * 10_000 + "}",
    "duplicate key": '{"a": 1, "a": 2}',
    "deep": "[" * 40 + "]" * 40,
    "bottomless": "[" * 100_000 + "]" * 100_000,
    "deep tables": '{"a":' * 50_000 + "1" + "}" * 50_000,
    "lone surrogate": '{"a": "\\ud800"}',
    "lone surrogate in a key": '{"\\udfff": 1}',
    "terminal's title": '{"a": "X\\u001b]0;mine\\u0007"}',
    "one-byte escape": '{"a": "\\u009b2J"}',
    "escape in a key": '{"\\u001b[2J": 1}',
    "right to left": '{"a": "\\u202eytisrevinU"}',
    "no width": '{"a": "Uni\\u200bversity"}',
    "filler letter": '{"a": "X\\u3164"}',
    "variation": '{"a": "X\\ufe0f"}',
    "tag": '{"a": "X\\udb40\\udc41"}',
    "line separator": '{"a": "X\\u2028Y"}',
}


@pytest.mark.parametrize("name", EVIL)
def test_evil_json(name: str, tmp_path: Path) -> None:
    document, lines = tmp_path / "x.json", tmp_path / "x.jsonl"
    document.write_text(EVIL[name])
    assert untrusted.refusal(document)
    lines.write_text('{"event": "fine"}\n' + EVIL[name] + "\n")
    assert "line 2" in str(untrusted.refusal(lines)) or "deeper" in str(untrusted.refusal(lines))


@pytest.mark.parametrize("content", [b"\xff\xfe", b"{\x00}", b"", b'{"a": "\xed\xa0\x80"}', b"{"])
def test_not_json(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "x.json").write_bytes(content)
    assert untrusted.refusal(tmp_path / "x.json")


def test_a_torn_line_is_skipped_as_in_scoring(tmp_path: Path) -> None:
    (tmp_path / "x.jsonl").write_text('{"event": "a"}\n{"event": "to\n{"event": "b"}\n')
    assert untrusted.refusal(tmp_path / "x.jsonl") is None


def test_lines_end_as_in_scoring(tmp_path: Path) -> None:
    """A carriage return ends no line: the two tables are no JSON, and no event."""
    (tmp_path / "x.jsonl").write_bytes(b'{"event": "a"}\r{"event": "end", "wall": NaN}\n')
    assert untrusted.refusal(tmp_path / "x.jsonl") is None
    assert list(events.read(tmp_path / "x.jsonl")) == []


@pytest.mark.parametrize(
    "content", ["a = ", "a = 1\na = 2", "a = " + "[" * 3000 + "]" * 3000, "a = 1" + "0" * 5000]
)
def test_evil_toml(content: str, tmp_path: Path) -> None:
    (tmp_path / "x.toml").write_text(content)
    assert untrusted.refusal(tmp_path / "x.toml")


@pytest.mark.parametrize("name", ["x.py", "x.pkl", "x.npy", "x", "x.so", "x.html"])
def test_other_types_of_files(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text("")
    assert untrusted.refusal(tmp_path / name)


@given(data=st.binary(max_size=300))
def test_cleaned_logs_are_accepted(data: bytes, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("log") / "log.txt"
    path.write_bytes(untrusted.without_control_characters(data))
    assert untrusted.refusal(path) is None


@pytest.mark.parametrize(
    ("name", "limit"),
    [
        ("trials/01/members/000/record.json", "MAX_RECORD_BYTES"),
        ("trials/01/systems/n1-000.json", "MAX_RECORD_BYTES"),
        ("submission.json", "MAX_RECORD_BYTES"),
        ("plan.json", "MAX_DOCUMENT_BYTES"),
        ("events.jsonl", "MAX_LINES_BYTES"),
    ],
)
def test_each_type_of_file_has_a_limit(
    name: str, limit: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text('{"a": 1}')
    assert untrusted.refusal(path) is None
    monkeypatch.setattr(untrusted, limit, 7)
    assert "8 bytes, more than 7" in str(untrusted.refusal(path))


MEGABYTE = 1 << 20


@pytest.mark.parametrize(
    ("name", "begin", "largest"),
    [
        ("trials/01/members/000/record.json", "{}", MEGABYTE),
        ("trials/01/members/000/log.txt", "a", MEGABYTE),
    ],
)
def test_the_largest_file_of_each_type(name: str, begin: str, largest: int, tmp_path: Path) -> None:
    """Other versions of ai500 have to accept what this one wrote."""
    path = tmp_path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(begin + " " * (largest - len(begin)))
    assert untrusted.refusal(path) is None
    with path.open("a") as file:
        file.write(" ")
    assert f"more than {largest}" in str(untrusted.refusal(path))


def test_the_largest_log(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    path.touch()
    os.truncate(path, 512 * MEGABYTE + 1)
    assert f"more than {512 * MEGABYTE}" in str(untrusted.refusal(path))


def test_the_longest_string_that_is_shown(tmp_path: Path) -> None:
    for length, shown_is_refused in ((1024, False), (1025, True)):
        for name, is_shown in (("system.json", True), ("record.json", False)):
            (tmp_path / name).write_text(json.dumps({"name": "a" * length}))
            is_refused = untrusted.refusal(tmp_path / name) is not None
            assert is_refused == (is_shown and shown_is_refused)


@pytest.mark.parametrize(
    ("size", "values", "log_bytes"),
    [
        (0, 2_000_000, 9_000_000),
        (16_000_008, 2_000_001, 16_000_008),
        (9_000_001, 2_000_000, 9_000_001),
    ],
)
def test_the_budget_of_a_submission(size: int, values: int, log_bytes: int) -> None:
    budget = Budget.of(size)
    assert (budget.values, budget.log_bytes, budget.is_spent) == (values, log_bytes, False)


def test_a_budget_is_spent_to_its_end(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_text("[1, 2]")
    need = Budget().spend("[1, 2]")
    for values, accepted in ((need, True), (need - 1, False)):
        budget = Budget(values=values)
        assert (untrusted.refusal(path, budget) is None) == accepted
        assert budget.is_spent != accepted


@pytest.mark.parametrize(
    ("name", "least"), [("events.jsonl", 285), ("trials/01/meters/n1-000.jsonl", 80)]
)
def test_each_line_of_a_log_counts_at_least(name: str, least: int, tmp_path: Path) -> None:
    path = tmp_path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text('{"event": "a"}\n{"event": "b"}\n')
    for log_bytes, accepted in ((2 * least, True), (2 * least - 1, False)):
        budget = Budget(log_bytes=log_bytes)
        assert (untrusted.refusal(path, budget) is None) == accepted
        assert budget.is_spent != accepted


def test_a_node_has_so_many_values_of_meters_in_each_trial() -> None:
    budget = Budget()
    for trial in ("01", "02"):
        budget.spend_meters((trial, "boot"), 2_499_999)
        budget.spend_meters((trial, "boot"), 1)
    with pytest.raises(UnsafeTextError):
        budget.spend_meters(("01", "boot"), 1)


def test_so_many_lines_without_an_event(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    path.write_text("torn\n" * 1000)
    assert untrusted.refusal(path) is None
    path.write_text("torn\n" * 1001)
    assert "1000 lines" in str(untrusted.refusal(path))


def test_many_small_values_are_refused_before_parsing(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    path.write_text("[" + "[]," * reading.MAX_VALUES + "[]]")
    assert "values" in str(untrusted.refusal(path))


@pytest.mark.parametrize(
    "character", ["\u202e", "\u2066", "\u200b", "\u00ad", "\u3164", "\U000e0041"]
)
@pytest.mark.parametrize("escaped", [True, False])
def test_invisible_characters(character: str, escaped: bool, tmp_path: Path) -> None:
    """They turn the direction of writing, or make two names look alike."""
    (tmp_path / "x.json").write_text(json.dumps({"name": f"A{character}B"}, ensure_ascii=escaped))
    (tmp_path / "x.txt").write_text(f"A{character}B")
    assert "invisible" in str(untrusted.refusal(tmp_path / "x.json"))
    assert "invisible" in str(untrusted.refusal(tmp_path / "x.txt"))


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**30), 10**30)
    | st.text().filter(lambda text: not reading.FORBIDDEN.search(text)) | st.just("a\n\tb")
    | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text("ab{}", max_size=3), inner),
    max_leaves=20,
)  # fmt: skip


@given(json_values)
def test_plain_json_is_parsed_unchanged(value: object) -> None:
    assert reading.parse_json(json.dumps(value)) == value
