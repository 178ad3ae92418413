"""When a job runs again, and the exceptions by which a handler has a say in it. Pure."""

import math
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

LONGEST_DELAY = 30 * 24 * 3600.0


def bounded(seconds: float) -> float:
    """A delay that a database can add to its clock: not negative, a month at the most."""
    # The number may come from another server; what is no number means at once.
    return min(max(0.0, seconds), LONGEST_DELAY) if seconds == seconds else 0.0


class Failed(Exception):
    """This attempt failed for a reason that is told to a person as it stands."""


class Permanent(Failed):
    """Trying again cannot cure it: the job fails now."""


class RetryAfter(Failed):
    """The other side said when to come back; a month at the most. Spends an attempt."""

    def __init__(self, seconds: float, reason: str = "") -> None:
        super().__init__(reason or f"Asked to come back in {seconds:g} seconds.")
        self.seconds = bounded(seconds)


class InDoubt(RetryAfter):
    """Only another attempt can say what this one did: there is one, even if none was left.

    Its number is `max_attempts` + 1, by which it knows that it is to find out and do no more.
    """


class Snooze(Exception):
    """Not now: run again in `seconds`, a month at the most. Spends no attempt."""

    def __init__(self, seconds: float, reason: str = "") -> None:
        super().__init__(reason or f"Snoozed for {seconds:g} seconds.")
        self.seconds = bounded(seconds)


class Stopped(BaseException):
    """The run is asked to end. Not an Exception, so that a handler's own `except` lets it pass."""


class Cancelled(Stopped):
    """A person cancelled the job."""


class TimedOut(Stopped):
    """The job ran longer than it may."""


class Released(Stopped):
    """The worker is leaving; the job goes back as if this attempt had not been."""


class WorkerLost(Exception):
    """The worker died in this attempt. Nobody raises it: it is what the history says."""


class Lost(Stopped):
    """Another attempt owns the row, or the row is gone: this run's word counts no more."""


Verb = Literal["complete", "retry_later", "fail", "snooze", "cancelled", "release", "drop"]


@dataclass(frozen=True, slots=True)
class Decision:
    """The verb that ends an attempt, and after how many seconds the job is due again."""

    verb: Verb
    delay: float = 0


def backoff(attempt: int, *, base: float, cap: float, jitter: float = 0.1) -> float:
    """Seconds to wait after attempt number `attempt`: base^attempt up to `cap`, ± `jitter`."""
    # By logarithms, since the power may overflow.
    if base <= 1:
        wait = min(cap, base)
    elif attempt * math.log(base) >= math.log(cap):
        wait = cap
    else:
        wait = min(cap, base**attempt)
    return wait * random.uniform(1 - jitter, 1 + jitter)  # noqa: S311


def decide(
    error: BaseException, *, attempt: int, max_attempts: int, wait: Callable[[int], float]
) -> Decision:
    """What follows from how a handler ended; `wait` is the back-off of its kind."""
    match error:
        case Lost():
            return Decision("drop")
        case Cancelled():
            return Decision("cancelled")
        case Released():
            return Decision("release")
        case Snooze():
            return Decision("snooze", error.seconds)
        case Permanent():
            return Decision("fail")
    if attempt >= max_attempts + isinstance(error, InDoubt):
        return Decision("fail")
    if isinstance(error, RetryAfter):
        return Decision("retry_later", error.seconds)
    return Decision("retry_later", bounded(wait(attempt)))
