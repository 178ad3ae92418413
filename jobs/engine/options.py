"""What a task may say about how it is run: `@job_options(…)` under `@task`.

The options are kept on the function itself, where other backends do not look.
"""

import inspect
import string
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, NoReturn, TypeVar

from django.db import DEFAULT_DB_ALIAS
from django.tasks import Task

from jobs.engine.arguments import shown
from jobs.engine.concurrency import KEY_CHARACTERS, keys
from jobs.engine.conf import MOST_ATTEMPTS, MOST_DAYS, config
from jobs.engine.retry import LONGEST_DELAY

ATTRIBUTE = "job_options"

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True, kw_only=True)
class JobOptions:
    """None is what is not said. Raises TypeError or ValueError, which names the option."""

    max_attempts: int | None = None
    """How often it may start."""
    backoff: float | Callable[[int], float] | None = None
    """Seconds to wait after attempt n: a base, of which the n-th power is taken, or f(n)."""
    max_running_seconds: float | None = None
    unique: bool | str | Callable[..., str] | None = None
    """At most one pending or running call: with these arguments (True), or with this key."""
    concurrency: tuple[str, int] | Callable[..., Mapping[str, int]] | None = None
    """(key, at most so many at once), or a function of the arguments that returns {key: limit}."""
    retention: float | None = None
    """Days for which the ended job is kept, at most 36,500."""
    atomic: bool | None = None
    """The task and its completion are one transaction."""

    def __post_init__(self) -> None:
        for name, check in _CHECKS.items():
            value = getattr(self, name)
            if value is not None:
                check(name, value)

    def over(self, below: "JobOptions") -> "JobOptions":
        """These options, and those of `below` where these say nothing."""
        return replace(below, **dict(self.said()))

    def said(self) -> Iterator[tuple[str, Any]]:
        return ((name, value) for name in NAMES if (value := getattr(self, name)) is not None)

    def check_function(self, function: Callable[..., Any], *, takes_context: bool = False) -> None:
        """Raise TypeError or ValueError where these options do not go with that function."""
        for name, text in self._formats():
            _check_format(name, text, function, takes_context)
        if self.atomic and inspect.iscoroutinefunction(function):
            raise TypeError(
                f"atomic: {function.__qualname__} is a coroutine function, and Django has no "
                "transactions for those."
            )
        self.check_atomic()

    def check_atomic(self) -> None:
        """Raise ValueError for an atomic task that may run for long, or whose job is elsewhere."""
        if self.atomic and config().database != DEFAULT_DB_ALIAS:
            raise ValueError(
                f"atomic: jobs live in DATABASES[{config().database!r}] (JOBS['DATABASE']), so "
                "what a task writes to the default database is not in the transaction that "
                "completes it."
            )
        if self.atomic and (self.max_running_seconds or 0) > longest_atomic():
            raise ValueError(
                f"max_running_seconds of an atomic task is at most {longest_atomic():g} (a third "
                f"of the lease), not {self.max_running_seconds:g}: its transaction keeps others "
                "waiting."
            )

    def _formats(self) -> Iterator[tuple[str, str]]:
        if isinstance(self.unique, str):
            yield "unique", self.unique
        if isinstance(self.concurrency, tuple):
            yield "concurrency", self.concurrency[0]

    def limit_seconds(self) -> float:
        """The time limit of one attempt."""
        limit = self.max_running_seconds or config().max_running_seconds
        return min(limit, longest_atomic()) if self.atomic else limit


NAMES = tuple(field.name for field in fields(JobOptions))


def longest_atomic() -> float:
    return config().lease_seconds / 3


def job_options(*misused: Any, **options: Any) -> Callable[[F], F]:
    """Give a task options of this engine; stands under `@task`, on the function itself."""
    if misused:
        raise TypeError("@job_options takes options by name, as in @job_options(max_attempts=5).")
    said = make_options(options, where="@job_options")

    def mark(function: F) -> F:
        if isinstance(function, Task):
            raise TypeError(
                f"@job_options on the task {function.name}: write it under @task, on the function."
            )
        if not inspect.isfunction(function):
            raise TypeError(f"@job_options stands on a function, not on {function!r}.")
        more = said.over(options_on(function))
        more.check_function(function)
        setattr(function, ATTRIBUTE, more)
        return function

    return mark


def options_on(function: Callable[..., Any]) -> JobOptions:
    """What `@job_options` said on a function."""
    found = getattr(function, ATTRIBUTE, None)
    return found if isinstance(found, JobOptions) else JobOptions()


def make_options(given: Mapping[str, Any], *, where: str) -> JobOptions:
    """JobOptions, or TypeError for a name that is none; `where` says who gave them."""
    if not isinstance(given, Mapping):
        raise TypeError(f"{where} takes options by name, not {given!r}.")
    unknown = ", ".join(sorted(map(str, set(given) - set(NAMES))))
    if unknown:
        raise TypeError(f"{where} has no option {unknown}. Options: {', '.join(NAMES)}.")
    return JobOptions(**given)


# One check for each option.


def _refuse(error: type[Exception], name: str, allowed: str, value: object) -> NoReturn:
    raise error(f"{name} must be {allowed}, not {shown(value)}.")


def _whole(name: str, value: Any) -> None:
    allowed = f"a whole number from 1 to {MOST_ATTEMPTS}"
    if not isinstance(value, int) or isinstance(value, bool):
        _refuse(TypeError, name, allowed, value)
    if not 1 <= value <= MOST_ATTEMPTS:
        _refuse(ValueError, name, allowed, value)


def _positive(
    name: str,
    value: Any,
    allowed: str = "a number above 0",
    most: float = sys.float_info.max,
) -> None:
    if not isinstance(value, int | float) or isinstance(value, bool):
        _refuse(TypeError, name, allowed, value)
    if not 0 < value <= most:
        _refuse(ValueError, name, allowed, value)


def _days(name: str, value: Any) -> None:
    allowed = f"a number above 0 and at most {MOST_DAYS}"
    _positive(name, value, allowed, MOST_DAYS)


def _backoff(name: str, value: Any) -> None:
    if not callable(value):
        allowed = f"a number above 0 and at most {LONGEST_DELAY:.0f}, or a function of the attempt's number"
        _positive(name, value, allowed, LONGEST_DELAY)


def _flag(name: str, value: Any) -> None:
    if not isinstance(value, bool):
        _refuse(TypeError, name, "True or False", value)


def _unique(name: str, value: Any) -> None:
    allowed = "True, text such as 'report-{year}', or a function of the arguments"
    if not isinstance(value, bool | str) and not callable(value):
        _refuse(TypeError, name, allowed, value)
    if value == "":
        _refuse(ValueError, name, allowed, value)
    if isinstance(value, str):
        _names_in(name, value)


def _concurrency(name: str, value: Any) -> None:
    allowed = "(key, limit) such as ('host:{host}', 2), or a function that returns {key: limit}"
    if callable(value):
        return
    if not isinstance(value, tuple) or len(value) != 2:
        _refuse(TypeError, name, allowed, value)
    key, limit = value
    if not isinstance(key, str) or not isinstance(limit, int) or isinstance(limit, bool):
        _refuse(TypeError, name, allowed, value)
    _names_in(name, key)
    words = "".join(literal for literal, *_ in string.Formatter().parse(key))
    try:
        # What stands in the braces is not known yet.
        if len(keys({words or "…": limit})) > KEY_CHARACTERS:
            raise ValueError(f"the key and its limit have at most {KEY_CHARACTERS} characters.")
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None


_CHECKS: Mapping[str, Callable[[str, Any], None]] = {
    "max_attempts": _whole,
    "backoff": _backoff,
    "max_running_seconds": _positive,
    "unique": _unique,
    "concurrency": _concurrency,
    "retention": _days,
    "atomic": _flag,
}


def _check_format(
    option: str, text: str, function: Callable[..., Any], takes_context: bool
) -> None:
    """Raise ValueError unless each {name} in the text is an argument of the function."""
    parameters = list(inspect.signature(function).parameters.values())[int(takes_context) :]
    known = [p.name for p in parameters if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
    open_end = any(p.kind is p.VAR_KEYWORD for p in parameters)
    for name in _names_in(option, text):
        if not name.isidentifier() or not (name in known or open_end):
            raise ValueError(
                f"{option}: {text!r} names {{{name}}}, which is no argument of "
                f"{function.__qualname__}. Arguments: {', '.join(known) or 'none'}."
            )


def _names_in(option: str, text: str) -> list[str]:
    """The arguments that a format names, in the width and precision of others too."""
    try:
        found = list(_fields_of(text, depth=2))
    except ValueError as error:
        raise ValueError(f"{option}: {text!r} is no format: {error}.") from None
    return [name.partition(".")[0].partition("[")[0] for name in found]


def _fields_of(text: str, *, depth: int) -> Iterator[str]:
    for _, name, spec, conversion in string.Formatter().parse(text):
        if name is None:
            continue
        if not depth:
            raise ValueError("braces stand in braces only once")
        if conversion not in (None, "r", "s", "a"):
            raise ValueError(f"there is no conversion !{conversion}, only !r, !s and !a")
        yield name
        yield from _fields_of(spec or "", depth=depth - 1)
