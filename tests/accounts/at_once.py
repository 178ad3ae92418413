"""Things that happen at the same time."""

import threading
from collections.abc import Callable

from django.db import connections


def at_once[T](*calls: Callable[[], T]) -> list[T]:
    """What the calls return, made in as many threads that start together."""
    together = threading.Barrier(len(calls))
    answers: list[T] = []

    def run(call: Callable[[], T]) -> None:
        together.wait()
        try:
            answers.append(call())
        finally:
            connections.close_all()

    threads = [threading.Thread(target=run, args=(call,)) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return answers
