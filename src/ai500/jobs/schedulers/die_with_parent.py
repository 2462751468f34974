"""Run a command that is killed with its parent: `die_with_parent.py PARENT_PID COMMAND …`.

The kernel keeps the request across `exec`, so that torchrun and containers, which know nothing of
it, die with the controller too. Started by its path and without site packages: it costs 20 ms.
"""

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def main() -> None:
    """Ask the kernel, see whether the parent is still there, become the command."""
    parent, command = int(sys.argv[1]), sys.argv[2:]
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        sys.exit("the process that started this is gone")
    try:
        os.execvp(command[0], command)
    except OSError as error:
        sys.exit(f"error: {command[0]!r} can't be started on this machine: {error.strerror}.")


if __name__ == "__main__":
    main()
