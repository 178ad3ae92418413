"""The engine's own tables."""

from jobs.engine.kinds import KindLock, Pause
from jobs.engine.schedules import Schedule
from jobs.engine.task_job import TaskJob

__all__ = ["KindLock", "Pause", "Schedule", "TaskJob"]
