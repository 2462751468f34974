"""A launcher: members yield the processors to everybody else."""

from __future__ import annotations

from ai500.api import ConfigError, Container, Launcher, Wrap


def gently(container: Container | None) -> Launcher:
    """Words before the command; the same way goes `numactl`, or a site's own wrapper."""
    if container is not None:
        raise ConfigError(
            "scheduler.launcher = 'gently' starts no container: leave [container] out."
        )
    return Wrap(before=("nice", "-n", "10"))
