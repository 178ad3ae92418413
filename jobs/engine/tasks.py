"""What a module of tasks imports: options, exceptions and the types of this engine's tasks.

    from django.tasks import task
    from jobs.engine.tasks import JobContext, Permanent, job_options

    @task(takes_context=True)
    @job_options(max_attempts=5, unique="report-{year}")
    def report(context: JobContext, year: int) -> None: …

Nothing here needs the models, so that tasks may be declared anywhere.
"""

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, NoReturn, cast

from django.tasks import Task, TaskContext, TaskResult
from django.utils.module_loading import import_string

from jobs.engine.options import NAMES, JobOptions, job_options, options_on
from jobs.engine.retry import Cancelled, Failed, Permanent, RetryAfter, Snooze, WorkerLost

if TYPE_CHECKING:
    from jobs.engine.execution import Run
    from jobs.engine.lifecycle import Job
    from jobs.engine.programs import Process

    AnyTask = Task[Any, Any]
    AnyResult = TaskResult[Any, Any]
    AnyContext = TaskContext[Any, Any]
else:
    AnyTask, AnyResult, AnyContext = Task, TaskResult, TaskContext

__all__ = [
    "Cancelled",
    "Failed",
    "JobContext",
    "JobOptions",
    "JobTask",
    "Permanent",
    "RetryAfter",
    "Snooze",
    "WorkerLost",
    "job_options",
]

Call = tuple[Sequence[Any], Mapping[str, Any]]
"""(args, kwargs)"""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobTask(AnyTask):
    """A task whose options were given to `@task` itself. Only JobsBackend knows those."""

    max_attempts: int | None = None
    backoff: float | Callable[[int], float] | None = None
    max_running_seconds: float | None = None
    unique: bool | str | Callable[..., str] | None = None
    concurrency: tuple[str, int] | Callable[..., Mapping[str, int]] | None = None
    retention: float | None = None
    atomic: bool | None = None

    def __post_init__(self) -> None:
        said = said_by(self)
        if inspect.isfunction(self.func):
            said.check_function(self.func, takes_context=self.takes_context)
        # No super(): a dataclass with slots is another class than the one in which this is written.
        AnyTask.__post_init__(self)

    def enqueue_many(self, calls: Iterable[Call]) -> list[AnyResult]:
        """Enqueue a call for each (args, kwargs), 1,000 to a statement, all or none of them."""
        backend: Any = self.get_backend()
        if hasattr(backend, "enqueue_many"):
            results: list[AnyResult] = backend.enqueue_many(self, calls)
            return results
        return [self.enqueue(*args, **kwargs) for args, kwargs in calls]

    def __reduce__(self) -> tuple[Any, ...]:
        # Functions among the options may be lambdas: they come back with the task at its path.
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        values = {name: value for name, value in values.items() if not callable(value)}
        return type(self)._reconstruct, ({**values, "func": self.module_path},)

    @classmethod
    def _reconstruct(cls, values: dict[str, Any]) -> "JobTask":
        path = values["func"]
        try:
            origin = import_string(path)
            options = {name: getattr(origin, name, None) for name in NAMES}
            functions = {name: value for name, value in options.items() if callable(value)}
            return cls(**{**functions, **values, "func": origin.func})
        except (ImportError, AttributeError) as error:
            raise ValueError(f"Expected {path!r} to point to a Task instance.") from error


def said_by(task: AnyTask) -> JobOptions:
    """What a task says itself: by keywords of `@task`, and where those are silent by `@job_options`."""
    below = options_on(task.func)
    if not isinstance(task, JobTask):
        return below
    return JobOptions(**{name: getattr(task, name) for name in NAMES}).over(below)


class NoRun:
    """In place of the run where another backend calls a task: no row, no worker, nobody who reads."""

    def report(self, percent: float | None = None, **details: Any) -> None:
        pass

    def check(self) -> None:
        pass

    def log(self, line: str) -> None:
        pass

    @property
    def job(self) -> NoReturn:
        raise RuntimeError("Another backend than JobsBackend runs this task: there is no job.")

    def subprocess(self, argv: Sequence[str], **options: Any) -> NoReturn:
        raise RuntimeError(
            "Another backend than JobsBackend runs this task: nothing would end its programs. "
            "Use subprocess.Popen."
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class JobContext(AnyContext):  # type: ignore[misc]  # the stubs do not know that it is frozen
    """What a task with `takes_context` gets: Django's context, and this attempt's run."""

    run: "Run"

    @classmethod
    def of(cls, context: AnyContext) -> "JobContext":
        """This context itself; where another backend gave it, one that reports to nobody."""
        if isinstance(context, cls):
            return context
        return cls(task_result=context.task_result, run=cast("Run", NoRun()))

    @property
    def job(self) -> "Job":
        """The row, as it was claimed."""
        return self.run.job

    def report(self, percent: float | None = None, **details: Any) -> None:
        """Say how far it is: `percent`, or `done` of `total`, and `step` in words.

        Never touches the database, so it is cheap to call often. Raises like `check`.
        """
        self.run.report(percent, **details)

    def check(self) -> None:
        """Raise if this attempt is to end: cancelled, too late, or its worker leaves."""
        self.run.check()

    def log(self, line: str) -> None:
        """Keep a line on the job, where pages show it live."""
        self.run.log(line)

    def subprocess(self, argv: Sequence[str], **options: Any) -> "Process":
        """Start a program in a process group of its own, which dies with this attempt."""
        return self.run.subprocess(argv, **options)
