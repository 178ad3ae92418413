"""Child processes: how they are started, read within bounds, and stopped with all their children."""

import contextlib
import os
import selectors
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Protocol

CHUNK = 64 * 1024
STDERR_BYTES = 8 * 1024
POLITE_SECONDS = 2.0

Process = subprocess.Popen[bytes]


class Start(Protocol):
    """Starts a program in a session of its own, so that its process group has its number."""

    def __call__(
        self,
        argv: Sequence[str],
        *,
        env: dict[str, str],
        cwd: Path | None = None,
        stdin: int | IO[Any] | None = subprocess.DEVNULL,
        stdout: int | IO[Any] | None = subprocess.DEVNULL,
        stderr: int | IO[Any] | None = subprocess.DEVNULL,
    ) -> Process: ...


class TimedOut(Exception):
    """A program did not end in the time that it was given; it and its children were killed."""


@dataclass(frozen=True)
class Finished:
    """What a program left: its exit code (negative: killed by that signal) and its output.

    `truncated` says that it printed more than was allowed and was killed for that.
    """

    code: int
    stdout: bytes
    stderr: bytes
    truncated: bool = False


def start(
    argv: Sequence[str],
    *,
    env: dict[str, str],
    cwd: Path | None = None,
    stdin: int | IO[Any] | None = subprocess.DEVNULL,
    stdout: int | IO[Any] | None = subprocess.DEVNULL,
    stderr: int | IO[Any] | None = subprocess.DEVNULL,
) -> Process:
    """The `Start` of everything that runs outside a job."""
    return subprocess.Popen(
        argv, env=env, cwd=cwd, stdin=stdin, stdout=stdout, stderr=stderr, start_new_session=True
    )


@contextlib.contextmanager
def stopped_at_exit(process: Process) -> Iterator[Process]:
    """Leave neither the process nor its children nor its pipes behind, whatever is raised."""
    try:
        yield process
    finally:
        try:
            if process.poll() is None:
                stop_group(process)
        finally:
            for pipe in (process.stdin, process.stdout, process.stderr):
                if pipe is not None:
                    # Closing flushes, and what the program did not read any more is lost anyway.
                    with contextlib.suppress(OSError):
                        pipe.close()


def stop_group(process: Process) -> None:
    """Ask the process group to end, so that git removes what it has half written; then make it."""
    _signal_group(process, signal.SIGTERM)
    try:
        process.wait(POLITE_SECONDS)
    except subprocess.TimeoutExpired:
        pass
    finally:
        # The leader may be gone and a child not: the group is asked a last time before the end.
        _signal_group(process, signal.SIGKILL)
        process.wait()


def _signal_group(process: Process, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)


def finish(
    process: Process, *, max_bytes: int, seconds: float | None = None, stdin: bytes = b""
) -> Finished:
    """Feed and read a started program; raises TimedOut.

    `stdin` must fit into a pipe. Reading stops at `max_bytes` of output, and the program with it.
    """
    with stopped_at_exit(process):
        if process.stdin is not None:
            with contextlib.suppress(BrokenPipeError):
                process.stdin.write(stdin)
                process.stdin.close()
        out, err = bytearray(), bytearray()
        deadline = None if seconds is None else time.monotonic() + seconds
        for stream, chunk in _chunks(process, deadline=deadline):
            if stream is process.stderr:
                err += chunk[: STDERR_BYTES - len(err)]
            else:
                out += chunk
            if len(out) > max_bytes:
                stop_group(process)
                return Finished(process.returncode, bytes(out[:max_bytes]), bytes(err), True)
        try:
            process.wait(None if deadline is None else max(0.1, deadline - time.monotonic()))
        except subprocess.TimeoutExpired as late:
            raise TimedOut(str(process.args)) from late
        return Finished(process.returncode, bytes(out), bytes(err))


def errors_of(process: Process) -> Iterator[bytes]:
    """Standard error as it comes, until the program and its children have closed it."""
    if process.stderr is None:
        raise ValueError("the program was started without a pipe for its standard error")
    while data := os.read(process.stderr.fileno(), CHUNK):
        yield data


def _chunks(process: Process, *, deadline: float | None) -> Iterator[tuple[IO[bytes], bytes]]:
    """What comes out of the program's pipes, until both are closed; raises TimedOut."""
    with selectors.DefaultSelector() as selector:
        for pipe in (process.stdout, process.stderr):
            if pipe is not None:
                selector.register(pipe, selectors.EVENT_READ)
        while selector.get_map():
            wait = None if deadline is None else deadline - time.monotonic()
            if wait is not None and wait <= 0:
                raise TimedOut(str(process.args))
            for key, _ in selector.select(wait):
                chunk = os.read(key.fd, CHUNK)
                if chunk:
                    yield key.fileobj, chunk  # type: ignore[misc]  # only pipes were registered
                else:
                    selector.unregister(key.fileobj)
