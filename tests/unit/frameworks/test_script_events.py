"""A script's lines: JSON, MLPerf's log, its own output, and broken events."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ai500.core.schema import SchemaError
from ai500.frameworks.script_events import ScriptEvent, parse_json, parse_stdout


def mllog(key: str, value: Any = None, **metadata: Any) -> str:
    entry = {"namespace": "", "time_ms": 1, "event_type": "POINT_IN_TIME", "key": key}
    return ":::MLLOG " + json.dumps(entry | {"value": value, "metadata": metadata})


@pytest.mark.parametrize(
    ("line", "event"),
    [
        (mllog("run_start"), ScriptEvent("first_batch")),
        (mllog("epoch_stop", epoch_num=2), ScriptEvent("epoch", epoch=2)),
        (mllog("epoch_stop", epoch_num=2.0, samples_count=9), ScriptEvent("epoch", 2, samples=9)),
        (mllog("eval_accuracy", 0.5, epoch_num=1), ScriptEvent("quality", 1, quality=0.5)),
        (mllog("run_stop", status="success"), ScriptEvent("end")),
        (mllog("eval_start", epoch_num=1), None),
        (mllog("global_batch_size", 32), None),
        (':::AI500 {"event": "epoch", "epoch": 1, "loss": 2}', ScriptEvent("epoch", 1, loss=2.0)),
        ('{"event": "end"}', None),  # its own output
        ("loss 0.5", None),
    ],
)
def test_lines_of_standard_output(line: str, event: ScriptEvent | None) -> None:
    assert parse_stdout(line + "\n") == event


@pytest.mark.parametrize(
    ("line", "key"),
    [
        (":::AI500 garbage", ""),
        (":::MLLOG {", ""),
        (":::AI500 [1]", ""),
        (':::AI500 {"event": "epochs"}', "event"),
        (':::AI500 {"event": "epoch"}', "epoch"),
        (':::AI500 {"event": "quality", "epoch": 1}', "quality"),
        (':::AI500 {"event": "quality", "epoch": 1, "quality": NaN}', "quality"),
        (':::AI500 {"event": "epoch", "epoch": 1, "los": 1}', "los"),
        (mllog("epoch_stop"), "epoch_num"),
        (mllog("epoch_stop", epoch_num=0.5), "epoch"),
        (mllog("eval_accuracy", epoch_num=1), "value"),
        (mllog("eval_accuracy", "good", epoch_num=1), "quality"),
        (mllog("run_stop", status="aborted"), "status"),
    ],
)
def test_a_bad_event_names_its_key(line: str, key: str) -> None:
    with pytest.raises(SchemaError) as caught:
        parse_stdout(line)
    assert caught.value.key == key


@given(st.text())
def test_no_text_breaks_the_parsers(text: str) -> None:
    for line in (text, ":::MLLOG " + text, ":::AI500 " + text):
        try:
            parse_stdout(line)
        except SchemaError:
            continue
    try:
        assert parse_json(text).event
    except SchemaError:
        return
