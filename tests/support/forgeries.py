"""Forgeries of a submission: a forger changes the run's records, packs and signs everything again.

Every digest, score and finding is computed from the forged records, so that only what they say can
reveal the forgery. docs/verification.md has a table of them; a test holds the two together.
"""

from __future__ import annotations

import json
import math
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from ai500.core import events, schema
from ai500.core.events import Event
from ai500.core.randomness import Stream, derive
from ai500.parallel.parallelism_controller import Degrees, map_members
from ai500.records import Plan, run_folder
from ai500.records.run_folder import RunFolder
from ai500.submission.verify import MEMBER_EVENTS
from tests.support import changed_records
from tests.support.synthetic_run import BOOT, _bootstrap

Forgery = Callable[[RunFolder], None]
CLOCKS = ("wall", "monotonic")
OTHER_BOOT = "11111111-1111-1111-1111-111111111111"


def in_files(run: RunFolder, pattern: str, change: Callable[[Any], Any]) -> None:
    """Change the content of JSON files; `change` returns the new one, or changes it in place."""
    for path in sorted(run.path.glob(pattern)):
        value = changed_records.load(path)
        changed = change(value)
        changed_records.save(path, value if changed is None else changed)


def in_logs(
    run: RunFolder, change: Callable[[Event], Event], *, patterns: Iterable[str] = ("", "trials/*/")
) -> None:
    """Change the events of the run's log, and of the members' own logs."""
    for path in [
        *([run.events] if "" in patterns else []),
        *(run.path.glob("trials/*/members/*/events.jsonl") if "trials/*/" in patterns else []),
    ]:
        changed = [change(event) for event in events.read(path)]
        path.write_text("".join(json.dumps(event) + "\n" for event in changed))


def log_again(run: RunFolder, change: Callable[[list[Event]], Iterable[Event]]) -> None:
    """Write the run's log again, and the members' own logs from its events."""
    log, numbers = list(change(list(events.read(run.events)))), Counter[tuple[int, int]]()
    own: dict[Path, list[Event]] = {}
    for event in log:
        if event["event"] in MEMBER_EVENTS:
            member = (event["trial"], event["member"])
            numbers[member] += 1
            event |= {"sequence": numbers[member], "member_sequence": numbers[member]}
            path = run.trial(event["trial"]).member(event["member"]).events
            kept = {key: value for key, value in event.items() if key != "member_sequence"}
            own.setdefault(path, []).append(kept)
    for path, lines in [(run.events, log), *own.items()]:
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))


def of_members(change: Callable[[Event], Event]) -> Callable[[Event], Event]:
    """Apply a change to the events of members alone."""
    return lambda event: change(event) if event["event"] in MEMBER_EVENTS else event


def starts(run: RunFolder) -> dict[int, Event]:
    """Return the first `first_batch` event of each trial."""
    first: dict[int, Event] = {}
    for event in events.read(run.events):
        if event["event"] == "first_batch":
            first.setdefault(event["trial"], event)
    return first


def scaled(factor: float, *, start: Event, event: Event) -> Event:
    moved = {clock: start[clock] + factor * (event[clock] - start[clock]) for clock in CLOCKS}
    return event | moved


def faster(factor: float) -> Forgery:
    """Shorten every time of a trial from its first batch on: of members, controller and node."""

    def forge(run: RunFolder) -> None:
        first = starts(run)

        def change(event: Event) -> Event:
            start = first.get(event.get("trial", 0))
            if start is None or event["monotonic"] < start["monotonic"]:
                return event
            return scaled(factor, start=start, event=event)

        def description(node: Any) -> None:
            start = min(first.values(), key=lambda e: abs(e["wall"] - node["before"]["wall"]))
            node["after"]["wall"] = start["wall"] + factor * (node["after"]["wall"] - start["wall"])

        in_logs(run, change)
        in_files(run, "trials/*/systems/*.json", description)

    return forge


def faster_members(factor: float, *, patterns: Iterable[str] = ("", "trials/*/")) -> Forgery:
    """Shorten the times of members alone; the controller's and the node's are untouched."""

    def forge(run: RunFolder) -> None:
        first = starts(run)
        in_logs(
            run,
            of_members(lambda event: scaled(factor, start=first[event["trial"]], event=event)),
            patterns=patterns,
        )

    return forge


def first_batch_in_the_last_millisecond(run: RunFolder) -> None:
    ends = {(e["trial"], e["member"]): e for e in events.read(run.events) if e["event"] == "end"}

    def change(event: Event) -> Event:
        if event["event"] != "first_batch":
            return event
        end = ends[event["trial"], event["member"]]
        return event | {clock: end[clock] - 1e-3 for clock in CLOCKS}

    in_logs(run, change)


def all_in_the_last_millisecond(run: RunFolder) -> None:
    """Move the first batch, and all epochs with it."""
    log = list(events.read(run.events))
    ends = {(e["trial"], e["member"]): e for e in log if e["event"] == "end"}
    first = {(e["trial"], e["member"]): e for e in log if e["event"] == "first_batch"}

    def change(event: Event) -> Event:
        member = (event["trial"], event["member"])
        end, length = ends[member], ends[member]["wall"] - first[member]["wall"]
        if event["event"] == "operations":
            return event
        share = (event["wall"] - first[member]["wall"]) / length
        return event | {clock: end[clock] - 1e-3 * (1 - share) for clock in CLOCKS}

    in_logs(run, of_members(change))


def invented_offset(run: RunFolder) -> None:
    """End each member in another boot, whose clock is said to be 100 seconds ahead."""

    def change(event: Event) -> Event:
        if event["event"] in ("end", "operations"):
            return event | {"boot": OTHER_BOOT}
        return event

    in_logs(run, change)
    log = []
    for event in events.read(run.events):
        log.append(event)
        if event["event"] in ("first_batch", "end"):
            offset = 100.0 if event["event"] == "end" else 0.0
            keep = {"wall", "monotonic", "host", "boot", "sequence", "trial", "member"}
            measured = {"offset_seconds": offset, "uncertainty_seconds": 1e-4, "reference": "head"}
            base = {key: event[key] for key in keep}
            log.append(base | {"event": "clock"} | measured)
    run.events.write_text("".join(json.dumps(event) + "\n" for event in log))


def moved_to_another_host(seconds: float, *, uncertainty: float) -> Forgery:
    """Go on after the first epoch on another host, whose clock is said to be ahead."""
    other = {"host": "host2", "boot": OTHER_BOOT}

    def moved(log: list[Event]) -> Iterator[Event]:
        for event in log:
            later = event["event"] in ("end", "operations") or event.get("epoch", 0) > 1
            if event["event"] in MEMBER_EVENTS and later:
                event |= other | {"attempt": 2}
            yield event
            if event["event"] == "quality" and event["epoch"] == 1:
                yield event | other | {"event": "resumed", "attempt": 2, "step": 0}
            if event["event"] in ("first_batch", "end"):
                for host, offset in ((other, seconds), ({"host": "host", "boot": BOOT}, 0.0)):
                    measured = {"offset_seconds": offset, "uncertainty_seconds": uncertainty}
                    base = {key: event[key] for key in (*CLOCKS, "sequence", "trial", "member")}
                    yield base | host | measured | {"event": "clock", "reference": "host"}

    def forge(run: RunFolder) -> None:
        log_again(run, moved)
        for path in sorted(run.path.glob("trials/*/systems/host-*.json")):
            node = changed_records.load(path)
            before = node["before"] | {"wall": node["before"]["wall"] + 3}
            there = node | {"hostname": "host2", "before": before}
            changed_records.save(path.with_name(path.name.replace("host", "host2")), there)
            changed_records.save(path, node | {"after": None})

    return forge


def jobs_after_training(run: RunFolder) -> None:
    """Submit the jobs after the members had trained, by the controller's events."""

    def change(event: Event) -> Event:
        late = event["event"].startswith("job_")
        return event | {clock: event[clock] + 5000 * late for clock in CLOCKS}

    in_logs(run, change, patterns=("",))


def job_ended_early(run: RunFolder) -> None:
    """End each member's job right after its start."""

    def change(log: list[Event]) -> Iterator[Event]:
        for event in log:
            yield event
            if event["event"] == "job_started":
                yield event | {"event": "job_ended"}

    log_again(run, change)


def epochs_repeated(run: RunFolder) -> None:
    """Put another time of each epoch before the real one, as after a crash."""

    def change(log: list[Event]) -> Iterator[Event]:
        previous: dict[Any, Event] = {}
        for event in log:
            member = (event.get("trial"), event.get("member"))
            if event["event"] == "epoch":
                yield scaled(0.7, start=previous[member], event=event)
            yield event
            previous[member] = event

    log_again(run, change)


def earlier_first_batch(share: float) -> Forgery:
    """Move each member's first batch into its first epoch, of which this share is left."""

    def forge(run: RunFolder) -> None:
        ends = {
            (e["trial"], e["member"]): e
            for e in events.read(run.events)
            if e["event"] == "epoch" and e["epoch"] == 1
        }

        def change(event: Event) -> Event:
            if event["event"] != "first_batch":
                return event
            return scaled(share, start=ends[event["trial"], event["member"]], event=event)

        in_logs(run, change)

    return forge


def of_epochs(**fields: Any) -> Forgery:
    """Change fields of every `epoch` event."""
    return lambda run: in_logs(
        run, lambda event: event | fields if event["event"] == "epoch" else event
    )


def in_descriptions(**processors: Any) -> Forgery:
    """Change the nodes' descriptions of their CPUs."""
    return lambda run: in_files(
        run, "trials/*/systems/*.json", lambda node: node["processors"].update(processors)
    )


def other_times(run: RunFolder) -> None:
    """Change the time of every event of members by up to a second, and their predictions."""
    moved: dict[tuple[int, int, int], float] = {}

    def change(event: Event) -> Event:
        place = (event["trial"], event["member"], event["sequence"])
        seconds = moved.setdefault(place, 0.5 * (1 + math.sin(1e4 * sum(place) * place[0])))
        late = event["event"] in ("quality", "end", "operations")
        later = event["event"] in ("end", "operations")
        return event | {clock: event[clock] + 0.3 * seconds + late + later for clock in CLOCKS}

    def description(node: Any) -> None:
        node["after"]["wall"] += 4

    in_logs(run, of_members(change))
    in_files(run, "trials/*/systems/*.json", description)


def more_operations(factor: float, *, changed_hash: bool = True) -> Forgery:
    """Multiply the counted operations; change the last digit of the graph's hash."""

    def more(counts: Any) -> None:
        for key in ("forward_per_sample", "backward_per_sample", "update_per_step"):
            counts[key] = math.ceil(counts[key] * factor)

    def record(value: Any) -> None:
        more(value["operations"])
        if changed_hash:
            digest = value["effective"]["model"]["graph_sha256"]
            value["effective"]["model"]["graph_sha256"] = other_tail(digest)

    def event(value: Event) -> Event:
        if value["event"] == "operations":
            more(value)
        return value

    def forge(run: RunFolder) -> None:
        in_files(run, "trials/*/members/*/record.json", record)
        in_logs(run, event)

    return forge


def other_tail(digest: str) -> str:
    return digest[:-1] + ("0" if digest[-1] != "0" else "1")


def everywhere(old: str, new: str) -> Forgery:
    """Replace a text in all records of the run."""

    def forge(run: RunFolder) -> None:
        in_files(run, "**/*.json", lambda value: json.loads(json.dumps(value).replace(old, new)))
        in_logs(run, lambda event: json.loads(json.dumps(event).replace(old, new)))

    return forge


def other_data(run: RunFolder) -> None:
    plan = run_folder.read(Plan, run.plan)
    digest = str(plan.definition.store_sha256)
    everywhere(digest, other_tail(digest))(run)


def lower_target(run: RunFolder) -> None:
    target = run_folder.read(Plan, run.plan).definition.target_quality

    def change(value: Any) -> None:
        value["definition"]["target_quality"] = target - 4e-7

    in_files(run, "plan.json", change)
    in_files(run, "trials/*/members/*/task.json", change)


def phantom_members(factor: int, *, own_losses: bool) -> Forgery:
    """Show every member several times, as members that share its slot."""

    def forge(run: RunFolder) -> None:
        plan = run_folder.read(Plan, run.plan)
        size = plan.ensemble_size * factor
        degrees = Degrees(size, plan.parallel_degree, plan.system_scale, factor)
        larger = replace(
            plan, ensemble_size=size, members_per_accelerator=factor,
            mapping=map_members(degrees, plan.nodes),
        )  # fmt: skip
        run_folder.write(run.plan, larger)
        for trial in range(1, plan.trials + 1):
            _add_phantoms(run, plan, larger, trial, factor, own_losses=own_losses)

    return forge


def _add_phantoms(
    run: RunFolder, plan: Plan, larger: Plan, trial: int, factor: int, *, own_losses: bool
) -> None:
    folder, size = run.trial(trial), plan.ensemble_size
    bootstraps = [_bootstrap(larger, m, trial) for m in range(larger.ensemble_size)]
    run_folder.write(folder.bootstraps, bootstraps)
    jobs = changed_records.load(folder.jobs)
    changed_records.save(
        folder.jobs, [jobs[m % size] | {"member": m} for m in range(size * factor)]
    )
    log = list(events.read(run.events))
    added: list[Event] = []
    for member in range(size, size * factor):
        files, original = folder.member(member), folder.member(member % size)
        files.path.mkdir()
        record = changed_records.load(original.record)
        digests = ("weights_sha256", "validation_sha256")
        record |= {"member": member} | {
            name: f"{10**7 * place + 10**6 * trial + member:064x}"
            for place, name in enumerate(digests)
        }
        changed_records.save(files.record, record)
        changes = {"member": member, "bootstrap_sha256": bootstraps[member].sha256}
        changed_records.save(files.task, changed_records.load(original.task) | changes)
        lines = []
        for event in events.read(original.events):
            copy = event | {"member": member}
            if own_losses and copy["event"] == "epoch":
                copy["loss"] += 1e-4 * member
            lines.append(copy)
        files.events.write_text("".join(json.dumps(line) + "\n" for line in lines))
        added += [line | {"member_sequence": line["sequence"]} for line in lines]
        added += [
            event | {"member": member}
            for event in log
            if event.get("trial") == trial
            and event.get("member") == member % size
            and event["event"].startswith("job_")
        ]
    result = next(e for e in log if e["event"] == "aggregate" and e["trial"] == trial)["result"]
    result["members"] = list(range(size * factor))
    result["member_qualities"] = [
        result["member_qualities"][m % size] for m in range(size * factor)
    ]
    changed_records.save(folder.ensemble, result)
    log = [
        event | {"result": result}
        if event["event"] == "aggregate" and event["trial"] == trial
        else event
        for event in log
    ]
    position = next(
        i for i, e in enumerate(log) if e["event"] == "aggregate" and e["trial"] == trial
    )
    log[position:position] = added
    run.events.write_text("".join(json.dumps(event) + "\n" for event in log))


def one_trial_shown_as_three(*, own_losses: bool = False) -> Forgery:
    """Show the best trial three times, with the seeds and bootstraps that the others must have."""

    def forge(run: RunFolder) -> None:
        plan = run_folder.read(Plan, run.plan)
        log = list(events.read(run.events))
        first = {e["trial"]: e for e in log if e["event"] == "trial_start"}
        best = [event for event in log if event.get("trial") == 1]
        copies = list(best)
        for trial in range(2, plan.trials + 1):
            moved = {clock: first[trial][clock] - first[1][clock] for clock in CLOCKS}
            for event in best:
                copy = event | {"trial": trial}
                copy |= {clock: event[clock] + moved[clock] for clock in CLOCKS}
                if event["event"] == "trial_start":
                    copy["seed"] = derive(plan.seed, Stream.TRIAL, trial)
                if own_losses and event["event"] == "epoch":
                    copy["loss"] += 1e-4 * trial
                copies.append(copy)
            folder, original = run.trial(trial), run.trial(1)
            folder.ensemble.write_bytes(original.ensemble.read_bytes())
            for member in range(plan.ensemble_size):
                files, source = folder.member(member), original.member(member)
                quality = changed_records.load(source.record)["quality"]
                record = changed_records.load(files.record) | {"quality": quality}
                changed_records.save(files.record, record)
                lines = [
                    {key: value for key, value in event.items() if key != "member_sequence"}
                    for event in copies
                    if event.get("trial") == trial and event.get("member") == member
                    and "member_sequence" in event
                ]  # fmt: skip
                files.events.write_text("".join(json.dumps(line) + "\n" for line in lines))
        run.events.write_text("".join(json.dumps(event) + "\n" for event in copies))

    return forge


def better_ensemble(change: Callable[[float], float], *, files: bool = True) -> Forgery:
    """Change the ensemble's quality in the events, and in the aggregated result."""

    def forge(run: RunFolder) -> None:
        def event(value: Event) -> Event:
            if value["event"] == "aggregate":
                result = value["result"]
                result["ensemble_quality"] = change(result["ensemble_quality"])
            return value

        def result(value: Any) -> None:
            value["ensemble_quality"] = change(value["ensemble_quality"])

        in_logs(run, event, patterns=("",))
        if files:
            in_files(run, "trials/*/ensemble.json", result)

    return forge


def metered(watts: float, part: str = "node") -> Forgery:
    """Invent meters that read so many watts."""
    return lambda run: _invent_meters(run, watts, part)


def _invent_meters(run: RunFolder, watts: float, part: str) -> None:
    plan = run_folder.read(Plan, run.plan)
    for trial, first in starts(run).items():
        last = max(
            e["monotonic"] for e in events.read(run.events)
            if e["event"] == "end" and e["trial"] == trial
        )  # fmt: skip
        boot = first["wall"] - first["monotonic"]
        for member in range(plan.ensemble_size):
            head = {
                "event": "meters", "wall": first["wall"] - 5, "monotonic": first["monotonic"] - 5,
                "host": first["host"], "boot": BOOT, "trial": trial, "member": member,
                "period_seconds": 1.0, "covers": {"ipmi": [part]}, "absent": {},
            }  # fmt: skip
            columns = {"event": "columns", "columns": [["ipmi", "node", "watts", None]]}
            lines = [head, columns]
            at = first["monotonic"] - 5
            while at < last + 5:
                lines.append(
                    {"event": "sample", "wall": at + boot, "monotonic": at, "values": [watts]}
                )
                at += 1.0
            path = run.trial(trial).meters / f"{first['host']}-{member:03d}.jsonl"
            path.parent.mkdir(exist_ok=True)
            path.write_text("".join(json.dumps(line) + "\n" for line in lines))


def recorded(path: tuple[str, ...], value: Any) -> Forgery:
    """Change a value in every member's record."""

    def change(record: Any) -> None:
        for key in path[:-1]:
            record = record[key]
        record[path[-1]] = value

    return lambda run: in_files(run, "trials/*/members/*/record.json", change)


def other_precision(run: RunFolder) -> None:
    def change(value: Any) -> None:
        value["hyperparameters"]["precision"] = "mixed-bf16"

    in_files(run, "plan.json", change)
    in_files(run, "trials/*/members/*/task.json", change)
    recorded(("effective", "hyperparameters", "precision"), "mixed-bf16")(run)
    recorded(("effective", "numerics"), {"precision": "mixed-bf16"})(run)


def fewer_accelerators(run: RunFolder) -> None:
    """Say that two members shared each slot."""
    plan = run_folder.read(Plan, run.plan)
    slots = len(plan.nodes[0].slots) // 2
    nodes = tuple(replace(node, slots=node.slots[:slots]) for node in plan.nodes)
    degrees = Degrees(plan.ensemble_size, 1, slots * len(nodes), 2)
    fewer = replace(
        plan, nodes=nodes, system_scale=degrees.system_scale, members_per_accelerator=2,
        mapping=map_members(degrees, nodes),
    )  # fmt: skip
    run_folder.write(run.plan, fewer)
    by_index = {slot.index: slot for slot in nodes[0].slots}
    for mapping in fewer.mapping:
        used = [schema.encode(by_index[i]) for share in mapping.shares for i in share.slots]
        in_files(
            run, f"trials/*/members/{mapping.member:03d}/task.json",
            lambda task, used=used: task | {"slots": used},
        )  # fmt: skip


def moved_clock(seconds: float) -> Forgery:
    """Move every wall clock."""

    def description(node: Any) -> None:
        for state in ("before", "after"):
            node[state]["wall"] += seconds

    def forge(run: RunFolder) -> None:
        in_logs(run, lambda event: event | {"wall": event["wall"] + seconds})
        in_files(run, "trials/*/systems/*.json", description)

    return forge


def in_file(name: str, *path: str, value: Any) -> Forgery:
    """Change one value of one file."""

    def change(content: Any) -> None:
        for key in path[:-1]:
            content = content[key]
        content[path[-1]] = value

    return lambda run: in_files(run, name, change)


def both(*forgeries: Forgery) -> Forgery:
    def forge(run: RunFolder) -> None:
        for forgery in forgeries:
            forgery(run)

    return forge


def another_optimizer(run: RunFolder) -> None:
    """Say everywhere that LARS trained, which is a free choice, instead of SGD."""

    def change(value: Any) -> None:
        value["hyperparameters"]["optimizer"] = "lars"

    in_files(run, "plan.json", change)
    in_files(run, "trials/*/members/*/task.json", change)
    recorded(("effective", "hyperparameters", "optimizer"), "lars")(run)
    recorded(("effective", "optimizer_class"), "ai500.train.optimizers.LARS")(run)


OTHER_SOURCE = "d" * 64
FORGERIES: dict[str, Forgery] = {
    "all times × 10⁻³": faster(1e-3),
    "all times × 10⁻¹²": faster(1e-12),
    "all times × 0.1": faster(0.1),
    "members' times × 10⁻³, the controller's untouched": faster_members(1e-3),
    "members' times × 10⁻¹², the controller's untouched": faster_members(1e-12),
    "members' times × 0.1, the controller's untouched": faster_members(0.1),
    "members' times × 0.1 in their own logs only": faster_members(0.1, patterns=("trials/*/",)),
    "members' times × 0.1, on a host without a description": both(
        faster_members(0.1),
        lambda run: in_logs(run, of_members(lambda event: event | {"host": "other"})),
    ),
    "first batch moved by 90 % of the first epoch": earlier_first_batch(0.1),
    "a host whose clock is said to be 100 s ahead": moved_to_another_host(100, uncertainty=1e-3),
    "the same, known to 100 s": moved_to_another_host(100, uncertainty=100),
    "jobs that are submitted after the training": jobs_after_training,
    "jobs that end before the training": job_ended_early,
    "each epoch twice, the first at another time": epochs_repeated,
    "all times × 10⁻³, on a CPU of 10¹⁵ Hz": both(
        faster(1e-3), in_descriptions(highest_hertz=1e15)
    ),
    "first batch in the last millisecond": first_batch_in_the_last_millisecond,
    "whole training in the last millisecond": all_in_the_last_millisecond,
    "invented clock offset with another boot": invented_offset,
    "operations × 10⁹ with a changed hash tail": more_operations(1e9),
    "data hash with a changed tail": other_data,
    "counts + 9·10⁻⁵": more_operations(1 + 9e-5, changed_hash=False),
    "target − 4·10⁻⁷": lower_target,
    "phantom members × 16": phantom_members(16, own_losses=False),
    "phantom members × 2, with losses of their own": phantom_members(2, own_losses=True),
    "phantom members × 16, without losses": both(
        of_epochs(loss=None), phantom_members(16, own_losses=False)
    ),
    "phantom members × 16, with losses of 0": both(
        of_epochs(loss=0.0), phantom_members(16, own_losses=False)
    ),
    "one trial shown as three, with losses and times of their own": both(
        one_trial_shown_as_three(own_losses=True), other_times
    ),
    "one trial shown as three": one_trial_shown_as_three(),
    "all trials equal to the best, with losses of their own": one_trial_shown_as_three(
        own_losses=True
    ),
    "ensemble quality 1.0": better_ensemble(lambda _: 1.0),
    "ensemble quality + 5 %": better_ensemble(lambda quality: 1.05 * quality),
    "ensemble quality in the event only": better_ensemble(lambda _: 1.0, files=False),
    "1 µW": metered(1e-6),
    "2 W": metered(2.0),
    "another CPU in system.json": in_file("system.json", "cpu", value="Slow CPU"),
    "another CPU everywhere": everywhere("Synthetic CPU", "Slow CPU"),
    "another precision in the numerics": recorded(
        ("effective", "numerics", "precision"), "mixed-bf16"
    ),
    "another precision everywhere": other_precision,
    "another optimizer in the records": recorded(
        ("effective", "optimizer_class"), "torch.optim.adamw.AdamW"
    ),
    "another optimizer everywhere": another_optimizer,
    "another source everywhere": both(
        in_file("run.json", "source_sha256", value=OTHER_SOURCE),
        recorded(("versions", "source"), OTHER_SOURCE),
    ),
    "predictions without digests": recorded(("validation_sha256",), None),
    "the same predictions of all members": recorded(("validation_sha256",), "a" * 64),
    "another framework in the plan": both(
        in_file("plan.json", "framework", "kind", value="jax"),
        in_file("trials/*/members/*/task.json", "framework", "kind", value="jax"),
    ),
    "another learning rate in the plan": in_file("plan.json", "learning_rate", value=9.0),
    "another class in config.toml": lambda run: run.config.write_text(
        run.config.read_text().replace("smoke", "full")
    ),
    "a model's name in every event": lambda run: in_logs(
        run, of_members(lambda event: event | {"model": "m"})
    ),
    "another commit everywhere": in_file("run.json", "commit", value="e" * 40),
    "fewer accelerators": fewer_accelerators,
    "year 2099": moved_clock(73 * 365.25 * 86_400),
    "clock moved by 10⁹ s": moved_clock(1e9),
    "clock moved by −10⁹ s": moved_clock(-1e9),
}
"""Forgeries of a run of class smoke, by the names of the table."""


def copied(run: RunFolder, path: Path) -> RunFolder:
    """Copy a run folder, for a forger to change."""
    shutil.copytree(run.path, path)
    return RunFolder(path)
