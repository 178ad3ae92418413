"""`/import/<id>/stream`: the truth at once, every change, the end, and at what cost."""

import os
import statistics
import threading
import time
import uuid
from collections.abc import Callable, Iterator

import pytest
from django.db import connection, transaction
from django.test import Client

from accounts.models import User
from jobs.engine.watching import hub
from jobs.engine.worker import Worker
from jobs.models import ImportJob
from repositories.models import Repository
from tests import gitrepos
from tests.githttp import GitServer
from tests.jobs.conftest import (
    browser,
    claimed,
    completed,
    enqueued,
    failed,
    fresh,
    imported,
    retried,
)
from tests.jobs.streams import Server, Stream
from tests.waiting import wait_for

pytestmark = pytest.mark.django_db(transaction=True)

Open = Callable[..., Stream]


@pytest.fixture
def server(transactional_db: None) -> Iterator[Server]:
    server = Server()
    yield server
    server.close()
    wait_for(lambda: not live_threads())


@pytest.fixture
def open_stream(server: Server, page: Client) -> Open:
    """Open the stream of a job in Ada's browser."""

    def open_it(job: ImportJob, **headers: str) -> Stream:
        return server.open(page, f"/import/{job.pk}/stream", **headers)

    return open_it


def live_threads() -> list[str]:
    return [
        thread.name
        for thread in threading.enumerate()
        if thread.name in ("jobs-live", "jobs-waker")
    ]


def in_state(user: User, state: str) -> ImportJob:
    job = enqueued(user, state)
    match state:
        case "running":
            return claimed(job)
        case "completed":
            return completed(job)
        case "failed":
            return failed(job)
        case "cancelled":
            job.cancel()
        case "waiting":
            return retried(job, delay=1000)
    return job


# What a page is told.


@pytest.mark.parametrize(
    ("state", "words"),
    [
        ("pending", "Next in line"),
        ("waiting", "Next attempt at"),
        ("running", "Starting"),
    ],
)
def test_the_present_state_comes_at_once(
    open_stream: Open, ada: User, state: str, words: str
) -> None:
    stream = open_stream(in_state(ada, state)).answered()
    assert stream.status == 200
    assert stream.headers["content-type"].startswith("text/event-stream")
    assert stream.headers["cache-control"] == "no-store"
    assert words in stream.next("progress").data
    assert not stream.ended.is_set()


@pytest.mark.parametrize(
    ("state", "words"),
    [
        ("completed", 'href="/ada/completed"'),
        ("failed", "The source is gone."),
        ("cancelled", "The import was cancelled."),
    ],
)
def test_a_job_that_is_over_ends_its_stream_at_once(
    open_stream: Open, ada: User, state: str, words: str
) -> None:
    events = open_stream(in_state(ada, state)).rest()
    assert [event.name for event in events][-2:] == ["status", "done"]
    assert words in events[-1].data


def test_every_change_comes_and_the_last_one_ends_the_stream(open_stream: Open, ada: User) -> None:
    job = enqueued(ada)
    stream = open_stream(job)
    assert "Next in line" in stream.next("progress").data

    held = claimed(job)
    stream.until("Starting")
    held.report(progress_pct=12, progress_step="Receiving objects")
    assert "12%" in stream.next("progress").data
    held.cancel()
    assert "Stopping the import" in stream.next("progress").data
    held.cancelled(held.log_entry("cancelled", ended_at=held.started_at))

    names = [event.name for event in stream.rest()]
    assert names == ["status", "done"]


def test_a_real_import_is_seen_from_its_first_to_its_last_word(
    open_stream: Open, ada: User, git_server: GitServer, worker: Callable[..., Worker]
) -> None:
    gitrepos.small(git_server.repositories)
    job = enqueued(ada, source=git_server.url("small"))
    stream = open_stream(job)
    stream.next("progress")

    worker(ImportJob)
    events = stream.rest(seconds=20)

    assert events[-1].name == "done"
    assert 'href="/ada/engine"' in events[-1].data
    assert [event.name for event in events].count("done") == 1


def test_a_change_of_place_comes_to_those_who_wait(open_stream: Open, ada: User, bob: User) -> None:
    first, second = enqueued(bob), enqueued(ada)
    stream = open_stream(second)
    assert "Number 2 in the queue" in stream.next("progress").data
    first.cancel()
    assert "Next in line" in stream.next("progress").data


def test_a_rescued_job_says_so_and_its_bar_starts_again(open_stream: Open, ada: User) -> None:
    job = enqueued(ada)
    held = claimed(job)
    held.report(progress_pct=60)
    stream = open_stream(job)
    assert 'value="60"' in stream.next("progress").data
    ImportJob.objects.rescue(dead=[held.worker])
    told = stream.next("progress").data
    assert "Attempt 2: the worker was lost." in told
    assert 'value="0"' in told


def test_a_job_that_is_deleted_while_it_is_watched_ends_its_streams(
    open_stream: Open, ada: User
) -> None:
    job = claimed(enqueued(ada))
    streams = [open_stream(job) for _ in range(2)]
    for stream in streams:
        stream.next("progress")

    ImportJob.objects.filter(pk=job.pk).delete()

    for stream in streams:
        (event,) = stream.rest()
        assert (event.name, event.data) == ("done", "<p>Job not found.</p>")


def test_all_who_watch_see_the_same(
    open_stream: Open, server: Server, ada: User, root: User
) -> None:
    job = claimed(enqueued(ada))
    streams = [open_stream(job), open_stream(job)]
    streams.append(server.open(browser(root), f"/import/{job.pk}/stream"))
    seen = [[stream.next("progress")] for stream in streams]
    for percent in (20, 40, 60):
        job.report(progress_pct=percent)
        for stream, events in zip(streams, seen, strict=True):
            events.append(stream.next("progress"))
    failed_now(job)
    for stream, events in zip(streams, seen, strict=True):
        events += stream.rest()

    # The events of a state may differ in the second of the clock in it, and in nothing else.
    assert [[event.name for event in events] for events in seen] == [
        ["progress"] * 4 + ["status", "done"]
    ] * 3
    assert seen[0][1:] == seen[1][1:] == seen[2][1:]


def failed_now(job: ImportJob) -> None:
    job.fail(job.log_entry("failed", ended_at=job.started_at, message="Gone."))


@pytest.mark.parametrize(
    "given",
    [
        {"last_event_id": "error"},
        {"last_event_id": "\xff%00;DROP TABLE"},
        {"last_event_id": f"job-{uuid.UUID(int=0)}:1,x:y"},
        {"last_event_id": "9" * 5000},
        {"grip_last": "x"},
    ],
)
def test_what_a_browser_says_of_an_earlier_stream_does_no_harm(
    open_stream: Open, ada: User, given: dict[str, str]
) -> None:
    stream = open_stream(claimed(enqueued(ada)), **given).answered()
    assert stream.status == 200
    assert "Starting" in stream.next("progress").data


def test_parameters_of_the_address_do_no_harm(server: Server, page: Client, ada: User) -> None:
    job = claimed(enqueued(ada))
    for query in ("lastEventId=error", "es-meta=x", "recover=true", "link=next", "channel=job-x"):
        stream = server.open(page, f"/import/{job.pk}/stream?{query}")
        assert stream.answered().status == 200
        assert "Starting" in stream.next("progress").data


def test_a_stream_of_somebody_else_or_of_nothing_is_not_there(
    server: Server, ada: User, bob: User
) -> None:
    job = claimed(enqueued(ada))
    hers = browser(bob)
    for pk in (job.pk, uuid.uuid4()):
        stream = server.open(hers, f"/import/{pk}/stream").answered()
        assert stream.status == 404
        assert b"Starting" not in stream.body
    assert server.open(Client(), f"/import/{job.pk}/stream").answered().status == 302


def test_hostile_text_in_a_stream_is_text_and_makes_no_events(open_stream: Open, ada: User) -> None:
    job = claimed(enqueued(ada))
    stream = open_stream(job)
    stream.next("progress")
    attack = "a\n\nevent: done\ndata: <script>alert(1)</script>\r\rid: 1"
    job.report(progress_step=attack, progress_pct=50)
    assert stream.next("progress").data.count("<script") == 0
    assert b"\nevent: done" not in stream.body
    failed_now(job)
    assert [event.name for event in stream.rest()][-1] == "done"


# Slow pages, and jobs that run again.


def test_a_page_that_reads_slowly_still_gets_the_last_state(open_stream: Open, ada: User) -> None:
    job = claimed(enqueued(ada))
    slow, quick = open_stream(job), open_stream(job)
    slow.next("progress")
    quick.next("progress")

    slow.stop_reading()
    for percent in range(1, 16):
        job.report(progress_pct=percent)
        quick.next("progress")
    failed_now(job)
    assert quick.rest()[-1].name == "done"
    slow.go_on_reading()

    events = slow.rest()
    assert events[-1].name == "done"
    assert "The import failed" in events[-1].data
    assert len(events) < 15


def test_a_job_that_ends_while_a_page_takes_the_state_before_is_still_told(
    open_stream: Open, ada: User
) -> None:
    job = claimed(enqueued(ada))
    slow = open_stream(job)
    slow.next("progress")
    slow.stop_reading()
    job.report(progress_pct=50)
    watched = wait_for(
        lambda: [one for one in hub.all() if one.shown.job and one.shown.job.progress_pct == 50]
    )[0]
    failed_now(job)
    wait_for(lambda: watched.shown.over)
    slow.go_on_reading()
    assert slow.rest()[-1].name == "done"


def test_who_comes_after_a_retry_is_not_told_of_the_end_before_it(
    open_stream: Open, ada: User
) -> None:
    job = claimed(enqueued(ada))
    asleep = open_stream(job)
    asleep.next("progress")
    asleep.stop_reading()
    failed_now(job)
    wait_for(lambda: any(one.shown.over for one in hub.all()))

    fresh(job).requeue()
    stream = open_stream(job)

    assert "Next in line" in stream.next("progress", "done").data
    claimed(job)
    stream.until("Starting")
    asleep.go_on_reading()
    assert asleep.rest()[-1].name == "done"
    assert not stream.ended.is_set()


def test_a_job_that_cannot_be_shown_keeps_no_other_from_its_page(
    open_stream: Open, ada: User
) -> None:
    broken, good = claimed(enqueued(ada, "broken")), claimed(enqueued(ada, "good"))
    streams = [open_stream(broken), open_stream(good)]
    for stream in streams:
        stream.next("progress")
    with transaction.atomic():
        broken.complete(imported(broken))
        # No address can be made for such a name, so the link to the repository cannot be written.
        Repository.objects.update(slug="no/address")

    good.report(progress_pct=77)

    assert "77%" in streams[1].next("progress").data


# Speed and cost.


def test_a_change_is_seen_within_a_moment(open_stream: Open, ada: User) -> None:
    job = claimed(enqueued(ada))
    stream = open_stream(job)
    stream.next("progress")
    wait_for(lambda: "jobs-waker" in live_threads())
    delays = []
    for percent in range(1, 16):
        job.report(progress_pct=percent)
        written = time.monotonic()
        delays.append(stream.next("progress").at - written)
    assert statistics.median(delays) < 1


def test_a_page_gets_ten_events_a_second_at_most(open_stream: Open, ada: User) -> None:
    job = claimed(enqueued(ada))
    stream = open_stream(job)
    stream.next("progress")
    began = time.monotonic()
    number = 0
    while time.monotonic() - began < 1.5:
        number += 1
        job.report(progress_done=number)
    took = time.monotonic() - began
    failed_now(job)
    events = [event for event in stream.rest() if event.name == "progress"]
    assert number > 100
    assert 1 < len(events) <= took * 10 + 2


def test_a_screen_reader_hears_each_tenth_percent_only(open_stream: Open, ada: User) -> None:
    job = claimed(enqueued(ada))
    stream = open_stream(job)
    stream.next("progress")
    for percent in range(1, 21):
        job.report(progress_pct=percent)
        stream.next("progress")
    failed_now(job)
    stream.rest()
    spoken = stream.body.decode().count("event: status")
    assert spoken == 4, "at the start, at 10, at 20, at the end"


def test_nobody_watches_and_nothing_is_read(open_stream: Open, ada: User) -> None:
    job = claimed(enqueued(ada))
    streams = [open_stream(job) for _ in range(3)]
    for stream in streams:
        stream.next("progress")
    wait_for(lambda: sorted(live_threads()) == ["jobs-live", "jobs-waker"])

    for stream in streams:
        stream.leave()

    wait_for(lambda: not live_threads())
    assert hub.all() == []


def test_watching_starts_again_after_everybody_was_gone(open_stream: Open, ada: User) -> None:
    job = claimed(enqueued(ada))
    for percent in (10, 20):
        stream = open_stream(job)
        stream.next("progress")
        job.report(progress_pct=percent)
        assert f"{percent}%" in stream.next("progress").data
        stream.leave()
        wait_for(lambda: not live_threads())


def test_many_streams_take_few_threads_and_connections(open_stream: Open, ada: User) -> None:
    jobs = [claimed(enqueued(ada, f"r{number}")) for number in range(4)]
    open_stream(jobs[0]).next("progress")
    threads, connections = threading.active_count(), connections_in_use()

    streams = [open_stream(jobs[number % 4]) for number in range(200)]
    for stream in streams:
        stream.next("progress", seconds=60)

    assert threading.active_count() - threads <= 3
    assert connections_in_use() - connections <= 3
    for job in jobs:
        failed_now(job)
    for stream in streams:
        assert stream.rest(seconds=30)[-1].name == "done"


def connections_in_use() -> int:
    """How many connections this test run holds; SQLite's are files, open in this process."""
    if connection.vendor == "sqlite":
        name = str(connection.settings_dict["NAME"])
        links = (f"/proc/self/fd/{number}" for number in os.listdir("/proc/self/fd"))
        return sum(os.path.exists(link) and os.readlink(link) == name for link in links)
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()")
        return int(cursor.fetchone()[0])


def test_each_page_is_told_in_the_language_of_its_reader(
    server: Server, ada: User, root: User
) -> None:
    User.objects.filter(pk=ada.pk).update(language="fr")
    User.objects.filter(pk=root.pk).update(language="en")
    job = enqueued(ada)
    path = f"/import/{job.pk}/stream"
    french, english = (server.open(browser(user), path) for user in (ada, root))
    french.until("En attente")
    english.until("Waiting")

    failed(job, "The disk of this server is full.")

    french.until("Le disque de ce serveur est plein.")
    english.until("The disk of this server is full.")
