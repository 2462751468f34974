"""The system in a report: the machine that planned, the nodes that trained, a person's notes."""

from __future__ import annotations

from ai500.core.units import human_bytes
from ai500.inventory import summary
from ai500.report.run_data import Contents
from ai500.report.section import Table
from ai500.report.sections import NOT_MEASURED
from ai500.report.summary import counted

HOSTS_NAMED = 8


def system_table(contents: Contents) -> Table:
    """The machine, as it described itself."""
    system = contents.system
    memory = NOT_MEASURED if system.memory_bytes is None else human_bytes(system.memory_bytes)
    accelerators = [
        f"{system.accelerators.count(name)} × {name} ({system.accelerator})"
        for name in dict.fromkeys(system.accelerators)
    ]
    rows = [
        ("host", system.hostname),
        ("CPU", f"{system.cpu}, {counted(system.cores, 'usable core')}"),
        ("memory", memory),
        ("accelerators", "; ".join(accelerators) or "none"),
        ("operating system", f"{system.operating_system}, kernel {system.kernel}"),
        ("Python", system.python),
        *((name, version or "not installed") for name, version in system.libraries.items()),
    ]
    return Table(("", ""), rows)


def node_tables(contents: Contents) -> list[tuple[str, Table]]:
    """The most frequent kind of node, section by section, then how the other kinds differ."""
    tables = []
    if len(contents.nodes) > 1:
        tables.append(("All nodes", Table(("", ""), summary.totals(contents.nodes))))
    for number, kind in enumerate(summary.kinds(contents.nodes)):
        names = f"{counted(len(kind.hostnames), 'node')} ({_named(kind.hostnames)})"
        if number:
            tables.append((f"{names} differ", Table(("", "here", "elsewhere"), kind.differences)))
            continue
        for title, pairs in summary.sections(kind.description):
            tables.append((f"{names}: {title}", Table(("", ""), pairs)))
    if contents.notes:
        tables.append(("Told by a person", Table(("", ""), list(contents.notes.items()))))
    return tables


def _named(hostnames: tuple[str, ...]) -> str:
    more = len(hostnames) - HOSTS_NAMED
    return ", ".join(hostnames[:HOSTS_NAMED]) + (f" and {more:,} more" if more > 0 else "")
