"""Files of a submission that take as much memory and time as their bytes allow.

Each function returns the files to put over those of a small submission, about `size` bytes in all.
"""

from __future__ import annotations

import json
from collections.abc import Callable

from ai500.submission.untrusted import BYTES_PER_EVENT

Files = dict[str, bytes]
Attack = Callable[[Files, int], Files]
ATTACKS: dict[str, Attack] = {}
EVENTS, MEMBER_EVENTS = "events.jsonl", "trials/01/members/000/events.jsonl"
METERS = "trials/01/meters/n1-000.jsonl"
CLOCKS = {"wall": 1790010004.5, "monotonic": 10004.5, "host": "host", "boot": "b"}


def attack(function: Attack) -> Attack:
    ATTACKS[function.__name__.replace("_", " ")] = function
    return function


def lines(files: Files, name: str, line: bytes, size: int) -> Files:
    """Append a line again and again."""
    return {name: files.get(name, b"") + line * (size // len(line))}


def event(kind: str, **fields: object) -> bytes:
    return json.dumps({"event": kind, **CLOCKS, "sequence": 9, **fields}).encode() + b"\n"


def padded(kind: str, **fields: object) -> bytes:
    """Write an event of the least bytes that the budget of a submission allows on average."""
    missing = BYTES_PER_EVENT + 1 - len(event(kind, **fields, note=""))
    return event(kind, **fields, note="x" * max(0, missing))


def document(files: Files, name: str, **changes: object) -> Files:
    return {name: json.dumps(json.loads(files[name]) | changes).encode()}


@attack
def dotted_keys(files: Files, size: int) -> Files:
    """40 KB of `a.a.a = 1` took 1.6 GB."""
    return {"config.toml": b"a" + b".a" * min(20_000, size // 2) + b" = 1\n"}


@attack
def many_dotted_keys(files: Files, size: int) -> Files:
    line = b"{}" + b".a" * 250 + b" = 1\n"
    count = min(size, 200_000) // len(line)
    return {"config.toml": b"".join(b"a%d" % n + line[2:] for n in range(count))}


@attack
def keys_under_a_dotted_header(files: Files, size: int) -> Files:
    head = b"[a" + b".a" * 250 + b"]\n"
    keys = b"".join(b"a%d=1\n" % number for number in range(min(size, 200_000) // 9))
    return {"config.toml": head + keys}


@attack
def nested_inline_tables(files: Files, size: int) -> Files:
    """200 KB of them took 12 GB, and ended in a traceback."""
    count = min(size, 200_000) // 4
    return {"config.toml": b"x = " + b"{a=" * count + b"1" + b"}" * count + b"\n"}


@attack
def toml_of_empty_tables(files: Files, size: int) -> Files:
    return {"config.toml": b"x = [" + b"{}," * (min(size, 250_000) // 3) + b"]\n"}


@attack
def empty_lines_in_the_events(files: Files, size: int) -> Files:
    return lines(files, EVENTS, b"\n", size)


@attack
def empty_lines_in_a_history(files: Files, size: int) -> Files:
    return lines(files, "trials/01/members/000/history.jsonl", b"\n", size)


@attack
def empty_lines_in_the_meters(files: Files, size: int) -> Files:
    return lines(files, METERS, b"\n", size)


@attack
def tiny_events(files: Files, size: int) -> Files:
    return lines(files, MEMBER_EVENTS, b'{"event":""}\n', size)


@attack
def events_of_nobody(files: Files, size: int) -> Files:
    """Complete events, in the run's log alone."""
    return lines(files, EVENTS, event("note", trial=1, member=0, attempt=1), size)


@attack
def the_same_epoch(files: Files, size: int) -> Files:
    """Events of a member, in both logs."""
    fields = {"trial": 1, "member": 0, "attempt": 1, "epoch": 1, "samples": 4032, "steps": 126,
              "loss": 1.8912418010642311, "learning_rate": 0.1}  # fmt: skip
    half = size // 2
    own, copied = padded("epoch", **fields), padded("epoch", **fields, member_sequence=9)
    return lines(files, MEMBER_EVENTS, own, half) | lines(files, EVENTS, copied, half)


@attack
def attempts(files: Files, size: int) -> Files:
    made = []
    for number in range(size // 2 // (BYTES_PER_EVENT + 1)):
        fields = {"trial": 1, "member": 0, "attempt": number, "epoch": 1, "samples": 1, "steps": 1}
        made.append((padded("epoch", **fields), padded("epoch", **fields, member_sequence=number)))
    return {
        MEMBER_EVENTS: files[MEMBER_EVENTS] + b"".join(own for own, _ in made),
        EVENTS: files[EVENTS] + b"".join(copied for _, copied in made),
    }


@attack
def members_of_no_plan(files: Files, size: int) -> Files:
    made = [
        event("epoch", trial=1, member=number, attempt=1, epoch=1, member_sequence=1)
        for number in range(size // 190)
    ]
    return {EVENTS: files[EVENTS] + b"".join(made)}


@attack
def clock_measurements(files: Files, size: int) -> Files:
    """Quadratic once: every event looked at every measurement."""
    fields = {"offset_seconds": 0.5, "uncertainty_seconds": 1e-4, "reference": "r", "trial": 1,
              "member": 0, "attempt": 1}  # fmt: skip
    half = size // 2
    own, copied = padded("clock", **fields), padded("clock", **fields, member_sequence=9)
    return lines(files, MEMBER_EVENTS, own, half) | lines(files, EVENTS, copied, half)


@attack
def lists_of_numbers_in_events(files: Files, size: int) -> Files:
    wide = event("note", trial=1, values=[0.5] * 500_000)
    return lines(files, EVENTS, wide.replace(b" ", b""), size)


@attack
def lists_of_tables_in_events(files: Files, size: int) -> Files:
    wide = event("note", trial=1, values=[{}] * 500_000)
    return lines(files, EVENTS, wide.replace(b" ", b""), size)


@attack
def aggregates(files: Files, size: int) -> Files:
    result = {"members": list(range(500)), "member_qualities": [0.5] * 500}
    return lines(files, EVENTS, event("aggregate", trial=1, result=result), size)


def _meter_head(host: str = "n1") -> bytes:
    return event("meters", host=host, member=0, trial=1, period_seconds=1.0,
                 covers={}, absent={})  # fmt: skip


@attack
def columns_of_meters(files: Files, size: int) -> Files:
    row = json.dumps(["m", "d", "watts", None], separators=(",", ":"))
    columns = event("columns", columns=[json.loads(row)] * 1000).replace(b" ", b"")
    sample = event("sample", values=[1] * 1000).replace(b" ", b"")
    both = columns + sample
    return {METERS: _meter_head() + both * (size // len(both))}


@attack
def columns_of_a_long_host(files: Files, size: int) -> Files:
    """Each column joined host and boot again."""
    rows = [["m", str(number), "network_bytes", None] for number in range(20_000)]
    columns = event("columns", columns=rows)
    return {METERS: _meter_head("h" * 30_000) + columns * (size // len(columns))}


@attack
def samples_of_meters(files: Files, size: int) -> Files:
    """Samples as dense as the budget allows, on many nodes, at rising times."""
    made: Files = {}
    names = [["m", str(number), "watts", None] for number in range(200)]
    count = size // 100 // 1700
    for node in range(100):
        body = [_meter_head(f"n{node}").replace(b'"b"', b'"b%d"' % node)]
        body.append(event("columns", columns=names))
        for number in range(count):
            fields = {"wall": 1790010000.0 + number, "monotonic": 10000.0 + number}
            values = [100.25 + number % 7] * 200
            body.append(event("sample", **(CLOCKS | fields), values=values))
        made[f"trials/01/meters/n{node:03d}-000.jsonl"] = b"".join(body)
    return made


@attack
def epochs_as_numbers(files: Files, size: int) -> Files:
    """A plan of as many epochs as events.jsonl has bytes: a set of them was built."""
    plan = json.loads(files["plan.json"])
    plan["hyperparameters"]["epochs"] = size // 2
    padding = lines(files, EVENTS, event("note", text="x" * 30_000), size // 2)
    return padding | {"plan.json": json.dumps(plan).encode()}


@attack
def bootstraps_of_one_member(files: Files, size: int) -> Files:
    """Each was drawn again."""
    record = json.loads(files["trials/01/bootstraps.json"])[0]
    text = json.dumps(record, separators=(",", ":")).encode()
    count = min(size, 60 << 20) // len(text)
    return {"trials/01/bootstraps.json": b"[" + b",".join([text] * count) + b"]"}


@attack
def long_names_of_processors(files: Files, size: int) -> Files:
    """5 MB stood in everybody's page."""
    return document(files, "system.json", cpu="x" * min(size, 900_000))


@attack
def documents_of_lists(files: Files, size: int) -> Files:
    names = ("trials/01/jobs.json", "trials/01/placement.json", "findings.json", "plan.json")
    return dict.fromkeys(names, b"[" + b"[]," * (size // 12) + b"[]]")


@attack
def claimed_findings(files: Files, size: int) -> Files:
    """Every value of them is a difference."""
    finding = json.loads(files["findings.json"])[0]
    text = json.dumps(finding, separators=(",", ":")).encode()
    return {"findings.json": b"[" + b",".join([text] * (min(size, 60 << 20) // len(text))) + b"]"}


@attack
def manifest_of_missing_files(files: Files, size: int) -> Files:
    digest = {"bytes": 1, "sha256": "0" * 64}
    names = {f"missing/{number:07d}": digest for number in range(min(size, 60 << 20) // 150)}
    return {"manifest.json": json.dumps({"format": 1, "files": names}, indent=2).encode() + b"\n"}


@attack
def many_small_files(files: Files, size: int) -> Files:
    names = (f"trials/01/members/{number:06d}/log.txt" for number in range(size // 1100))
    return dict.fromkeys(names, b"x")


@attack
def many_bad_small_files(files: Files, size: int) -> Files:
    names = (f"trials/01/members/{number:06d}/record.json" for number in range(size // 1100))
    return dict.fromkeys(names, b"{}")


@attack
def many_members(files: Files, size: int) -> Files:
    """The largest number of members that fits, each with its files."""
    own = {
        name.removeprefix("trials/01/members/000/"): content
        for name, content in files.items()
        if name.startswith("trials/01/members/000/")
    }
    each = sum(len(content) + 1024 for content in own.values())
    return {
        f"trials/01/members/{member:03d}/{name}": content
        for member in range(2, size // each)
        for name, content in own.items()
    }


@attack
def counted_graphs(files: Files, size: int) -> Files:
    """A graph of each member, all different."""
    made = {}
    for member in range(size // 900_000):
        row = ["conv", [[8, 64, 7, 7], [64, 64, 3, 3]], [[8, 64, 7, 7]], {}, f"m{member}"]
        text = json.dumps(row, separators=(",", ":"))
        ops = ",".join([text] * (880_000 // len(text)))
        graph = f'{{"parameters":1,"batch":1,"ops":[{ops}]}}'
        made[f"trials/01/members/{member:03d}/graph.json"] = graph.encode()
    return made


@attack
def long_logs(files: Files, size: int) -> Files:
    log = ("ä x\n" * 200_000).encode()[: 1 << 20].decode(errors="ignore").encode()
    return {f"trials/01/members/{number:03d}/log.txt": log for number in range(size // len(log))}


@attack
def deep_documents(files: Files, size: int) -> Files:
    return {"plan.json": b"[" * (min(size, 60 << 20) // 2)}


@attack
def strings_of_escapes(files: Files, size: int) -> Files:
    line = event("note", text="\n" * 10_000)
    return lines(files, EVENTS, line, size)
