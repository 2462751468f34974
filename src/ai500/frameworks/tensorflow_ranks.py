"""A member's ranks in TensorFlow: the cluster, and the collectives of MultiWorkerMirroredStrategy.

TensorFlow wants every worker's address before it starts; ai500's environment names one address. So
rank 0 collects the addresses there, and sends the list to all.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import time
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ai500.frameworks.protocol import free_port
from ai500.frameworks.tensorflow_setup import tf
from ai500.train.worker import Rank

JOIN_SECONDS = 300.0  # ranks import TensorFlow at different speeds
RETRY_SECONDS = 0.1


class Ranks:
    """The collectives of this rank; a single rank communicates with none."""

    def __init__(self, rank: Rank) -> None:
        self.several = rank.world_size > 1
        self._strategy: Any = None
        if self.several:
            cluster = tf.distribute.cluster_resolver.SimpleClusterResolver(
                tf.train.ClusterSpec({"worker": worker_addresses(rank)}),
                task_type="worker",
                task_id=rank.rank,
                rpc_layer="grpc",
            )
            options = tf.distribute.experimental.CommunicationOptions(
                implementation=tf.distribute.experimental.CommunicationImplementation.RING
            )
            self._strategy = tf.distribute.MultiWorkerMirroredStrategy(
                cluster_resolver=cluster, communication_options=options
            )
            self._gather = tf.function(self._all_gather, autograph=False)
            # TensorFlow's coordination took over SIGTERM while the ranks connected: take it back,
            # once all are connected, or no rank would write a checkpoint.
            self.gather(np.zeros(1))
            signal.signal(signal.SIGTERM, signal.getsignal(signal.SIGTERM))

    def run(self, step: Any, arguments: tuple[Any, ...]) -> Any:
        """Run a step in which `mean` is allowed."""
        return self._strategy.run(step, args=arguments) if self.several else step(*arguments)

    def mean(self, tensors: list[Any]) -> list[Any]:
        """Average tensors over the ranks, inside of a step."""
        if not self.several:
            return tensors
        context = tf.distribute.get_replica_context()
        averaged: list[Any] = context.all_reduce(tf.distribute.ReduceOp.MEAN, tensors)
        return averaged

    def gather(self, rows: NDArray[Any]) -> NDArray[Any]:
        """Concatenate the equally many rows of all ranks."""
        return np.asarray(self._gather(tf.constant(rows)))

    def _all_gather(self, rows: Any) -> Any:
        def gather(rows: Any) -> Any:
            # An argument has no device of its own, by which the collective would be placed.
            placed = tf.identity(rows)
            return tf.distribute.get_replica_context().all_gather(placed, axis=0)

        return self._strategy.run(gather, args=(rows,))


def worker_addresses(rank: Rank) -> list[str]:
    """Return the address of every rank's TensorFlow server, in order of the ranks."""
    meeting = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
    if rank.rank == 0:
        return _collect_addresses(meeting, rank.world_size)
    with _connect(meeting) as connection, connection.makefile("rw") as stream:
        own = f"{connection.getsockname()[0]}:{free_port()}"
        stream.write(json.dumps({"rank": rank.rank, "address": own}) + "\n")
        stream.flush()
        addresses: list[str] = json.loads(stream.readline())
        return addresses


def _collect_addresses(meeting: tuple[str, int], world_size: int) -> list[str]:
    """Receive the other ranks' addresses and send them the complete list."""
    addresses = {0: f"{meeting[0]}:{free_port()}"}
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(socket.create_server(("", meeting[1])))
        server.settimeout(JOIN_SECONDS)
        streams = []
        while len(addresses) < world_size:
            connection, _ = server.accept()
            connection.settimeout(JOIN_SECONDS)
            stack.enter_context(connection)
            stream = stack.enter_context(connection.makefile("rw"))
            stated = json.loads(stream.readline())
            addresses[stated["rank"]] = stated["address"]
            streams.append(stream)
        ordered = [addresses[number] for number in range(world_size)]
        for stream in streams:
            stream.write(json.dumps(ordered) + "\n")
            stream.flush()
    return ordered


def _connect(address: tuple[str, int]) -> socket.socket:
    """Connect to rank 0, which may start later."""
    deadline = time.monotonic() + JOIN_SECONDS
    while True:
        try:
            connection = socket.create_connection(address, timeout=JOIN_SECONDS)
        except ConnectionRefusedError:
            if time.monotonic() > deadline:
                raise
            time.sleep(RETRY_SECONDS)
        else:
            return connection
