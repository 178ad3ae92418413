"""Programs are read within bounds and stopped with all their children."""

import signal
import subprocess

import pytest

from repositories.processes import TimedOut, finish, stop_group, stopped_at_exit
from tests.repositories.importing import Starts, wait_until

PIPE = subprocess.PIPE
ENVIRONMENT = {"PATH": "/usr/bin:/bin"}


@pytest.fixture
def starts():
    started = Starts()
    yield started
    wait_until(lambda: not started.living())


def shell(starts: Starts, script: str, **pipes):
    pipes = {"stdout": PIPE, "stderr": PIPE} | pipes
    return starts(["sh", "-c", script], env=ENVIRONMENT, **pipes)


def test_output_errors_and_exit_code_are_told_apart(starts):
    done = finish(shell(starts, "echo out; echo err >&2; exit 3"), max_bytes=100, seconds=5)

    assert (done.code, done.stdout, done.stderr) == (3, b"out\n", b"err\n")
    assert not done.truncated


def test_a_program_is_fed(starts):
    done = finish(shell(starts, "cat", stdin=PIPE), max_bytes=100, seconds=5, stdin=b"hello")

    assert done.stdout == b"hello"


def test_a_program_that_does_not_read_is_no_fault(starts):
    done = finish(shell(starts, "exit 0", stdin=PIPE), max_bytes=100, seconds=5, stdin=b"x" * 9999)

    assert done.code == 0


def test_a_program_that_prints_too_much_is_stopped(starts):
    done = finish(shell(starts, "yes"), max_bytes=1000, seconds=5)

    assert done.truncated
    assert len(done.stdout) == 1000
    assert done.code == -signal.SIGTERM


def test_a_program_that_complains_without_end_fills_no_memory(starts):
    done = finish(shell(starts, "yes | head -c 1000000 >&2; echo done"), max_bytes=99, seconds=5)

    assert done.stdout == b"done\n"
    assert len(done.stderr) == 8192


@pytest.mark.parametrize("script", ["sleep 60", "exec >&- 2>&-; sleep 60", "yes >&2"])
def test_a_program_that_takes_too_long_is_stopped_with_its_children(starts, script):
    with pytest.raises(TimedOut):
        finish(shell(starts, f"{script} & {script}"), max_bytes=1000, seconds=0.2)


def test_a_program_that_ignores_a_polite_word_is_made_to_end(starts, monkeypatch):
    monkeypatch.setattr("repositories.processes.POLITE_SECONDS", 0.1)
    process = shell(starts, "trap '' TERM; echo ready; while :; do sleep 1; done", stderr=None)
    assert process.stdout.readline() == b"ready\n"

    with stopped_at_exit(process):
        pass

    assert process.returncode == -signal.SIGKILL


def test_a_child_that_outlives_its_parent_is_stopped_too(starts):
    process = shell(starts, "trap '' TERM; (sleep 60) & echo; exec sleep 60")
    process.stdout.readline()

    with stopped_at_exit(process):
        stop_group(process)


def test_whatever_is_raised_the_program_is_stopped(starts):
    process = shell(starts, "sleep 60 & sleep 60")

    with pytest.raises(KeyboardInterrupt), stopped_at_exit(process):
        raise KeyboardInterrupt

    assert process.returncode is not None
    assert process.stdout.closed
