"""The stream behind a bar: the truth at once, every change, the end, and nothing left."""

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.test import Client

from jobs.engine import bar, views
from jobs.engine.kinds import pause, resume
from jobs.engine.watching import hub
from jobs.engine.worker import Worker
from tests.jobs.streams import Server, Stream
from tests.kinds.models import Chain, Probe
from tests.waiting import wait_for

pytestmark = pytest.mark.django_db(transaction=True)

Open = Callable[..., Stream]


@pytest.fixture
def server(transactional_db: None) -> Iterator[Server]:
    server = Server()
    yield server
    server.close()
    wait_for(lambda: hub.all() == [])


@pytest.fixture
def open_stream(server: Server) -> Open:
    """Open a job's stream in the browser of somebody who has its token and is not signed in."""

    def open_it(job: Any, token: str = "") -> Stream:
        token = token or bar.token_of(type(job), job.pk)
        return server.open(Client(), f"/jobs/progress/{token}/stream")

    return open_it


def state(stream: Stream, words: str) -> str:
    """The next state that has these words in it."""
    while words not in (data := stream.next("state").data):
        pass
    return data


def probe() -> Probe:
    return Probe.objects.enqueue(script="nothing")


def claimed(job: Any) -> Any:
    (held,) = type(job).objects.claim(1, worker="test", lease_seconds=30)
    return held


def failed(held: Any, message: str = "No luck.") -> None:
    held.fail(held.log_entry("failed", ended_at=held.started_at, message=message))


def test_the_state_comes_at_once_then_every_change_then_the_end(open_stream: Open) -> None:
    job = probe()
    stream = open_stream(job).answered()
    assert stream.status == 200
    assert stream.headers["content-type"] == "text/event-stream"
    assert stream.headers["cache-control"] == "no-store"
    assert stream.headers["x-accel-buffering"] == "no"
    assert "Waiting" in stream.next("state").data

    held = claimed(job)
    state(stream, "Running")
    held.report(progress_pct=12, progress_step="reading")
    assert "reading" in state(stream, 'value="12"')
    failed(held)

    (last,) = stream.rest()
    assert last.name == "over"
    assert "No luck." in last.data


@pytest.mark.parametrize("status", ["completed", "failed", "cancelled", "gone"])
def test_a_job_that_is_over_ends_its_stream_at_once(open_stream: Open, status: str) -> None:
    job = probe()
    match status:
        case "completed":
            claimed(job).complete()
        case "failed":
            failed(claimed(job))
        case "cancelled":
            job.cancel()
    token = bar.token_of(Probe, job.pk)
    if status == "gone":
        job.delete()

    (only,) = open_stream(job, token).rest()

    assert only.name == "over"
    assert f'data-status="{status}"' in only.data


def test_a_real_job_is_seen_to_its_end(open_stream: Open, worker: Callable[..., Worker]) -> None:
    stream = open_stream(Probe.objects.enqueue(script="report"))
    stream.next("state")

    worker(Probe)
    events = stream.rest(seconds=20)

    assert [event.name for event in events][-1] == "over"
    percents = [int(value) for value in re.findall(r'value="(\d+)"', stream.body.decode())]
    assert percents == sorted(percents)
    assert percents[-1] == 100


def test_a_pause_is_shown_to_those_who_wait(open_stream: Open) -> None:
    stream = open_stream(probe())
    stream.next("state")

    pause(Probe.kind, using="default")
    state(stream, "Paused")
    resume(Probe.kind, using="default")
    state(stream, "Waiting")


def test_jobs_of_several_kinds_are_watched_together(open_stream: Open) -> None:
    probes, chain = probe(), Chain.objects.enqueue()
    streams = [open_stream(probes), open_stream(chain)]
    for stream, name in zip(streams, ["Probe", "Chain"], strict=True):
        assert f'aria-label="{name}"' in stream.next("state").data
    claimed(chain).complete(0)
    assert streams[1].rest()[-1].name == "over"
    claimed(probes)
    state(streams[0], "Running")


def test_hostile_text_makes_no_events(open_stream: Open) -> None:
    held = claimed(probe())
    stream = open_stream(held)
    stream.next("state")
    attack = "a\n\nevent: over\ndata: <script>alert(1)</script>\r\rid: 1\u2028event: over"

    held.report(progress_step=attack)
    assert state(stream, "alert").count("<script") == 0
    failed(held, attack)

    assert [event.name for event in stream.rest()] == ["over"]
    assert stream.body.decode().count("\nevent: over") == 1


def test_an_event_ends_where_it_ends_for_every_kind_of_line() -> None:
    frames = [("state", "a\rb\r\nc\n\n\u2028d"), ("over", "")]

    assert views.encoded(frames).decode() == (
        "event: state\ndata: a\ndata: b\ndata: c\ndata: \ndata: \u2028d\n\nevent: over\ndata: \n\n"
    )


def test_a_long_silence_is_broken_for_proxies(
    open_stream: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(views, "KEEP_ALIVE_SECONDS", 0.2)
    held = claimed(probe())
    stream = open_stream(held)
    stream.next("state")
    for _ in range(2):
        stream.next("comment")

    held.report(progress_pct=50)

    state(stream, 'value="50"')


def test_a_wrong_token_opens_no_stream(open_stream: Open) -> None:
    assert open_stream(probe(), "wrong").answered().status == 404


def test_who_leaves_is_not_read_for(open_stream: Open) -> None:
    held = claimed(probe())
    streams = [open_stream(held) for _ in range(3)]
    for stream in streams:
        stream.next("state")
    assert len(hub.all()) == 1, "all who watch a job share one reader"

    for stream in streams:
        stream.leave()

    wait_for(lambda: hub.all() == [])


def test_streams_end_when_the_process_is_to_stop(
    open_stream: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hub, "closing", False)
    stream = open_stream(claimed(probe()))
    stream.next("state")

    hub.close_all()

    assert stream.rest() == []
