"""Take from each Python process what macOS lacks; tests put this folder on PYTHONPATH.

/proc is hidden by the mount namespace that `tests/train/test_mac.py` starts `ai500` in.
"""

import ctypes
import os
import select
import signal
import socket
import sys
import sysconfig
import time

# The standard library looks for the build's configuration by platform.
os.environ["_PYTHON_SYSCONFIGDATA_NAME"] = sysconfig._get_sysconfigdata_name()
sys.platform = "darwin"
LACKING = {
    os: (
        "sched_getaffinity", "sched_setaffinity", "sched_getscheduler", "pidfd_open", "eventfd",
        "memfd_create", "copy_file_range", "posix_fadvise", "posix_fallocate", "splice",
        "getrandom", "fdatasync", "getresuid", "setresuid", "O_DIRECT", "O_PATH", "O_TMPFILE",
    ),
    select: ("epoll",),
    signal: ("sigtimedwait", "sigwaitinfo", "pidfd_send_signal"),
    socket: ("AF_NETLINK", "SOCK_CLOEXEC", "SOCK_NONBLOCK"),
    time: ("CLOCK_BOOTTIME",),
}  # fmt: skip
for module, names in LACKING.items():
    for name in names:
        if hasattr(module, name):
            delattr(module, name)

_getattr = ctypes.CDLL.__getattr__


def without_prctl(library: ctypes.CDLL, name: str) -> object:
    if name == "prctl":
        raise AttributeError("dlsym: symbol not found: prctl")
    return _getattr(library, name)


ctypes.CDLL.__getattr__ = without_prctl
