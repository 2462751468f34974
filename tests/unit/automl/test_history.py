"""The history of a search: written by one, read by all, whatever happens to a line."""

from __future__ import annotations

import json
import sys
import tempfile
import threading
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ai500.automl.history import Ended, Epoch, History, Line, Model, Presence, Reader, Work, Writer
from tests.support.synthetic_search import candidate, trained, write_history


def written(members: Path, worker: int = 0) -> Path:
    folder = members / f"{worker:03d}"
    folder.mkdir(parents=True)
    writer = Writer(folder, worker=worker, attempt=1)
    writer.write(Presence("begin"))
    writer.write(candidate(f"{worker:03d}-0001", moves=("deeper",)))
    writer.write(Work(f"{worker:03d}-0001", "train", 1, 0, 10, 1.5))
    writer.write(Epoch(f"{worker:03d}-0001", 1, 2.3, 0.4, 0.7))
    writer.write(Ended(f"{worker:03d}-0001", "stopped_early", "weights/1.pt"))
    return folder / "history.jsonl"


def test_what_is_written_is_read_by_everybody(tmp_path: Path) -> None:
    written(tmp_path, 0)
    written(tmp_path, 12)
    history = History(tmp_path)
    lines = history.refresh()
    assert [(line.worker, type(line.entry)) for line in lines[:2]] == [
        (0, Presence),
        (0, type(candidate(""))),
    ]
    assert set(history.models) == {"000-0001", "012-0001"}
    model = history.models["012-0001"]
    assert model.candidate == candidate("012-0001", moves=("deeper",))
    assert (model.accuracy, model.predicted, model.state) == (0.4, 0.7, "stopped_early")
    assert model.architecture.digest == model.candidate.digest
    assert history.unreadable == []


def test_only_what_is_new_is_read_and_late_workers_are_found(tmp_path: Path) -> None:
    history = History(tmp_path)
    assert history.refresh() == []
    write_history(tmp_path, 0, trained(candidate("a"), at=0, accuracies=[0.1]))
    assert len(history.refresh()) == 6
    assert history.refresh() == []
    write_history(tmp_path, 0, [(30, Epoch("a", 2, None, 0.3))])
    write_history(tmp_path, 1, trained(candidate("b", "a"), at=20, accuracies=[0.2]))
    assert len(history.refresh()) == 7
    assert history.models["a"].accuracy == 0.3
    assert history.models["b"].worker == 1


def test_a_line_that_is_still_being_written_is_waited_for(tmp_path: Path) -> None:
    path = written(tmp_path)
    whole = path.read_bytes()
    path.write_bytes(whole[:-20])
    history = History(tmp_path)
    assert len(history.refresh()) == 4
    path.write_bytes(whole)
    assert [type(line.entry) for line in history.refresh()] == [Ended]


def test_a_torn_line_spoils_itself_alone(tmp_path: Path) -> None:
    path = written(tmp_path)
    path.write_bytes(path.read_bytes()[:-20])
    writer = Writer(path.parent, worker=0, attempt=2)
    writer.write(Epoch("000-0001", 2, None, 0.6))
    history = History(tmp_path)
    lines = history.refresh()
    assert [line.attempt for line in lines] == [1, 1, 1, 1, 2]
    assert lines[-1].event["sequence"] == 5
    assert history.models["000-0001"].accuracy == 0.6
    assert [str(line) for line in history.unreadable] == [
        "worker 0: line 5 of history.jsonl is skipped: no JSON"
    ]


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda e: e | {"event": "gossip"}, "gossip"),
        (lambda e: e | {"worker": 3}, "3 in the file of worker 0"),
        (lambda e: e | {"entry": e["entry"] | {"accuracy": 1.5}}, "accuracy"),
        (lambda e: e | {"entry": e["entry"] | {"accuracy": "good"}}, "accuracy"),
        (lambda e: e | {"wall": None}, "wall"),
        (lambda e: e | {"wall": float("nan")}, "wall"),
        (lambda e: {k: v for k, v in e.items() if k != "entry"}, "epoch"),
        (lambda e: {"event": "epoch"}, "wall"),
        (lambda e: [e], "table"),
    ],
)
def test_lines_that_say_nonsense_are_skipped_and_reported(
    tmp_path: Path, change: object, why: str
) -> None:
    path = written(tmp_path)
    lines = path.read_text(encoding="utf-8").splitlines()
    lines[3] = json.dumps(change(json.loads(lines[3])))  # type: ignore[operator]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    history = History(tmp_path)
    assert len(history.refresh()) == 4
    (skipped,) = history.unreadable
    assert skipped.line == 4
    assert why in str(skipped)


@pytest.mark.parametrize("spoiled", [b"\xff\xfe\x00\n", b"{}\n", b"\n", b"[" * 100_000 + b"\n"])
def test_bytes_of_anything_are_skipped(tmp_path: Path, spoiled: bytes) -> None:
    path = written(tmp_path)
    whole = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*whole[:2], spoiled, *whole[2:]]))
    history = History(tmp_path)
    assert len(history.refresh()) == 5
    assert [line.line for line in history.unreadable] == [3]


@given(damage=st.lists(st.tuples(st.floats(0, 0.999), st.binary(max_size=4)), max_size=6))
@settings(max_examples=40)
def test_whatever_happens_to_the_file_it_can_be_read(damage: list[tuple[float, bytes]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = write_history(Path(folder), 0, trained(candidate("a"), at=0, accuracies=[0.1, 0.2]))
        data = path.read_bytes()
        for place, other in damage:
            at = int(place * len(data))
            data = data[:at] + other + data[at + len(other) :]
        path.write_bytes(data)
        history = History(Path(folder))
        read = len(history.refresh())
        assert read + len(history.unreadable) == data.count(b"\n")


def test_records_of_a_model_without_its_line_are_unreadable(tmp_path: Path) -> None:
    path = written(tmp_path)
    lines = path.read_text(encoding="utf-8").splitlines()
    path.write_text("\n".join([lines[0], "{torn", *lines[2:], ""]), encoding="utf-8")
    history = History(tmp_path)
    assert [type(line.entry) for line in history.refresh()] == [Presence]
    assert [line.line for line in history.unreadable] == [2, 3, 4, 5]
    assert "'000-0001' has no candidate before" in str(history.unreadable[1])
    assert history.orphans(0) == {"000-0001"}
    assert not history.orphans(1)
    assert not history.models


def test_an_epoch_may_be_taken_in_while_a_model_is_ranked() -> None:
    model, failed = Model(0, candidate("a")), list[Exception]()
    before, done = sys.getswitchinterval(), threading.Event()

    def rank() -> None:
        try:
            while not done.is_set():
                assert (model.accuracy is None) or model.predicted is not None
        except Exception as error:
            failed.append(error)

    thread = threading.Thread(target=rank)
    sys.setswitchinterval(1e-6)
    try:
        thread.start()
        for number in range(1, 1500):
            model.epochs[number] = Epoch("a", number, None, 0.5, 0.5)
        done.set()
        thread.join()
    finally:
        sys.setswitchinterval(before)
    assert not failed


def test_a_model_belongs_to_the_worker_that_took_it_up(tmp_path: Path) -> None:
    write_history(tmp_path, 0, trained(candidate("a"), at=0, accuracies=[0.1]))
    write_history(tmp_path, 1, [(1, Epoch("a", 2, None, 0.9)), (2, Ended("a", "lost"))])
    history = History(tmp_path)
    history.refresh()
    assert history.models["a"].accuracy == 0.1
    assert history.models["a"].state == "trained"


def test_it_can_be_read_while_it_is_written(tmp_path: Path) -> None:
    folder = tmp_path / "000"
    folder.mkdir()
    writer = Writer(folder, worker=0, attempt=1)
    done = threading.Event()
    writer.write(candidate("a"))

    def write() -> None:
        for number in range(1, 101):
            writer.write(Work("a", "train", 1, number, 1, 0.1))
        done.set()

    reader, seen = Reader(folder / "history.jsonl"), list[Line]()
    thread = threading.Thread(target=write)
    thread.start()
    while not done.is_set():
        seen += reader.new_lines()
    thread.join()
    seen += reader.new_lines()
    assert [line.entry.first for line in seen if isinstance(line.entry, Work)] == [*range(1, 101)]
    assert not reader.unreadable
