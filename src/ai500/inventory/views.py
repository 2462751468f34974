"""One node from the views of the members that trained on it.

A job's step may see only its own accelerators (`--gpus-per-task`), in each numbered from 0.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from ai500.inventory.description import Accelerator, AcceleratorState, NodeDescription, State

Device = str | tuple[int, str]
"""What a device is told by: its UUID, or where there is none its number and name."""


def merged(views: Sequence[NodeDescription]) -> NodeDescription:
    """The whole node; what all see alike is the first one's."""
    devices = {_device(one): one for view in views for one in view.accelerators}
    # Numbered anew only where views number two devices alike.
    apart = len({one.index for one in devices.values()}) == len(devices)
    places = {device: place for place, device in enumerate(sorted(devices, key=str))}
    number = {device: one.index if apart else places[device] for device, one in devices.items()}
    accelerators = [replace(one, index=number[device]) for device, one in devices.items()]
    before = [(view.before, _numbers(view, number)) for view in views]
    after = [(view.after, _numbers(view, number)) for view in views if view.after is not None]
    first = views[0]
    return replace(
        first,
        accelerators=tuple(sorted(accelerators, key=lambda one: one.index)),
        accelerator_links=max((view.accelerator_links for view in views), key=len),
        software=replace(first.software, environment=_environment(views)),
        before=_state(before, shown=min(before, key=_wall)[0]),
        after=_state(after, shown=max(after, key=_wall)[0]) if after else None,
    )


def _device(one: Accelerator) -> Device:
    return one.uuid or (one.index, one.name)


def _numbers(view: NodeDescription, number: Mapping[Device, int]) -> dict[int, int]:
    """A view's number of a device → the node's."""
    return {one.index: number[_device(one)] for one in view.accelerators}


def _wall(told: tuple[State, Mapping[int, int]]) -> float:
    return told[0].wall


def _state(told: Sequence[tuple[State, Mapping[int, int]]], *, shown: State) -> State:
    """One moment's state, with each device as it was seen last and all that ever slowed it."""
    found: dict[int, AcceleratorState] = {}
    for state, numbers in sorted(told, key=_wall):
        for one in state.accelerators:
            index = numbers.get(one.index, one.index)
            earlier = found[index].throttled_by if index in found else ()
            reasons = tuple(dict.fromkeys((*earlier, *one.throttled_by)))
            found[index] = replace(one, index=index, throttled_by=reasons)
    return replace(shown, accelerators=tuple(found[index] for index in sorted(found)))


def _environment(views: Sequence[NodeDescription]) -> dict[str, str]:
    """Values that differ, such as CUDA_VISIBLE_DEVICES, beside each other."""
    found: dict[str, dict[str, None]] = {}
    for view in views:
        for name, value in view.software.environment.items():
            found.setdefault(name, {})[value] = None
    return {
        # Our own variables differ by member and say nothing of the node.
        name: next(iter(values)) if name.startswith("AI500_") else " | ".join(values)
        for name, values in sorted(found.items())
    }
