"""`ai500 system`: describe the system under test."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from ai500 import config as configuration
from ai500.cli.arguments import AsJson
from ai500.cli.options import ConfigOptions, with_options
from ai500.cli.terminal import console, print_json, rows, shown
from ai500.core import schema
from ai500.core.atomic import write_json
from ai500.core.errors import EnvironmentLacksError
from ai500.inventory import node as local_node
from ai500.inventory import summary
from ai500.inventory.description import NodeDescription
from ai500.jobs import cluster_inventory as cluster
from ai500.jobs.schedulers import load_scheduler
from ai500.records.run_folder import RunFolder


@with_options(without=("workload", "problem_class", "runs", "data"))
def system(
    run: Annotated[
        Path | None, typer.Argument(help="Run folder: describe the nodes that trained.")
    ] = None,
    *,
    selected: ConfigOptions,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Also write the description as JSON.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Describe this node, the nodes of the cluster, or those of a run.

    Shows how nodes differ. [system.notes] of ai500.toml adds what commands cannot detect.

    Example: ai500 system --set 'system.notes.network="fat tree, 2:1"'
    """
    if run is not None:
        nodes, notes = _recorded_nodes(run)
    else:
        config = selected.load()
        notes = config.system.notes
        survey = load_scheduler(config.scheduler.kind).survey(config)
        nodes = [local_node.describe()] if survey is None else cluster.describe(config, survey)
    description = {"notes": notes, "nodes": [schema.encode(node) for node in nodes]}
    if out is not None:
        write_json(out, description)
    if as_json:
        print_json(description)
        return
    show(nodes, notes)


def _recorded_nodes(path: Path) -> tuple[list[NodeDescription], dict[str, str]]:
    folder = RunFolder.open(path)
    nodes = local_node.recorded_nodes(folder)
    if not nodes:
        raise EnvironmentLacksError(
            f"{path} has no description of a node yet: a node writes it when training begins.",
            path=path,
        )
    return nodes, configuration.load(folder.config).system.notes


def show(nodes: Sequence[NodeDescription], notes: Mapping[str, str]) -> None:
    """Print each kind of node once, and the differences between kinds."""
    if len(nodes) > 1:
        rows("cluster", summary.totals(nodes))
    for number, kind in enumerate(summary.kinds(nodes)):
        console.print(Text(shown(_names(kind.hostnames)), style="bold"), soft_wrap=True)
        if number == 0:
            for title, pairs in summary.sections(kind.description):
                rows(title, pairs)
        for name, here, elsewhere in kind.differences:
            difference = f"  {name}: {here}, elsewhere {elsewhere}"
            console.print(Text(shown(difference)), soft_wrap=True)
    if notes:
        rows("notes of the operator", list(notes.items()))


def _names(hostnames: Sequence[str]) -> str:
    if len(hostnames) <= 4:
        return ", ".join(hostnames)
    return f"{hostnames[0]} … {hostnames[-1]} ({len(hostnames):,} identical nodes)"
