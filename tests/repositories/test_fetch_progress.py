"""The bar of a fetch: monotone, bounded, and not to be moved by what a server says."""

import itertools
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from repositories.fetch_progress import MAX_LINE, FetchProgress, Step

FETCH = (
    b"remote: Enumerating objects: 57831, done.        \n"
    b"remote: Counting objects:  50% (28915/57831)        \r"
    b"remote: Counting objects: 100% (57831/57831), done.        \n"
    b"remote: Compressing objects: 100% (12431/12431), done.        \n"
    b"Receiving objects:   0% (1/57831)\r"
    b"Receiving objects:  50% (28916/57831), 16.40 MiB | 32.80 MiB/s\r"
    b"remote: Total 57831 (delta 45025), reused 0 (delta 0)        \n"
    b"Receiving objects: 100% (57831/57831), 34.54 MiB | 36.62 MiB/s, done.\n"
    b"Resolving deltas:  50% (22512/45025)\r"
    b"Resolving deltas: 100% (45025/45025), done.\n"
    b"From https://example.org/a\n * [new branch]      main -> main\n"
)


def steps(*pieces: bytes) -> list[Step]:
    progress = FetchProgress()
    found = [step for piece in pieces for step in progress.feed(piece)]
    return [*found, *progress.close()]


def cut(data: bytes, places: list[int]) -> list[bytes]:
    edges = [0, *sorted(place % (len(data) + 1) for place in places), len(data)]
    return [data[start:end] for start, end in itertools.pairwise(edges)]


def test_each_phase_has_its_part_of_the_bar():
    told = [(step.percent, step.key) for step in steps(FETCH)]

    assert told == [
        (2, "preparing"),
        (4, "counting"),
        (6, "counting"),
        (10, "compressing"),
        (10, "receiving"),
        (42, "receiving"),
        (75, "receiving"),
        (84, "resolving"),
        (95, "resolving"),
    ]


def test_counters_bytes_and_rate_come_with_the_step():
    half = next(step for step in steps(FETCH) if step.percent == 42)

    assert (half.done, half.total) == (28916, 57831)
    assert half.received_bytes == int(16.40 * 1024**2)
    assert half.bytes_per_second == int(32.80 * 1024**2)


def test_the_received_bytes_stay_while_deltas_are_resolved():
    last = steps(FETCH)[-1]

    assert last.received_bytes == int(34.54 * 1024**2)
    assert last.bytes_per_second is None


@pytest.mark.parametrize(
    "line",
    [
        b"remote: Receiving objects:  99% (99/100)\n",
        b"remote: Resolving deltas: 100% (9/9), done.\n",
        b"remote: remote: Receiving objects:  99% (99/100)\n",
        b" Receiving objects:  99% (99/100)\n",
        b"xReceiving objects:  99% (99/100)\n",
        b"Updating files: 100% (9/9)\n",
        b"Receiving objects: 99%\n",
        b"Receiving objects: \xff% (1/2)\n",
    ],
)
def test_a_line_that_is_not_gits_own_progress_moves_nothing(line):
    assert steps(line) == []


def test_a_server_that_talks_while_git_receives_changes_neither_step_nor_bytes():
    told = steps(
        b"Receiving objects:  10% (1/10), 5 bytes | 5 bytes/s\r",
        b"remote: Compressing objects: 100% (9/9), 99.00 GiB | 99.00 GiB/s\n",
    )

    assert [(step.key, step.received_bytes) for step in told] == [("receiving", 5)]


def test_a_count_that_is_wrong_stays_inside_its_phase():
    told = steps(b"Receiving objects: 900% (900/100)\r", b"Resolving deltas: 0% (0/0)\r")

    assert [step.percent for step in told] == [75, 75]


def test_the_last_words_are_kept_apart_by_who_said_them():
    progress = FetchProgress()
    list(progress.feed(FETCH + b"remote: go away\nfatal: early EOF"))
    list(progress.close())

    assert list(progress.own_lines) == [b"fatal: early EOF"]
    assert progress.remote_lines[-1] == b"remote: go away"


def test_a_line_without_end_does_not_fill_the_memory():
    progress = FetchProgress()
    tracemalloc.start()
    for _ in range(2000):
        list(progress.feed(b"x" * 64 * 1024))
    _now, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    list(progress.feed(b"\n"))

    assert peak < 2 * 1024**2
    assert len(progress.own_lines[-1]) == MAX_LINE


@given(st.lists(st.integers(min_value=0), max_size=60))
def test_any_chunking_tells_the_same(places):
    assert steps(*cut(FETCH, places)) == steps(FETCH)


REAL_LINES = st.sampled_from([line for line in FETCH.replace(b"\r", b"\n").split(b"\n") if line])
NUMBERS = st.integers(min_value=0, max_value=10**20)
PHASES = st.sampled_from(
    ["Receiving objects", "Resolving deltas", "Counting objects", "Compressing objects", "Nonsense"]
)


@st.composite
def forged_lines(draw: st.DrawFn) -> bytes:
    phase, done, total = draw(PHASES), draw(NUMBERS), draw(NUMBERS)
    return f"{phase}: {done % 1000}% ({done}/{total}), {done} MiB | {total} GiB/s".encode()


@given(st.lists(st.one_of(REAL_LINES, forged_lines(), st.binary(max_size=80)), max_size=60))
def test_the_bar_never_goes_back_and_never_reaches_the_end(lines):
    percents = [step.percent for step in steps(b"\r".join(lines))]

    assert percents == sorted(percents)
    assert all(0 <= percent <= 95 for percent in percents)


@given(st.lists(st.one_of(forged_lines(), st.binary(max_size=80)), max_size=60))
def test_words_of_the_server_never_pass_a_tenth(lines):
    said = b"".join(
        b"remote: " + line.replace(b"\r", b"").replace(b"\n", b"") + b"\n" for line in lines
    )

    assert all(step.percent <= 10 for step in steps(said))


@given(st.binary(max_size=6000), st.lists(st.integers(min_value=0), max_size=20))
def test_any_bytes_are_read_the_same_however_they_come(data, places):
    whole, pieces = FetchProgress(), FetchProgress()
    first = [*whole.feed(data), *whole.close()]
    second = [step for piece in cut(data, places) for step in pieces.feed(piece)]
    second += pieces.close()

    assert first == second
    assert whole.own_lines == pieces.own_lines
