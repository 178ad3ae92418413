"""A campaign mails nobody twice, and nobody faster than it may, whatever is killed meanwhile."""

import os
import signal
import time
from collections.abc import Callable, Iterator
from email import message_from_bytes
from pathlib import Path
from typing import Any

import pytest
from aiosmtpd.controller import Controller

from tests.examples.project import Examples
from tests.waiting import wait_for

ADDRESSES = 1_500
PER_SECOND = 250
STATES = "SELECT state, count(*) FROM mail_campaign_recipient GROUP BY state"
UNFINISHED = "SELECT count(*) FROM jobs_engine_taskjob WHERE status IN ('pending', 'running')"


class Post:
    """An SMTP server that keeps what it takes, and may do something at a certain mail."""

    def __init__(self) -> None:
        self.begun: list[str] = []
        self.taken: list[tuple[str, str, float]] = []
        self.at_rcpt: dict[int, Callable[[], None]] = {}
        self.at_data: dict[int, Callable[[], None]] = {}
        self.answers: dict[str, str] = {}

    async def handle_RCPT(
        self, _server: Any, _session: Any, envelope: Any, address: str, _options: Any
    ) -> str:
        if address in self.answers:
            return self.answers[address]
        self.begun.append(address)
        self.at_rcpt.pop(len(self.begun), lambda: None)()
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(self, _server: Any, _session: Any, envelope: Any) -> str:
        message = message_from_bytes(envelope.content)
        (address,) = envelope.rcpt_tos
        self.taken.append((address, message["Message-ID"], time.monotonic()))
        self.at_data.pop(len(self.taken), lambda: None)()
        return "250 OK"

    @property
    def addresses(self) -> list[str]:
        return [address for address, _id, _time in self.taken]


@pytest.fixture
def post(examples: Examples) -> Iterator[Post]:
    post = Post()
    controller = Controller(post, hostname="127.0.0.1", port=examples.smtp_port)
    controller.start()
    yield post
    controller.stop()


def start(examples: Examples, addresses: list[str], *, per_second: float | str) -> str:
    (examples.data / "news.txt").write_text("There is news.\n")
    (examples.data / "addresses.txt").write_text("\n".join(addresses))
    files = (examples.data / "news.txt", examples.data / "addresses.txt")
    return examples.manage("start_campaign", "News", *files, "--per-second", str(per_second))


def doubts(examples: Examples, *settle: str) -> list[list[str]]:
    """Address and Message-ID of the mails of which nobody knows, after all have come of age."""
    age = "UPDATE mail_campaign_recipient SET begun_at = '2026-01-01 00:00:00+00' WHERE state = "
    examples.query(age + "'sending' RETURNING id")
    return [line.split()[:2] for line in examples.manage("doubts", "1", *settle).splitlines()]


def most_in_a_second(times: list[float]) -> int:
    first = most = 0
    for last, moment in enumerate(times):
        while times[first] <= moment - 1:
            first += 1
        most = max(most, last - first + 1)
    return most


def test_fifteen_hundred_are_mailed_once_at_the_rate_although_workers_are_killed(
    examples: Examples, post: Post
) -> None:
    def kill() -> None:
        os.kill(examples.running_process(), signal.SIGKILL)

    # Once after the server took a mail and before it said so, once before it was given one.
    post.at_data[500] = kill
    post.at_rcpt[1000] = kill
    addresses = [f"person{number}@example.org" for number in range(ADDRESSES)]
    twice = [*addresses, *(address.upper() for address in addresses[:50])]
    assert "1500 addresses" in start(examples, twice, per_second=PER_SECOND)
    examples.start("manage.py", "runworker", "--processes", "2")
    wait_for(lambda: not examples.value(UNFINISHED), seconds=200)

    # Nobody twice. One was begun and not given; one was given, and the worker never heard.
    assert len(post.addresses) == len(set(post.addresses)) == ADDRESSES - 1
    assert dict(examples.query(STATES)) == {"sent": ADDRESSES - 2, "sending": 2}
    assert examples.value("SELECT max(attempts) FROM jobs_engine_taskjob") == 2
    taken = {address: message_id for address, message_id, _time in post.taken}
    given, lost = sorted(doubts(examples), key=lambda doubt: doubt[0] not in taken)
    assert given == [post.addresses[499], taken[post.addresses[499]]]
    assert lost[0] == post.begun[999]
    assert lost[0] not in taken

    # One mail at a time: so many begin in a second, and the first and the last may reach out of it.
    assert most_in_a_second([moment for _a, _i, moment in post.taken]) <= PER_SECOND + 2


def test_a_person_settles_what_is_in_doubt(examples: Examples, post: Post) -> None:
    def kill() -> None:
        os.kill(examples.running_process(), signal.SIGKILL)

    post.at_data[1] = kill
    post.at_rcpt[2] = kill
    start(examples, ["ada@example.org", "bob@example.org", "cyd@example.org"], per_second=100)
    worker = examples.start("manage.py", "runworker", "--processes", "2")
    wait_for(lambda: not examples.value(UNFINISHED), seconds=60)
    assert worker.poll() is None
    assert [address for address, _id in doubts(examples)] == ["ada@example.org", "bob@example.org"]

    assert len(doubts(examples, "--sent", "ada@example.org")) == 1
    assert doubts(examples, "--again", "bob@example.org") == []
    wait_for(lambda: not examples.value(UNFINISHED), seconds=60)

    assert dict(examples.query(STATES)) == {"sent": 3}
    assert sorted(post.addresses) == ["ada@example.org", "bob@example.org", "cyd@example.org"]


JOB = "SELECT status, attempts, error_message FROM jobs_engine_taskjob ORDER BY created_at"


def unmailed(examples: Examples, *options: str) -> list[str]:
    return examples.manage("unmailed", "1", *options).splitlines()


def run_now(examples: Examples) -> None:
    """What waits for a later time is due now."""
    past = "UPDATE jobs_engine_taskjob SET run_at = '2026-01-01 00:00:00+00'"
    examples.query(f"{past} WHERE status = 'pending' RETURNING id")
    examples.manage("runworker", "--burst")


def test_one_whom_the_server_puts_off_stops_no_other_and_is_tried_again(
    examples: Examples, post: Post
) -> None:
    post.answers = {"bob@example.org": "550 No such person", "cyd@example.org": "452 Mailbox full"}
    people = [f"{name}@example.org" for name in ("ada", "bob", "cyd", "dan", "eve")]
    start(examples, people, per_second=100)
    examples.manage("runworker", "--burst")

    assert post.addresses == ["ada@example.org", "dan@example.org", "eve@example.org"]
    refused = "bob@example.org refused 550 No such person"
    assert unmailed(examples) == [refused, "cyd@example.org waiting 452 Mailbox full"]
    # The batch comes back for that one, at no cost of an attempt, and a bounded number of times.
    for _ in range(4):
        ((status, attempts, _error),) = examples.query(JOB)
        assert (status, attempts) == ("pending", 0)
        run_now(examples)
    assert examples.query(JOB)[0][0] == "completed"
    assert unmailed(examples) == [refused, "cyd@example.org refused 452 Mailbox full"]

    # A person who knows that there is room again asks for that one.
    post.answers.clear()
    unmailed(examples, "--again", "cyd@example.org")
    examples.manage("runworker", "--burst")
    assert unmailed(examples) == [refused]
    assert sorted(post.addresses) == [people[0], *people[2:]]


def test_a_server_that_closes_is_asked_again_later(examples: Examples, post: Post) -> None:
    post.answers = {"ada@example.org": "421 Too busy"}
    start(examples, ["ada@example.org", "bob@example.org"], per_second=100)
    examples.manage("runworker", "--burst")
    assert examples.query(JOB) == [("pending", 1, "The server says: 421 Too busy")]
    assert unmailed(examples) == ["ada@example.org waiting", "bob@example.org waiting"]

    # When its job has failed for good, those that wait get a new one.
    examples.query("UPDATE jobs_engine_taskjob SET status = 'failed' RETURNING id")
    post.answers.clear()
    unmailed(examples, "--again")
    examples.manage("runworker", "--burst")
    assert post.addresses == ["ada@example.org", "bob@example.org"]
    assert unmailed(examples) == []


@pytest.mark.parametrize("rate", ["inf", "nan", "1e-9", "1001", "0"])
def test_a_rate_that_is_none_is_refused(examples: Examples, rate: str) -> None:
    with pytest.raises(AssertionError, match=r"--per-second is a number from 0\.01 to 1000"):
        start(examples, ["ada@example.org"], per_second=rate)
    assert examples.query(STATES) == []


def test_an_address_that_is_none_stops_the_campaign_before_it_begins(
    examples: Examples, tmp_path: Path
) -> None:
    with pytest.raises(AssertionError, match=r"Enter a valid email address.*nowhere"):
        start(examples, ["ada@example.org", "nowhere"], per_second=1)
    assert examples.query(STATES) == []
