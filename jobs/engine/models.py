"""The engine's own tables."""

from jobs.engine.kinds import KindLock, Pause

__all__ = ["KindLock", "Pause"]
