"""Recovery of members' event logs that were lost or cut, before a trial is resumed.

A score follows from the events alone, so a member without its events would train to its end and
then could not be scored. Each event is in two files: the member's log, and the run's log, to which
the Job Controller copied it. What one of them lacks is taken from the other. A finished member
whose events are in neither is trained again.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence

from ai500.core import atomic, events
from ai500.core.events import Event
from ai500.records import Plan, checkpoint_file
from ai500.records.run_folder import MemberFolder, RunFolder


def recover_logs(run: RunFolder, plan: Plan, *, trial: int, log: events.EventLog) -> None:
    """Complete the members' logs of a trial; a member that lost its own is trained again."""
    copies: dict[int, list[Event]] = {}
    for event in events.read_checked(run.events):
        if event.get("trial") == trial and "member_sequence" in event:
            original = {key: value for key, value in event.items() if key != "member_sequence"}
            copies.setdefault(event["member"], []).append(original)
    for member in range(plan.ensemble_size):
        folder = run.trial(trial).member(member)
        restored = _restore(folder, copies.get(member, []))
        if restored:
            log.emit("member_log_restored", trial=trial, member=member, events=restored)
        missing = _missing_events(folder, plan)
        if folder.record.exists() and missing:
            forget(folder)
            log.emit("member_repeated", trial=trial, member=member, missing=missing)


def _restore(folder: MemberFolder, copies: Sequence[Event]) -> int:
    """Write events that only the run's log has back to the member's; return their number."""
    own = list(events.read_checked(folder.events))
    known = {_identity(event) for event in own}
    lost = [event for event in copies if _identity(event) not in known]
    if not lost:
        return 0
    # A worker that began a new log began to count again: its events follow the lost ones.
    taken = {_identity(event) for event in copies}
    last = max(event["sequence"] for event in copies)
    later = [
        event if _identity(event) in taken or event["sequence"] > last
        else event | {"sequence": last + event["sequence"]}
        for event in own
    ]  # fmt: skip
    merged = sorted([*lost, *later], key=lambda event: int(event["sequence"]))
    folder.path.mkdir(parents=True, exist_ok=True)
    atomic.write_text(folder.events, "".join(json.dumps(event) + "\n" for event in merged))
    return len(lost)


def _identity(event: Event) -> tuple[int, str, float]:
    return event["sequence"], event["event"], event["wall"]


def _missing_events(folder: MemberFolder, plan: Plan) -> list[str]:
    """Return the kinds of events that a score needs and a finished member's log lacks."""
    logged = list(events.read_checked(folder.events))
    kinds = {event["event"] for event in logged}
    needed = ["first_batch", "end"] + ["operations"] * (plan.framework.kind != "script")
    missing = [kind for kind in needed if kind not in kinds]
    epochs = {event["epoch"] for event in logged if event["event"] == "epoch"}
    lost = set(range(1, plan.hyperparameters.epochs + 1)) - epochs
    return missing + [f"epoch {epoch}" for epoch in sorted(lost)]


def forget(folder: MemberFolder) -> None:
    """Delete a member's result and position, so that it is trained again from its start."""
    folder.record.unlink(missing_ok=True)
    for checkpoint in folder.checkpoints:
        checkpoint_file.remove(checkpoint)
    shutil.rmtree(folder.script / "checkpoint", ignore_errors=True)
