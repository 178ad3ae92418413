"""Which process a worker is, so that a worker of the same machine can see that it is dead."""

import os
import socket
from functools import cache
from pathlib import Path


def _read(path: str) -> str:
    try:
        return Path(path).read_text().strip()
    except OSError:
        return ""


@cache
def _machine() -> tuple[str, str]:
    """(host, world): the world is this boot and this namespace of process ids.

    Equal process ids mean the same process only inside one such world: two containers may share a
    host name and both have a process 1. Where the system does not tell, the world is empty, and
    nobody is judged dead before the lease ends.
    """
    boot = _read("/proc/sys/kernel/random/boot_id").replace("-", "")[:12]
    try:
        namespace = os.readlink("/proc/self/ns/pid").strip("pid:[]")
    except OSError:
        namespace = ""
    host = socket.gethostname().replace("/", "_")[:60] or "host"
    return host, f"{boot}.{namespace}" if boot and namespace else ""


def _born(pid: int) -> str:
    """The start of a process in clock ticks since boot; empty when there is no such process."""
    stat = _read(f"/proc/{pid}/stat")
    # The name in parentheses may hold spaces and parentheses, so count from behind it.
    behind = stat.rpartition(")")[2].split()
    return behind[19] if len(behind) > 19 and behind[0] not in "ZX" else ""


def this_worker() -> str:
    """`host/world/pid/start` of this process; at most 200 characters."""
    host, world = _machine()
    pid = os.getpid()
    return f"{host}/{world}/{pid}/{_born(pid)}"


def machine_prefix() -> str | None:
    """What the names of all workers of this machine begin with; None where it cannot be told."""
    host, world = _machine()
    return f"{host}/{world}/" if world else None


def is_dead(worker: str) -> bool:
    """True when `worker` was a process of this machine and no longer runs; False when in doubt."""
    prefix = machine_prefix()
    if prefix is None or not worker.startswith(prefix):
        return False
    pid, _, start = worker.removeprefix(prefix).partition("/")
    if not start or not pid.isdigit():
        return False
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return True
    except OSError:
        # It is there. What the system hides of other people's processes says nothing.
        return _born(int(pid)) not in ("", start)
    return _born(int(pid)) != start
