"""The process that runs SimGrid: reads a platform and rounds as JSON, prints seconds of each round.

Runs with SimGrid 3.32 (Debian 12) to 4.1 (PyPI).
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
    root = engine.netzone_root
    # SimGrid 4 renamed the functions that build a platform; the old names raise there.
    new = hasattr(root, "add_netzone_torus")
    hosts: list[Any] = []

    def create_host(zone: Any, _coordinates: list[int], index: int) -> Any:
        host = (zone.add_host if new else zone.create_host)(f"endpoint{index}", 1e9)
        host.seal()
        hosts.append(host)
        return host if new else (host.netpoint, None)

    def limit(zone: Any, _coordinates: list[int], index: int) -> Any:
        # Endpoint 0 is the file system, whose own link is the network's.
        rate = shape["limit"] if 0 < index < shape["down"][0] else shape["bytes_per_second"]
        link = (zone.add_link if new else zone.create_link)(f"limit{index}", rate)
        link.seal()
        return link

    limiter = limit if "limit" in shape else None
    duplex = simgrid.Link.SharingPolicy.SPLITDUPLEX
    link = shape["bytes_per_second"], shape["latency_seconds"], duplex
    kind, parameters = _parameters(shape)
    if new:
        zone = getattr(root, f"add_netzone_{kind}")("network", *parameters, *link)
        zone.set_host_cb(create_host)
        if limiter:
            zone.set_limiter_cb(limiter)
    else:
        described = {"fatTree": simgrid.FatTreeParams, "dragonfly": simgrid.DragonflyParams}
        callbacks = simgrid.ClusterCallbacks(create_host, None, limiter)
        zone = getattr(simgrid.NetZone, f"create_{kind}_zone")(
            "network", root, described.get(kind, list)(*parameters), callbacks, *link
        )
    zone.seal()
    return hosts


def _parameters(shape: dict[str, Any]) -> tuple[str, tuple[Any, ...]]:
    """Return SimGrid's name of the topology, and what describes it."""
    if shape["kind"] == "torus":
        return "torus", (shape["sides"],)
    if shape["kind"] == "dragonfly":
        groups = shape["groups"], shape["global_links"]
        switches = shape["switches"], shape["local_links"]
        return "dragonfly", (groups, (1, 1), switches, shape["endpoints"])
    down = shape["down"]
    return "fatTree", (len(down), down, shape["up"], shape["parallel"])


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
            sent = [
                simgrid.Comm.sendto_async(hosts[sender], hosts[receiver], size)
                for sender, receiver, size in flows
            ]
            if hasattr(simgrid, "ActivitySet"):  # since 3.35
                simgrid.ActivitySet(sent).wait_all()
            else:
                simgrid.Comm.wait_all(sent)
            seconds.append(engine.clock - begin)

    if hasattr(hosts[0], "add_actor"):  # since 4.0
        hosts[0].add_actor("rounds", replay)
    else:
        simgrid.Actor.create("rounds", hosts[0], replay)
    engine.run()
    print(json.dumps(seconds))


if __name__ == "__main__":
    main()
