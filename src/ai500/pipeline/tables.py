"""Tables of a run for spreadsheets and notebooks: members, trials, events, series of the meters."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from ai500.core import events
from ai500.core.atomic import explaining_write_errors, write_text
from ai500.data.readers.parquet import pyarrow
from ai500.meters.log import read_meters
from ai500.pipeline import scoring
from ai500.records import Plan, TrainRecord, run_folder
from ai500.records.run_folder import RunFolder

Row = dict[str, Any]
EVENT_COLUMNS = ("wall", "event", "trial", "member")
"""Columns of their own; the other values of an event are one column of JSON."""


def flat(record: Any) -> Row:
    """Return a record's own values, without records inside it."""
    values = {field.name: getattr(record, field.name) for field in dataclasses.fields(record)}
    return {name: value for name, value in values.items() if not dataclasses.is_dataclass(value)}


def trial_rows(run: RunFolder) -> Iterator[Row]:
    """Yield the score of each trial, recomputed from the run's events."""
    yield from (flat(trial) for trial in scoring.score_from_events(run)[2].trials)


def member_rows(run: RunFolder) -> Iterator[Row]:
    """Yield the record of each member that finished, with its trial."""
    plan = run_folder.read(Plan, run.plan)
    for trial in _trials(plan, run):
        for member in range(plan.ensemble_size):
            path = run.trial(trial).member(member).record
            if path.exists():
                yield {"trial": trial} | flat(run_folder.read(TrainRecord, path))


def event_rows(run: RunFolder) -> Iterator[Row]:
    """Yield the run's events in order."""
    for event in events.read_checked(run.events):
        rest = {name: value for name, value in event.items() if name not in EVENT_COLUMNS}
        yield {name: event.get(name) for name in EVENT_COLUMNS} | {"values": rest}


def meter_rows(run: RunFolder) -> Iterator[Row]:
    """Yield each value that a meter recorded, with its wall-clock time."""
    for trial in _trials(run_folder.read(Plan, run.plan), run):
        for node in read_meters(run.trial(trial).meters):
            for sample in node.samples:
                for column, value in zip(sample.columns, sample.values, strict=True):
                    if value is not None:
                        yield {
                            "trial": trial, "node": node.name, "meter": column.meter,
                            "device": column.device, "quantity": column.quantity,
                            "wall": sample.clocks["wall"], "value": value,
                        }  # fmt: skip


TABLES: dict[str, Callable[[RunFolder], Iterator[Row]]] = {
    "members": member_rows,
    "trials": trial_rows,
    "events": event_rows,
    "meters": meter_rows,
}


def _trials(plan: Plan, run: RunFolder) -> list[int]:
    return [n for n in range(1, plan.trials + 1) if run.trial(n).trial.exists()]


def write_csv(path: Path, rows: list[Row]) -> None:
    """Write a table as CSV with a line of names; lists and tables are JSON."""
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, _names(rows), lineterminator="\n")
    writer.writeheader()
    writer.writerows({name: _plain(value) for name, value in row.items()} for row in rows)
    write_text(path, text.getvalue())


def write_parquet(path: Path, rows: list[Row]) -> None:
    """Write a table as Parquet; lists and tables are JSON."""
    arrow, parquet = pyarrow("pyarrow"), pyarrow("pyarrow.parquet")
    columns = {name: [_plain(row.get(name)) for row in rows] for name in _names(rows)}
    with explaining_write_errors(path):
        parquet.write_table(arrow.table(columns), path)


def _names(rows: list[Row]) -> list[str]:
    return list(dict.fromkeys(name for row in rows for name in row))


def _plain(value: Any) -> Any:
    if isinstance(value, dict | list | tuple):
        return json.dumps(value, default=dataclasses.asdict)
    return value
