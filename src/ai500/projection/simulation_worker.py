"""The process that runs SimGrid: reads a platform and rounds as JSON, prints seconds of each round.

Uses only what SimGrid 3.32 (Debian 12) and 4.1 (PyPI) share.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

# Fluid model without corrections for TCP: bandwidths in the platform are those of payload. Fabrics
# with RDMA have no congestion window and no acknowledgements that compete with data.
OPTIONS = (
    "--cfg=network/model:CM02",
    "--cfg=network/TCP-gamma:-1",
    "--cfg=network/crosstraffic:0",
    "--log=root.thres:critical",
)


def build(simgrid: Any, engine: Any, shape: dict[str, Any]) -> list[Any]:
    """Build the topology; return its endpoints."""
    hosts: list[Any] = []

    def create(zone: Any, _coordinates: list[int], index: int) -> tuple[Any, None]:
        host = zone.create_host(f"endpoint{index}", 1e9)
        host.seal()
        hosts.append(host)
        return host.netpoint, None

    def limit(zone: Any, _coordinates: list[int], index: int) -> Any:
        # Endpoint 0 is the file system, whose own link is the network's.
        rate = shape["limit"] if 0 < index < shape["down"][0] else shape["bytes_per_second"]
        link = zone.create_link(f"limit{index}", rate)
        link.seal()
        return link

    callbacks = simgrid.ClusterCallbacks(create, None, limit if "limit" in shape else None)
    root = engine.netzone_root
    duplex = simgrid.Link.SharingPolicy.SPLITDUPLEX
    link = shape["bytes_per_second"], shape["latency_seconds"], duplex
    zones = simgrid.NetZone
    if shape["kind"] == "torus":
        zone = zones.create_torus_zone("network", root, shape["sides"], callbacks, *link)
    elif shape["kind"] == "dragonfly":
        parameters = simgrid.DragonflyParams(
            (shape["groups"], shape["global_links"]),
            (1, 1),
            (shape["switches"], shape["local_links"]),
            shape["endpoints"],
        )
        zone = zones.create_dragonfly_zone("network", root, parameters, callbacks, *link)
    else:
        down = shape["down"]
        parameters = simgrid.FatTreeParams(len(down), down, shape["up"], shape["parallel"])
        zone = zones.create_fatTree_zone("network", root, parameters, callbacks, *link)
    zone.seal()
    return hosts


def main() -> None:
    """Simulate one round after another on the idle network."""
    folder = str(Path(__file__).parent)
    sys.path = [path for path in sys.path if path != folder]  # its platform.py is not Python's
    import simgrid

    job = json.load(sys.stdin)
    engine = simgrid.Engine(["simulation", *OPTIONS])
    hosts = build(simgrid, engine, job["shape"])
    seconds: list[float] = []

    def replay() -> None:
        for flows in job["rounds"]:
            begin = engine.clock
            simgrid.Comm.wait_all(
                [
                    simgrid.Comm.sendto_async(hosts[sender], hosts[receiver], size)
                    for sender, receiver, size in flows
                ]
            )
            seconds.append(engine.clock - begin)

    simgrid.Actor.create("rounds", hosts[0], replay)
    engine.run()
    print(json.dumps(seconds))


if __name__ == "__main__":
    main()
