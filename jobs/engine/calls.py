"""From the dotted path in a row to the function, its task and options; from a call to a row."""

import hashlib
import inspect
import json
import string
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.tasks import DEFAULT_TASK_BACKEND_ALIAS, DEFAULT_TASK_QUEUE_NAME, Task, task_backends
from django.utils.connection import ConnectionDoesNotExist
from django.utils.module_loading import import_string

from jobs.engine.concurrency import KEY_CHARACTERS, keys
from jobs.engine.conf import config
from jobs.engine.options import JobOptions, options_on
from jobs.engine.retry import Permanent
from jobs.engine.tasks import AnyTask, said_by


@dataclass(frozen=True, slots=True)
class Callee:
    """What a row calls: a function, and the task that was made of it, if any was."""

    path: str
    function: Callable[..., Any]
    task: AnyTask | None = None

    @property
    def takes_context(self) -> bool:
        return self.task is not None and self.task.takes_context

    def options(self, alias: str) -> JobOptions:
        """Keywords of `@task` over `@job_options` over the OPTIONS of that alias of TASKS."""
        said = options_on(self.function) if self.task is None else said_by(self.task)
        return said.over(options_of_alias(alias))


def find(path: str) -> Callee:
    """What is at a dotted path; raises Permanent."""
    try:
        found = import_string(path)
    except ImportError as error:
        raise Permanent(f"Unknown task {path}.") from error
    if isinstance(found, Task):
        return Callee(path, found.func, found)
    if not inspect.isroutine(found):
        raise Permanent(f"{path} is not a function that can be called as a task.")
    return Callee(path, found)


def options_of_alias(alias: str) -> JobOptions:
    """The OPTIONS of an alias in TASKS; none where it is no alias of this engine."""
    try:
        backend = task_backends[alias]
    except (ConnectionDoesNotExist, ImproperlyConfigured):
        return JobOptions()
    found = getattr(backend, "job_options", None)
    return found if isinstance(found, JobOptions) else JobOptions()


def is_ours(alias: str) -> bool:
    """Whether an alias in TASKS is one of this engine."""
    try:
        return hasattr(task_backends[alias], "job_options")
    except (ConnectionDoesNotExist, ImproperlyConfigured):
        return False


# Columns.


def columns_of(callee: Callee, options: JobOptions, *, alias: str) -> dict[str, Any]:
    """The columns that are the same for all calls of a task."""
    task = callee.task
    return {
        "task": callee.path,
        "backend": alias,
        "queue_name": DEFAULT_TASK_QUEUE_NAME if task is None else task.queue_name,
        "priority": 0 if task is None else int(task.priority),
        "max_attempts": options.max_attempts or config().max_attempts,
        "max_running_seconds": options.limit_seconds(),
        "keep_days": options.retention,
    }


def keys_of(
    callee: Callee, options: JobOptions, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> dict[str, Any]:
    """The key columns of one call; raises TypeError or ValueError, which names the option."""
    key = _unique_key(callee, options, args, kwargs)
    limits = _limits(callee, options, args, kwargs)
    try:
        column = keys(limits)
    except ValueError as error:
        raise ValueError(f"concurrency of {callee.path}: {error}") from None
    if len(column) > KEY_CHARACTERS:
        raise ValueError(
            f"concurrency of {callee.path}: its keys have {len(column)} characters; "
            f"{KEY_CHARACTERS} are allowed."
        )
    return {"unique_key": key, "concurrency_key": column}


FILLED = (
    *("backend", "queue_name", "priority", "max_attempts", "max_running_seconds", "keep_days"),
    *("unique_key", "concurrency_key"),
)


def completed(columns: Mapping[str, Any]) -> dict[str, Any]:
    """The columns of a new row, and those that its task says where they are missing.

    A path that leads nowhere is no fault yet: the worker may know it, and says so if not.
    """
    path = columns.get("task")
    if not isinstance(path, str) or all(name in columns for name in FILLED):
        return dict(columns)
    try:
        callee = find(path)
    except Exception:
        return dict(columns)
    alias = columns.get("backend") or _home(callee)
    payload = columns.get("payload") or {}
    try:
        options = callee.options(alias)
    except ImproperlyConfigured as error:
        raise ValueError(str(error)) from error
    said = columns_of(callee, options, alias=alias)
    if not {"unique_key", "concurrency_key"} <= set(columns):
        said |= keys_of(callee, options, payload.get("args", []), payload.get("kwargs", {}))
    return {**said, **columns}


def _home(callee: Callee) -> str:
    alias = None if callee.task is None else callee.task.backend
    return alias if alias and is_ours(alias) else DEFAULT_TASK_BACKEND_ALIAS


# Keys from arguments.


def _unique_key(
    callee: Callee, options: JobOptions, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> str | None:
    match options.unique:
        case None | False:
            return None
        case True:
            key = _fingerprint(callee, args, kwargs)
        case str():
            key = _filled(callee, "unique", options.unique, args, kwargs)
        case function:
            key = _asked(callee, "unique", function, args, kwargs)
            if not isinstance(key, str) or not key:
                raise TypeError(f"unique of {callee.path} must return text, not {key!r}.")
    # The path makes keys of different tasks differ, as two may have chosen the same words.
    whole = f"{callee.path}:{key}"
    if len(whole) <= KEY_CHARACTERS:
        return whole
    digest = hashlib.sha256(whole.encode("utf-8", "surrogatepass")).hexdigest()
    return f"{whole[: KEY_CHARACTERS - len(digest) - 1]}:{digest}"


def _limits(
    callee: Callee, options: JobOptions, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> Mapping[str, int]:
    match options.concurrency:
        case None:
            return {}
        case (text, limit):
            return {_filled(callee, "concurrency", text, args, kwargs): limit}
        case function:
            limits = _asked(callee, "concurrency", function, args, kwargs)
    right = isinstance(limits, Mapping) and all(
        isinstance(key, str) and isinstance(limit, int) and not isinstance(limit, bool)
        for key, limit in limits.items()
    )
    if not right:
        raise TypeError(f"concurrency of {callee.path} must return {{key: limit}}, not {limits!r}.")
    return dict(limits)


def _asked(
    callee: Callee,
    option: str,
    function: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
) -> Any:
    try:
        return function(*args, **kwargs)
    except Exception as error:
        raise ValueError(
            f"{option} of {callee.path} cannot be made: {type(error).__name__}: {error}"
        ) from error


def _filled(
    callee: Callee, option: str, text: str, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> str:
    arguments = _bound(callee, args, kwargs)
    try:
        return string.Formatter().vformat(text, (), arguments)
    except Exception as error:
        raise ValueError(
            f"{option} of {callee.path}: {text!r} cannot be filled: {type(error).__name__}: {error}"
        ) from error


def _bound(
    callee: Callee, args: Sequence[Any], kwargs: Mapping[str, Any], *, defaults: bool = True
) -> dict[str, Any]:
    """{name: value} of a call; raises TypeError for one that the function cannot take."""
    signature = inspect.signature(callee.function)
    parameters = list(signature.parameters.values())[int(callee.takes_context) :]
    try:
        bound = signature.replace(parameters=parameters).bind(*args, **kwargs)
    except TypeError as error:
        raise TypeError(f"{callee.path}: {error}.") from None
    if defaults:
        bound.apply_defaults()
    more = [p.name for p in parameters if p.kind is p.VAR_KEYWORD]
    return {**bound.arguments, **bound.arguments.get(more[0] if more else "", {})}


def _fingerprint(callee: Callee, args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
    """The same for equal arguments, however they were given."""
    try:
        arguments: Any = _bound(callee, args, kwargs)
    except (TypeError, ValueError):
        # A call that the function cannot take, or one that does not tell: as it stands.
        arguments = [list(args), dict(kwargs)]
    # A default need not be JSON; what it is, is the same for all calls.
    text = json.dumps(arguments, sort_keys=True, default=lambda value: type(value).__qualname__)
    return hashlib.sha256(text.encode()).hexdigest()
