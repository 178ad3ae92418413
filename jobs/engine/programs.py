"""The programs that one run starts: each leads a process group, and all die with the run."""

import contextlib
import os
import signal
import subprocess
from collections.abc import Sequence
from typing import Any

Process = subprocess.Popen[bytes]

# Reads until the worker closes the pipe, which its death does too, then kills the group.
GUARD = 'read _; kill -s KILL -- "-$1"'


class Programs:
    """Not for several threads at once: the run that has it holds a lock."""

    def __init__(self) -> None:
        self._guards: dict[Process, Process] = {}

    def start(self, argv: Sequence[str], **options: Any) -> Process:
        """Start a program; raises OSError. Options are those of subprocess.Popen."""
        self._forget_ended()
        program = subprocess.Popen(argv, **options, start_new_session=True)
        try:
            self._guards[program] = guard_of(program)
        except BaseException:
            kill_group(program, signal.SIGKILL)
            program.wait()
            raise
        return program

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to every group."""
        for program in self._guards:
            kill_group(program, number)

    def end(self) -> list[Process]:
        """Kill what is left; returns the programs, for which the caller waits."""
        self.signal(signal.SIGKILL)
        ended = list(self._guards)
        for guard in self._guards.values():
            dismiss(guard)
        self._guards.clear()
        return ended

    def _forget_ended(self) -> None:
        """Drop programs that ended, with what they left behind, before their number is reused."""
        for program in [one for one in self._guards if one.returncode is not None]:
            kill_group(program, signal.SIGKILL)
            dismiss(self._guards.pop(program))


def guard_of(program: Process) -> Process:
    """A tiny process that kills the program's group when this process is gone, however it went."""
    return subprocess.Popen(
        ["/bin/sh", "-c", GUARD, "guard", str(program.pid)],
        env={},
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def dismiss(guard: Process) -> None:
    # Killed before its pipe is closed, so that it never acts on the end of a program that ended.
    guard.kill()
    guard.wait()
    if guard.stdin is not None:
        guard.stdin.close()


def kill_group(program: Process, number: signal.Signals) -> None:
    # The group may outlive the program that led it, so it is signalled in any case.
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(program.pid, number)
