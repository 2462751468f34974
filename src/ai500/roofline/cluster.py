"""The roofline of a Slurm cluster: kernels of one of its nodes, links of several, in one job."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from ai500.config import Config
from ai500.core.errors import ConfigError, InputError
from ai500.jobs.schedulers.slurm import SLURM
from ai500.jobs.trial_jobs import python_of
from ai500.records import run_folder
from ai500.roofline import link_jobs
from ai500.roofline.measure import LINKS_SHARE, Observer
from ai500.roofline.records import LinkTime, RooflineRecord


def on_slurm(
    path: Path,
    *,
    config: Config,
    precisions: tuple[str, ...],
    seconds: float,
    observer: Observer,
) -> RooflineRecord:
    """Submit one job over the nodes, wait for it, and put its parts together in `path`."""
    if path.exists():
        raise InputError(f"{path} exists. Name another file with --out.")
    if config.container.image is not None:
        raise ConfigError(
            "container.image with `ai500 roofline --scheduler slurm`: it measures without a "
            "container. Leave container.image out."
        )
    cluster = SLURM.survey(config)
    assert cluster is not None  # Slurm has one
    nodes = config.system.nodes or len(cluster.nodes)
    if nodes > len(cluster.nodes):
        raise ConfigError(
            f"system.nodes = {nodes}, but partition {cluster.partition!r} has {len(cluster.nodes)} "
            "nodes that can be used now."
        )
    device = config.system.device or ("cuda" if cluster.accelerators_per_node else "cpu")
    ranks, cpus = link_jobs.ranks_and_cpus(
        config,
        cpus_per_node=cluster.cpus_per_node,
        accelerators=0 if device == "cpu" else cluster.accelerators_per_node,
    )
    folder = path.resolve().with_suffix(".job")
    folder.mkdir(parents=True, exist_ok=True)
    python = python_of(config)
    node = folder / "node.json"
    kernels = [
        python, "-m", "ai500", "roofline", "--out", str(node), "--ranks", "1",
        "--seconds", str(seconds * (1 - LINKS_SHARE)), "--device", device,
        *(word for name in precisions for word in ("--precision", name)),
    ]  # fmt: skip
    text = link_jobs.script(
        folder=folder,
        nodes=nodes,
        ranks=ranks,
        cpus=cpus,
        device=device,
        kernels=kernels,
        seconds=seconds * LINKS_SHARE,
        slurm=config.slurm,
        python=python,
    )
    (folder / "job.sh").write_text(text, encoding="utf-8")
    link_jobs.run_on_slurm(text, folder=folder, on_state=observer.stage)
    record = run_folder.read(RooflineRecord, node)
    links = run_folder.read_all(LinkTime, folder / "links.json")
    unavailable = tuple(one for one in record.unavailable if one[0] != "links")
    record = replace(record, links=tuple(links), unavailable=unavailable)
    run_folder.write(path, record)
    return record
