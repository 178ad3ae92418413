"""Tasks that do what a test tells them to."""

import asyncio
import contextlib
import decimal
import os
import threading
import time
from contextvars import ContextVar
from typing import Any

from asgiref.sync import sync_to_async
from django.db import DatabaseError, connection, transaction
from django.tasks import TaskContext, task
from django.utils import timezone
from django.utils.translation import activate, get_language

from jobs.engine.tasks import (
    Failed,
    JobContext,
    Permanent,
    RetryAfter,
    Snooze,
    job_options,
)
from tests.kinds.models import Effect

WORD: ContextVar[str] = ContextVar("word", default="")


def effect(job: Any) -> None:
    Effect.objects.create(job=job.pk, attempt=job.attempts, process=os.getpid())


@task
def noop(*args: Any, **kwargs: Any) -> None:
    return None


@task()
async def noop_async(*args: Any, **kwargs: Any) -> None:
    return None


@task
def add(a: int, b: int = 0) -> int:
    return a + b


@task(queue_name="mail", priority=7)
def mailed() -> str:
    return "sent"


@task
def fail(text: str = "no luck") -> None:
    raise ValueError(text)


@task
def leave() -> None:
    raise SystemExit("gone")


@task
def fail_plainly() -> None:
    raise Failed("the shop is closed")


@task
def fail_for_good() -> None:
    raise Permanent("it will never work")


@task
def come_back(seconds: float) -> None:
    raise RetryAfter(seconds)


@task(takes_context=True)
def snooze_once(context: JobContext) -> int:
    if not context.job.attempt_log:
        raise Snooze(3600)
    return context.attempt


@task
def snooze_for_ever() -> None:
    raise Snooze(3600)


@task(takes_context=True)
def break_the_database(context: JobContext, swallow: bool) -> str:
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1 FROM nowhere")
    except DatabaseError:
        if not swallow:
            raise
    return "went on"


@task
def spoil_the_transaction() -> None:
    transaction.set_rollback(True)


@task(takes_context=True)
def log_a_number(context: JobContext) -> None:
    context.log(123)  # type: ignore[arg-type]


@task(takes_context=True)
def fail_until(context: TaskContext, attempt: int) -> int:
    if context.attempt < attempt:
        raise ValueError(f"attempt {context.attempt}")
    return context.attempt


@task
def return_set() -> Any:
    return {1, 2}


@task
def return_bytes_and_tuple() -> Any:
    return b"bytes", ("a", 1)


@task
def return_much() -> Any:
    return "x" * 2_000_000


@task(takes_context=True)
@job_options(atomic=True, max_attempts=1)
def write_and_return(context: JobContext, what: str) -> Any:
    assert connection.in_atomic_block
    effect(context.job)
    if what == "fail":
        raise ValueError("after the effect")
    return {1} if what == "set" else what


@task(takes_context=True)
def tell_all(context: JobContext) -> str:
    context.report(done=1, total=2, step="halfway")
    context.log("a line")
    context.check()
    program = context.subprocess(["true"])
    program.wait()
    assert str(context.job.pk) == context.task_result.id
    return f"{context.task_result.status} {context.attempt}"


@task(takes_context=True)
def tell_anybody(context: TaskContext) -> str:
    context = JobContext.of(context)
    context.report(50, step="halfway")
    context.check()
    context.log("a line")
    return f"attempt {context.attempt}"


@task(takes_context=True)
def ask_for_the_job(context: TaskContext) -> str:
    return str(JobContext.of(context).job)


@task(takes_context=True)
def ask_for_a_program(context: TaskContext) -> None:
    JobContext.of(context).subprocess(["true"])


@task(takes_context=True)
def wait_politely(context: JobContext) -> None:
    effect(context.job)
    while True:
        context.check()
        time.sleep(0.02)


@task(takes_context=True)
def wait_politely_at(context: JobContext, path: str) -> None:
    """Until the file is there; takes it away."""
    effect(context.job)
    while not os.path.exists(path):
        context.check()
        time.sleep(0.02)
    os.unlink(path)


@task(takes_context=True)
def die(context: JobContext) -> str:
    effect(context.job)
    if context.attempt == 1:
        os._exit(9)
    return f"{os.getpid()}"


@task
@job_options(
    max_attempts=5,
    backoff=lambda attempt: attempt * 1000,
    max_running_seconds=40,
    unique="report-{year}",
    concurrency=("host:{host}", 2),
    retention=90,
)
def report(year: int, *, host: str = "here") -> int:
    return year


@task
@job_options(unique=True)
def once(a: int, b: int = 2, *more: int, **named: int) -> int:
    return a


@task
@job_options(
    unique=lambda a, **_named: f"a{a}",
    concurrency=lambda a, **_named: {f"a:{a}": 1, "all": 3},
)
def keyed(a: int, **_named: int) -> int:
    return a


@task(max_attempts=4, retention=2)
@job_options(max_attempts=9, max_running_seconds=33)
def by_keyword() -> None:
    return None


@task(unique=lambda: "word", backoff=lambda attempt: 11.0)
def by_keyword_functions() -> None:
    raise ValueError("again")


@task(backend="patient")
def patient() -> None:
    raise ValueError("again")


@task(backend="patient")
@job_options(max_attempts=2)
def less_patient() -> None:
    return None


@task
@job_options(backoff=lambda _attempt: "soon")  # type: ignore[arg-type,return-value]
def odd_backoff() -> None:
    raise ValueError("again")


@task
def renamed() -> str:
    return "found"


def plain(number: int) -> int:
    return -number


async def plain_async(number: int) -> int:
    return -number


def settings_of_the_thread() -> list[str]:
    return [
        *(get_language() or "", timezone.get_current_timezone_name()),
        *(str(decimal.getcontext().prec), WORD.get()),
    ]


@task
def change_settings_of_the_thread() -> list[str]:
    """Returns what it found."""
    found = settings_of_the_thread()
    activate("de")
    timezone.activate("Asia/Tokyo")
    decimal.getcontext().prec = 3
    WORD.set("left over")
    assert settings_of_the_thread() == ["de", "Asia/Tokyo", "3", "left over"]
    return found


@task(atomic=True)
def change_settings_atomically() -> list[str]:
    found: list[str] = change_settings_of_the_thread.func()
    return found


# Coroutines.

together = 0
most_together = 0


@task(takes_context=True)
async def tell_async(context: JobContext, number: int) -> dict[str, Any]:
    WORD.set(str(number))
    context.report(done=1, total=2, step="halfway")
    await asyncio.sleep(0)
    await Effect.objects.acreate(job=context.job.pk, attempt=context.attempt)
    thread = await sync_to_async(threading.get_ident)()
    return {"word": WORD.get(), "loop": threading.current_thread().name, "thread": thread}


@task(takes_context=True)
async def meet(context: JobContext, path: str) -> None:
    """Until the file is there; counts how many do so at the same time."""
    global together, most_together
    together += 1
    most_together = max(most_together, together)
    await sync_to_async(effect)(context.job)
    try:
        while not os.path.exists(path):
            await asyncio.sleep(0.01)
    finally:
        together -= 1


@task
async def fail_async() -> None:
    raise ValueError("no luck")


@task
async def leave_async() -> None:
    raise SystemExit("gone")


@task
async def cancel_oneself() -> None:
    raise asyncio.CancelledError


@task(takes_context=True)
async def wait_async(context: JobContext, path: str) -> None:
    """For ever; leaves a file when it is cancelled."""
    await sync_to_async(effect)(context.job)
    try:
        await asyncio.sleep(600)
    finally:
        await asyncio.sleep(0)
        with open(path, "w") as file:
            file.write("tidied up")


@task(takes_context=True)
@job_options(max_running_seconds=0.5, max_attempts=1)
async def wait_too_long(context: JobContext) -> None:
    await sync_to_async(effect)(context.job)
    await asyncio.sleep(600)


@task(takes_context=True)
@job_options(max_running_seconds=0.5, max_attempts=1)
async def swallow(context: JobContext, path: str) -> None:
    await sync_to_async(effect)(context.job)
    while not os.path.exists(path):
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(0.05)


@task(takes_context=True)
@job_options(max_running_seconds=0.5, max_attempts=1)
async def block_the_loop(context: JobContext, path: str) -> None:
    await sync_to_async(effect)(context.job)
    while not os.path.exists(path):
        time.sleep(0.02)


@task
async def in_a_thread() -> int:
    def count() -> int:
        return Effect.objects.count()

    return await asyncio.to_thread(count)


@task
async def shut_the_threads_down() -> None:
    loop = asyncio.get_running_loop()
    await asyncio.to_thread(time.sleep, 0)
    await loop.shutdown_default_executor()


@task
@job_options(max_running_seconds=0.5, max_attempts=1)
async def hang_in_threads(number: int) -> None:
    await asyncio.gather(*(asyncio.to_thread(time.sleep, 600) for _ in range(number)))


@task
async def sleep_in_a_thread() -> None:
    await asyncio.to_thread(time.sleep, 600)
