"""The members of a gang by node: written at its submission, read by the agent of each node.

A text file: offsets of the nodes' lines, `OFFSET_DIGITS` digits each, then one line of JSON for
each node of the allocation. An agent reads its own line, however many nodes there are.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ai500.core import schema, sealed_json
from ai500.core.atomic import write_text
from ai500.core.errors import RunFolderError
from ai500.jobs.schedulers import JobSpec

OFFSET_DIGITS = 12


@dataclass(frozen=True, slots=True)
class GangPart:
    """The part of a member, or of members that share a process, on one node of a gang."""

    member: int
    attempt: int
    """Number of this start; each requeue of the gang adds one."""
    wave: int
    slots: tuple[int, ...]
    """Positions among the slots that the gang has on this node, from 0."""
    index: int = 0
    """Position of this node among the member's, from 0."""
    count: int = 1
    """Nodes of the member."""
    head: int = 0
    """Position of the member's first node in the allocation."""
    ranks: str = ""
    """Ranks on each node of a member that straddles nodes, `4,2`; empty: equally many."""


@dataclass(frozen=True, slots=True)
class NodeParts:
    """Everything that a gang runs on one node."""

    parts: tuple[GangPart, ...]


def nodes_of(jobs: Sequence[JobSpec]) -> dict[str, int]:
    """Map the planned nodes of these members to positions in the gang's allocation."""
    names = dict.fromkeys(share.node for job in jobs for share in job.shares)
    return {name: number for number, name in enumerate(names)}


def parts_by_node(jobs: Sequence[JobSpec], *, waves: Sequence[int]) -> list[NodeParts]:
    """Divide the jobs, of these waves, among the nodes of the allocation."""
    nodes = nodes_of(jobs)
    used: list[set[int]] = [set() for _ in nodes]
    for job in jobs:
        for share in job.shares:
            used[nodes[share.node]].update(share.slots)
    positions = [{slot: place for place, slot in enumerate(sorted(slots))} for slots in used]
    parts: list[list[GangPart]] = [[] for _ in nodes]
    for job, wave in zip(jobs, waves, strict=True):
        ranks = [len(share.slots) for share in job.shares]
        for index, share in enumerate(job.shares):
            node = nodes[share.node]
            part = GangPart(
                member=job.member,
                attempt=job.attempt,
                wave=wave,
                slots=tuple(positions[node][slot] for slot in share.slots),
                index=index,
                count=len(job.shares),
                head=nodes[job.shares[0].node],
                ranks=",".join(map(str, ranks)) if len(set(ranks)) > 1 else "",
            )
            parts[node].append(part)
    return [NodeParts(tuple(sorted(p, key=lambda part: (part.wave, part.member)))) for p in parts]


def write_gang(path: Path, nodes: Sequence[NodeParts]) -> None:
    """Write the parts of all nodes."""
    lines = [json.dumps(sealed_json.seal(schema.encode(node))) + "\n" for node in nodes]
    offset, offsets = OFFSET_DIGITS * len(nodes) + 1, []
    for line in lines:
        offsets.append(f"{offset:0{OFFSET_DIGITS}d}")
        offset += len(line)
    write_text(path, "".join([*offsets, "\n", *lines]))


def read_node(path: Path, node: int) -> NodeParts:
    """Read the parts of one node."""
    try:
        with path.open(encoding="ascii") as file:
            file.seek(OFFSET_DIGITS * node)
            file.seek(int(file.read(OFFSET_DIGITS)))
            body, intact = sealed_json.unseal(json.loads(file.readline()))
        parts = schema.decode(NodeParts, body) if intact else None
    except (OSError, ValueError, schema.SchemaError) as error:
        raise _unreadable(path, node, str(error)) from error
    if parts is None:
        raise _unreadable(path, node, "its SHA-256 is another")
    return parts


def members_of(path: Path) -> list[int]:
    """List the gang's members, one of each process."""
    with path.open(encoding="ascii") as file:
        nodes = len(file.readline()) // OFFSET_DIGITS
    parts = [part for node in range(nodes) for part in read_node(path, node).parts]
    return sorted(part.member for part in parts if part.index == 0)


def _unreadable(path: Path, node: int, problem: str) -> RunFolderError:
    return RunFolderError(
        f"{path}: the members of node {node} can't be read: {problem}.",
        path=path,
        value=node,
        remedy="Submit the gang again: `ai500 resume RUN`.",
    )
