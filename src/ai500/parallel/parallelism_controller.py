"""Parallelism Controller: Eq. 5 in its three uses, and the job → node mapping (V3 §3.3).

Eq. 5, `Sys_scale = M × P_degree`, extended by k members per accelerator [D11] to
`M = k × Sys_scale / P_degree`, and by waves where the machine holds fewer members at once [D13].
Any M and P_degree that satisfy it can be mapped: a member may straddle nodes [D17].
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
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
    fitting = divisors(system_scale)
    if degree is None and ensemble_size is not None:
        degree = _degree_from_size(ensemble_size, total=k * system_scale, k=k, fitting=fitting)
    assert degree is not None
    _check_degree(degree, system_scale=system_scale, fitting=fitting)
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


def _check_degree(degree: int, *, system_scale: int, fitting: list[int]) -> None:
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
            f"parallel.degree = {degree} does not divide the {system_scale} accelerators of the "
            "system: some would stay idle (V3 Eq. 5: Sys_scale = M × P_degree).",
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
    """Map each member to a wave, nodes and slots; every accelerator gets a member before any gets
    a second one."""
    places = _places(degrees, nodes)
    mapping = []
    for member in range(degrees.ensemble_size):
        wave, position = divmod(member, degrees.at_once)
        shares = places[position % len(places)]
        mapping.append(MemberMapping(member=member, wave=wave, shares=shares))
    return tuple(mapping)


def _places(degrees: Degrees, nodes: Sequence[Node]) -> list[tuple[NodeSlots, ...]]:
    """Divide the system into places of P_degree slots, on whole nodes as far as possible [D17]."""
    free: dict[str, list[int]] = {}
    left = degrees.system_scale
    for node in nodes:
        if slots := [slot.index for slot in node.slots[:left]]:
            free[node.name] = slots
            left -= len(slots)
    sizes = {name: len(slots) for name, slots in free.items()}
    degree, whole = degrees.parallel_degree, max(sizes.values())
    if set(sizes.values()) == {whole} and 0 in (whole % degree, degree % whole):
        return _places_in_order(degree, free)
    return [_take_place(degree, free, sizes) for _ in range(degrees.system_scale // degree)]


def _places_in_order(degree: int, slots: Mapping[str, list[int]]) -> list[tuple[NodeSlots, ...]]:
    """Divide equal nodes, each of which holds whole members or a whole part of one.

    In a time that is linear in the slots: a machine has thousands of nodes.
    """
    each = min(degree, len(next(iter(slots.values()))))
    shares = [
        NodeSlots(name, tuple(indices[first : first + each]))
        for name, indices in slots.items()
        for first in range(0, len(indices), each)
    ]
    nodes = degree // each
    return [tuple(shares[first : first + nodes]) for first in range(0, len(shares), nodes)]


def _take_place(
    degree: int, free: dict[str, list[int]], sizes: Mapping[str, int]
) -> tuple[NodeSlots, ...]:
    """Take slots for one member: whole nodes, then a node that holds the rest, then parts."""
    whole = max(sizes.values())
    untouched = [name for name, slots in free.items() if len(slots) == sizes[name]]
    full = [name for name in untouched if sizes[name] == whole][: degree // whole]
    taken = dict.fromkeys(full, whole)
    rest = degree - whole * len(full)
    free_counts = {name: len(slots) for name, slots in free.items() if slots and name not in taken}
    holding = [name for name, count in free_counts.items() if count >= rest]
    in_use = [name for name in holding if name not in untouched]
    if rest and holding:  # in a node that is in use already, so that others stay whole
        taken[min(in_use, key=free_counts.__getitem__) if in_use else holding[0]] = rest
    elif rest:
        for name in sorted(free_counts, key=free_counts.__getitem__, reverse=True):
            if part := min(free_counts[name], degree - sum(taken.values())):
                taken[name] = part
    return tuple(
        NodeSlots(name, tuple(slots.pop(0) for _ in range(taken[name])))
        for name, slots in free.items()
        if name in taken
    )


def straddling_slots(mapping: Iterable[MemberMapping]) -> int | None:
    """Return P_degree if a member fills its nodes unequally [D17]; None: none does."""
    shapes = {tuple(len(share.slots) for share in mapped.shares) for mapped in mapping}
    shape = next(iter(shapes))
    return None if len(shapes) == len(set(shape)) == 1 else sum(shape)


def members_by_node(mapping: Iterable[MemberMapping]) -> dict[str, list[int]]:
    """Return the members of each node."""
    members: dict[str, list[int]] = {}
    for mapped in mapping:
        for share in mapped.shares:
            members.setdefault(share.node, []).append(mapped.member)
    return members


def share_nodes(mapping: Iterable[MemberMapping]) -> bool:
    """Return True if members that train at the same time share a node."""
    used: set[tuple[int, str]] = set()
    for mapped in mapping:
        places = {(mapped.wave, share.node) for share in mapped.shares}
        if used & places:
            return True
        used |= places
    return False


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
