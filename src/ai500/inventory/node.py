"""Description of one node: recorded by each member before and after training, then merged."""

from __future__ import annotations

import platform
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from ai500.core.errors import AI500Error
from ai500.inventory import host, nvidia
from ai500.inventory import machine as system
from ai500.inventory.description import Accelerator, AcceleratorState, NodeDescription, State
from ai500.inventory.host import number, text
from ai500.inventory.software import software
from ai500.records import run_folder
from ai500.records.run_folder import RunFolder

Device = str | tuple[int, str]
"""Identity of a device: its UUID, or (index, name) without one."""

Observation = tuple[State, Mapping[int, int]]
"""A state in a member's view, and its device indices → the node's."""


def describe(root: Path = Path("/")) -> NodeDescription:
    """Describe this node now."""
    return NodeDescription(
        hostname=platform.node(),
        machine=host.machine(root),
        virtual=host.hypervisor(root),
        processors=host.processors(root),
        memory_bytes=host.memory_bytes(root),
        accelerators=_accelerators(),
        accelerator_links=nvidia.link_matrix(),
        disks=host.disks(root),
        interfaces=host.interfaces(root),
        software=software(root),
        before=observe(root),
    )


def _accelerators() -> tuple[Accelerator, ...]:
    """Describe accelerators by the driver's library, else by torch's names."""
    accelerators = nvidia.accelerators()
    if accelerators:
        return accelerators
    _, names = system.accelerators()
    return tuple(Accelerator(index=index, name=name) for index, name in enumerate(names))


def observe(root: Path = Path("/")) -> State:
    """Read clocks and throttling of this node now; cheap enough before and after every trial."""
    folders = sorted(root.glob("sys/devices/system/cpu/cpu[0-9]*"))
    kilohertz = [number(folder / "cpufreq/scaling_cur_freq") for folder in folders]
    hertz = [value * 1e3 for value in kilohertz if value is not None]
    # Where the kernel does not control the frequency (a virtual machine), cpuinfo may state it.
    cpuinfo = text(root / "proc/cpuinfo") or ""
    megahertz = re.findall(r"^cpu MHz\s*: ([\d.]+)$", cpuinfo, re.MULTILINE)
    hertz = hertz or [float(value) * 1e6 for value in megahertz]
    counts = [number(folder / "thermal_throttle/core_throttle_count") for folder in folders]
    throttled = [count for count in counts if count is not None]
    governors = {text(folder / "cpufreq/scaling_governor") for folder in folders} - {None}
    load = (text(root / "proc/loadavg") or "").split()
    return State(
        wall=time.time(),
        load=float(load[0]) if load else None,
        governors=tuple(sorted(governor for governor in governors if governor)),
        processor_hertz=(min(hertz), max(hertz)) if hertz else None,
        processor_throttled=sum(throttled) if throttled else None,
        accelerators=nvidia.states(),
    )


def record_before(*paths: Path) -> None:
    """Write each member's view of this node, unless an earlier attempt of the member wrote it."""
    missing = [path for path in paths if not path.exists()]
    description = describe() if missing else None
    for path in missing:
        run_folder.write(path, description)


def record_after(*paths: Path) -> None:
    """Add the state after training to each member's view of this node."""
    state = observe()
    for path in paths:
        try:
            before = run_folder.read(NodeDescription, path)
        except AI500Error:
            continue  # `record_before` failed
        run_folder.write(path, replace(before, after=state))


def recorded_nodes(run: RunFolder) -> list[NodeDescription]:
    """Read the nodes that trained, each as the last trial on it recorded it."""
    return merged_nodes(
        [run_folder.read(NodeDescription, path) for path in sorted(trial.glob("systems/*.json"))]
        for trial in sorted(run.path.glob("trials/*"))
    )


def merged_nodes(trials: Iterable[Iterable[NodeDescription]]) -> list[NodeDescription]:
    """Merge the descriptions by several members, each node as the last trial recorded it."""
    latest: dict[str, NodeDescription] = {}
    for descriptions in trials:
        views: dict[str, list[NodeDescription]] = {}
        for view in descriptions:
            views.setdefault(view.hostname, []).append(view)
        latest |= {hostname: _merged(node_views) for hostname, node_views in views.items()}
    return list(latest.values())


def _merged(views: Sequence[NodeDescription]) -> NodeDescription:
    """Merge the members' views of a node; common values are those of the first view.

    A job step may see only its own accelerators (`--gpus-per-task`), numbered from 0 in each step.
    """
    devices = {_device(device): device for view in views for device in view.accelerators}
    # Renumber only where two devices have the same index in different views.
    distinct = len({device.index for device in devices.values()}) == len(devices)
    order = {identity: place for place, identity in enumerate(sorted(devices, key=str))}
    indices = {
        identity: device.index if distinct else order[identity]
        for identity, device in devices.items()
    }
    accelerators = [
        replace(device, index=indices[identity]) for identity, device in devices.items()
    ]
    before = [(view.before, _renumbering(view, indices)) for view in views]
    after = [(view.after, _renumbering(view, indices)) for view in views if view.after is not None]
    first = views[0]
    return replace(
        first,
        accelerators=tuple(sorted(accelerators, key=lambda device: device.index)),
        accelerator_links=max((view.accelerator_links for view in views), key=len),
        software=replace(first.software, environment=_environment(views)),
        before=_merged_state(before, base=min(before, key=_wall)[0]),
        after=_merged_state(after, base=max(after, key=_wall)[0]) if after else None,
    )


def _device(accelerator: Accelerator) -> Device:
    return accelerator.uuid or (accelerator.index, accelerator.name)


def _renumbering(view: NodeDescription, indices: Mapping[Device, int]) -> dict[int, int]:
    return {device.index: indices[_device(device)] for device in view.accelerators}


def _wall(observation: Observation) -> float:
    return observation[0].wall


def _merged_state(observations: Sequence[Observation], *, base: State) -> State:
    """Merge accelerators: the last observation of each, with the throttle reasons of all."""
    merged: dict[int, AcceleratorState] = {}
    for state, renumbering in sorted(observations, key=_wall):
        for device in state.accelerators:
            index = renumbering.get(device.index, device.index)
            earlier = merged[index].throttled_by if index in merged else ()
            reasons = tuple(dict.fromkeys((*earlier, *device.throttled_by)))
            merged[index] = replace(device, index=index, throttled_by=reasons)
    return replace(base, accelerators=tuple(merged[index] for index in sorted(merged)))


def _environment(views: Sequence[NodeDescription]) -> dict[str, str]:
    """Join values that differ between views, such as CUDA_VISIBLE_DEVICES."""
    merged: dict[str, dict[str, None]] = {}
    for view in views:
        for name, value in view.software.environment.items():
            merged.setdefault(name, {})[value] = None
    return {
        # AI500_… variables differ by member and do not describe the node.
        name: next(iter(values)) if name.startswith("AI500_") else " | ".join(values)
        for name, values in sorted(merged.items())
    }
