"""What a job of the tests may be told to do.

Each takes the run, or the context that a task has in place of it, and the argument of its job.
"""

import ctypes
import os
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from django.db import transaction

from jobs.engine.lifecycle import LostClaim
from jobs.engine.retry import Failed, Lost, Permanent, Released, RetryAfter, Snooze

DIRT = "\x00\x1b[31m\ud800" + "x" * 5_000_000


def play(script: str, run: Any, argument: str) -> Any:
    """Do what the script of this name says; raises AttributeError where there is none."""
    return getattr(sys.modules[__name__], script)(run, argument)


def nothing(run: Any, argument: str) -> None:
    pass


def effect(run: Any, argument: str) -> None:
    from tests.kinds.models import Effect

    Effect.objects.create(job=run.job.pk, attempt=run.attempt, process=os.getpid())


def fail(run: Any, argument: str) -> None:
    raise ValueError(argument or "no luck")


def fail_plainly(run: Any, argument: str) -> None:
    raise Failed(argument)


def fail_once(run: Any, argument: str) -> None:
    if run.attempt == 1:
        raise Failed("the first time always fails")
    effect(run, argument)


def fail_for_good(run: Any, argument: str) -> None:
    raise Permanent("it will never work")


def come_back(run: Any, argument: str) -> None:
    raise RetryAfter(float(argument))


def snooze(run: Any, argument: str) -> None:
    raise Snooze(float(argument), "not yet")


def exit(run: Any, argument: str) -> None:  # noqa: A001
    sys.exit(3)


def tarry(run: Any, argument: str) -> None:
    """Long enough for others to die beside it."""
    effect(run, argument)
    time.sleep(0.1)


def die(run: Any, argument: str) -> None:
    effect(run, argument)
    os._exit(9)


def wait_politely(run: Any, argument: str) -> None:
    """Until it is stopped; the file `argument`, if one is named, says then why."""
    effect(run, argument)
    try:
        while True:
            run.check()
            time.sleep(0.02)
    except BaseException as reason:
        if argument:
            Path(argument).write_text(str(reason))
        raise


def sleep_without_checks(run: Any, argument: str) -> None:
    effect(run, argument)
    for _ in range(1000):
        time.sleep(0.02)


def wait_deafly(run: Any, argument: str) -> None:
    """Until the file `argument` is there, whatever is raised."""
    effect(run, argument)
    while not os.path.exists(argument):
        try:
            time.sleep(0.02)
        except BaseException:
            continue


def wait_for_file(run: Any, argument: str) -> None:
    effect(run, argument)
    while not os.path.exists(argument):
        run.check()
        time.sleep(0.02)


def hold_the_gil(run: Any, argument: str) -> None:
    effect(run, argument)
    ctypes.PyDLL(None).usleep(int(float(argument) * 1_000_000))


def program(run: Any, argument: str) -> None:
    effect(run, argument)
    started = run.subprocess(["sh", "-c", f"sleep 300 & echo $! > {argument}; wait"])
    started.wait()
    run.check()


def report_in_a_transaction(run: Any, argument: str) -> None:
    """Hold a transaction that writes for `argument` seconds, reporting all the time."""
    end = time.monotonic() + float(argument)
    with transaction.atomic():
        effect(run, argument)
        while time.monotonic() < end:
            run.report(step=f"{end - time.monotonic():.1f} s to go")
            time.sleep(0.02)


def log(run: Any, argument: str) -> None:
    run.log("first line")
    run.log(f"dirty \x00 \x1b[31m {argument}")


def log_too_much(run: Any, argument: str) -> None:
    for number in range(300):
        run.log(f"{number} " + "x" * 5_000)


def report(run: Any, argument: str) -> None:
    for done in range(1, 11):
        lines = {"lines": done * 100} if "lines" in run.job.progress_fields else {}
        run.report(done=done, total=10, step=f"step {done}", **lines)
        time.sleep(0.05)
    effect(run, argument)


def speak_dirt(run: Any, argument: str) -> None:
    run.report(1, step=DIRT)
    run.log(DIRT)
    raise ValueError(DIRT)


def tell_when_done(run: Any, argument: str) -> None:
    """Wait for the file `argument`, then make the file `argument`.done."""
    wait_for_file(run, argument)
    Path(f"{argument}.done").touch()


def hang_in_an_executor(run: Any, argument: str) -> None:
    with ThreadPoolExecutor(1) as executor:
        executor.submit(time.sleep, 600).result()


def leave_a_transaction_open(run: Any, argument: str) -> None:
    transaction.atomic().__enter__()
    effect(run, argument)


def raise_what_cannot_be_told(run: Any, argument: str) -> None:
    raise Untellable


def raise_what_is_the_workers(run: Any, argument: str) -> None:
    raise {"LostClaim": LostClaim, "Lost": Lost, "Released": Released}[argument]("my own")


class Untellable(Exception):
    def __str__(self) -> str:
        sys.exit("even that fails")
