"""`ai500 system`: the system under test, described by itself."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from ai500 import config as configuration
from ai500.cli.options import AsJson, ConfigPath, SchedulerName, Settings, load_config
from ai500.cli.terminal import console, rows, shown
from ai500.core import schema
from ai500.core.atomic import write_json
from ai500.core.errors import EnvironmentLacksError
from ai500.inventory import node, summary
from ai500.inventory.description import NodeDescription
from ai500.jobs import cluster_inventory as cluster
from ai500.jobs.schedulers import load_scheduler
from ai500.records.run_folder import RunFolder


def system(
    run: Annotated[
        Path | None, typer.Argument(help="A run folder: the nodes that trained. Default: this one.")
    ] = None,
    config: ConfigPath = None,
    scheduler: SchedulerName = None,
    settings: Settings = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Write the description as JSON, too.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Describe this node, the nodes of the cluster, or those of a run.

    It says how nodes differ. What no command knows goes into [system.notes] of ai500.toml.

    Example: ai500 system --set 'system.notes.network="fat tree, 2:1"'
    """
    if run is not None:
        nodes, notes = _of_run(run)
    else:
        resolved = load_config(config, scheduler=scheduler, settings=settings)
        notes = resolved.system.notes
        survey = load_scheduler(resolved.scheduler.kind).survey(resolved)
        nodes = [node.describe()] if survey is None else cluster.describe(resolved, survey)
    told = {"notes": notes, "nodes": [schema.encode(one) for one in nodes]}
    if out is not None:
        write_json(out, told)
    if as_json:
        print(json.dumps(told, indent=2))
        return
    show(nodes, notes)


def _of_run(path: Path) -> tuple[list[NodeDescription], dict[str, str]]:
    folder = RunFolder.open(path)
    nodes = node.recorded_nodes(folder)
    if not nodes:
        raise EnvironmentLacksError(
            f"{path} has no description of a node yet: each is left when training begins there."
        )
    return nodes, configuration.load(folder.config).system.notes


def show(nodes: Sequence[NodeDescription], notes: Mapping[str, str]) -> None:
    """The kinds of nodes there are, each once, and what sets them apart."""
    found = summary.kinds(nodes)
    if len(nodes) > 1:
        rows("cluster", summary.totals(nodes))
    for number, kind in enumerate(found):
        console.print(Text(shown(_names(kind.hostnames)), style="bold"), soft_wrap=True)
        if number == 0:
            for title, pairs in summary.sections(kind.description):
                rows(title, pairs)
        for name, here, elsewhere in kind.differences:
            told = f"  {name}: {here}, elsewhere {elsewhere}"
            console.print(Text(shown(told)), soft_wrap=True)
    if notes:
        rows("told by a person", list(notes.items()))


def _names(hostnames: Sequence[str]) -> str:
    if len(hostnames) <= 4:
        return ", ".join(hostnames)
    return f"{hostnames[0]} … {hostnames[-1]} ({len(hostnames):,} nodes alike)"
