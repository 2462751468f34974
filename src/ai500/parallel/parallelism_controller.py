"""Parallelism Controller: Eq. 5 in its three uses, and the job → node mapping (V3 §3.3).

Eq. 5, `Sys_scale = M × P_degree`, extended by k members per accelerator [D11] to
`M = k × Sys_scale / P_degree`, and by waves where the machine holds fewer members at once [D13].
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ai500.core.errors import ConfigError
from ai500.records import MemberMapping, Node, NodeSlots


@dataclass(frozen=True, slots=True)
class Degrees:
    """M, P_degree and Sys_scale that satisfy Eq. 5, with k members per accelerator."""

    ensemble_size: int
    parallel_degree: int
    system_scale: int
    members_per_accelerator: int

    @property
    def at_once(self) -> int:
        """Number of members that train at the same time."""
        return self.members_per_accelerator * self.system_scale // self.parallel_degree

    @property
    def waves(self) -> int:
        """Number of rounds in which the machine trains all members [D13]."""
        return -(-self.ensemble_size // self.at_once)


def solve(
    *,
    ensemble_size: int | None,
    parallel_degree: int | None,
    system_scale: int,
    accelerators_per_node: int,
    least_ensemble_size: int,
    members_per_accelerator: int = 1,
) -> Degrees:
    """Check Eq. 5, or derive M from P, P from M, or both from the machine."""
    k = members_per_accelerator
    degree = parallel_degree
    if degree is None and ensemble_size is None:
        degree = min(accelerators_per_node, system_scale)
    fitting = [
        d
        for d in divisors(system_scale)
        if accelerators_per_node % d == 0 or d % accelerators_per_node == 0
    ]
    if degree is None and ensemble_size is not None:
        degree = _degree_from_size(ensemble_size, total=k * system_scale, k=k, fitting=fitting)
    assert degree is not None
    _check_degree(
        degree,
        system_scale=system_scale,
        accelerators_per_node=accelerators_per_node,
        fitting=fitting,
    )
    filling = k * system_scale // degree
    if ensemble_size is None:
        ensemble_size = max(filling, least_ensemble_size)
    elif ensemble_size < filling:
        _refuse_idle_accelerators(ensemble_size, degree=degree, system_scale=system_scale, k=k)
    return Degrees(ensemble_size, degree, system_scale, k)


def _degree_from_size(ensemble_size: int, *, total: int, k: int, fitting: list[int]) -> int:
    """Derive P = k × Sys_scale / M; more members than fit at once run in waves with P = 1."""
    sizes = {total // degree: degree for degree in fitting}
    if ensemble_size > total:
        return 1
    if ensemble_size not in sizes:
        raise ConfigError(
            f"ensemble.size = {ensemble_size} does not divide the {_accelerators(total, k)} "
            "(V3 Eq. 5: Sys_scale = M × P_degree).",
            key="ensemble.size",
            value=ensemble_size,
            remedy=f"Set ensemble.size to {_choices(sorted(sizes))} or more than {total}, or "
            "change [system].",
        )
    return sizes[ensemble_size]


def _check_degree(
    degree: int, *, system_scale: int, accelerators_per_node: int, fitting: list[int]
) -> None:
    if degree > system_scale:
        raise ConfigError(
            f"parallel.degree = {degree} needs {degree} accelerators for one member; the system "
            f"has {system_scale} (V3 Eq. 5: Sys_scale = M × P_degree). No ensemble.size would "
            "work.",
            key="parallel.degree",
            value=degree,
            remedy=f"Set parallel.degree to {_choices(fitting)}, or change [system].",
        )
    if degree not in fitting:
        raise ConfigError(
            f"parallel.degree = {degree} does not fit {system_scale} accelerators, "
            f"{accelerators_per_node} a node: some would stay idle, or a member would straddle "
            "nodes it does not fill (V3 Eq. 5: Sys_scale = M × P_degree).",
            key="parallel.degree",
            value=degree,
            remedy=f"Set parallel.degree to {_choices(fitting)}, or change [system].",
        )


def _refuse_idle_accelerators(
    ensemble_size: int, *, degree: int, system_scale: int, k: int
) -> None:
    needed = -(-ensemble_size * degree // k)
    sharing = f", {k} members on each" if k > 1 else ""
    raise ConfigError(
        f"ensemble.size = {ensemble_size} with degree = {degree} needs {needed} accelerators"
        f"{sharing}; the system has {system_scale} (V3 Eq. 5: Sys_scale = M × P_degree).",
        key="ensemble.size",
        value=ensemble_size,
        remedy=f"Set ensemble.size = {k * system_scale // degree} or more, or system.scale = "
        f"{needed} to use a part of the system.",
    )


def map_members(degrees: Degrees, nodes: Sequence[Node]) -> tuple[MemberMapping, ...]:
    """Map each member to a wave, nodes and consecutive slots; every accelerator gets a member
    before any gets a second one."""
    slots = [(node.name, slot.index) for node in nodes for slot in node.slots]
    slots = slots[: degrees.system_scale]
    groups = degrees.system_scale // degrees.parallel_degree
    mapping = []
    for member in range(degrees.ensemble_size):
        wave, position = divmod(member, degrees.at_once)
        first = (position % groups) * degrees.parallel_degree
        member_slots = slots[first : first + degrees.parallel_degree]
        names = dict.fromkeys(name for name, _ in member_slots)
        shares = tuple(
            NodeSlots(name, tuple(index for owner, index in member_slots if owner == name))
            for name in names
        )
        mapping.append(MemberMapping(member=member, wave=wave, shares=shares))
    return tuple(mapping)


def members_by_node(mapping: Iterable[MemberMapping]) -> dict[str, list[int]]:
    """Return the members of each node."""
    members: dict[str, list[int]] = {}
    for mapped in mapping:
        for share in mapped.shares:
            members.setdefault(share.node, []).append(mapped.member)
    return members


def divisors(number: int) -> list[int]:
    """Return all divisors in ascending order."""
    small = [d for d in range(1, int(number**0.5) + 1) if number % d == 0]
    return sorted({*small, *(number // d for d in small)})


def _choices(numbers: list[int]) -> str:
    if len(numbers) == 1:
        return str(numbers[0])
    return ", ".join(map(str, numbers[:-1])) + f" or {numbers[-1]}"


def _accelerators(total: int, k: int) -> str:
    if k == 1:
        return f"{total} accelerators of the system"
    return f"{total} places of the system ({total // k} accelerators × {k} members each)"
