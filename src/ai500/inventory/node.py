"""One node described by a process on it: before training, and again after."""

from __future__ import annotations

import dataclasses
import platform
from pathlib import Path

from ai500.core.errors import AI500Error
from ai500.inventory import host, nvidia
from ai500.inventory import machine as system
from ai500.inventory.description import Accelerator, NodeDescription
from ai500.inventory.software import software
from ai500.inventory.state import observe
from ai500.records import run_folder


def describe(root: Path = Path("/")) -> NodeDescription:
    """This node, now."""
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
    """By the driver's library, else by the names torch has for them."""
    found = nvidia.accelerators()
    if found:
        return found
    _, names = system.accelerators()
    return tuple(Accelerator(index=index, name=name) for index, name in enumerate(names))


def record_before(path: Path) -> None:
    """Leave this node as the member sees it, unless an earlier start of the same member has."""
    if not path.exists():
        run_folder.write(path, describe())


def record_after(path: Path) -> None:
    """Add the state after training."""
    try:
        before = run_folder.read(NodeDescription, path)
    except AI500Error:
        return  # it could not be left before
    run_folder.write(path, dataclasses.replace(before, after=observe()))
