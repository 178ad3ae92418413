"""Who is dead, and of whom nobody here can say."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from jobs.engine import identity


def named(*, pid: int, start: str) -> str:
    return f"{identity.machine_prefix()}{pid}/{start}"


def test_a_worker_is_alive_to_itself() -> None:
    assert identity.this_worker().startswith(identity.machine_prefix() or "?")
    assert len(identity.this_worker()) <= 200
    assert not identity.is_dead(identity.this_worker())


def test_a_process_that_ended_is_dead_also_when_its_number_is_used_again() -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    assert identity.is_dead(named(pid=ended.pid, start="1"))
    assert identity.is_dead(named(pid=os.getpid(), start="1"))


def test_a_zombie_is_dead() -> None:
    child = subprocess.Popen([sys.executable, "-c", ""], stdout=subprocess.PIPE)
    stat = Path(f"/proc/{child.pid}/stat")
    start = stat.read_text().rpartition(")")[2].split()[19]
    assert child.stdout
    child.stdout.read()
    while stat.read_text().rpartition(")")[2].split()[0] != "Z":
        os.sched_yield()
    assert identity.is_dead(named(pid=child.pid, start=start))
    child.stdout.close()
    child.wait()


@pytest.mark.parametrize(
    "worker",
    ["", "elsewhere/boot.1/1/1", "a/b", "not a name", "{prefix}x/1", "{prefix}1"],
)
def test_of_other_machines_and_odd_names_nothing_is_said(worker: str) -> None:
    assert not identity.is_dead(worker.replace("{prefix}", identity.machine_prefix() or ""))


def test_a_process_whose_start_the_system_hides_is_not_taken_for_dead(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As with another account's worker under hidepid: it is there, and more is not told."""

    def refuse(_pid: int, _number: int) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "kill", refuse)
    monkeypatch.setattr(identity, "_born", lambda _pid: "")
    assert not identity.is_dead(named(pid=1, start="5"))
