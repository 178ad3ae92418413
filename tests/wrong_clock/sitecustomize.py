"""Put first on PYTHONPATH, this makes a process believe that it is five minutes later."""

import datetime
import time

OFFSET = 300.0
_time, _time_ns, _datetime = time.time, time.time_ns, datetime.datetime


class _Kind(type):
    def __instancecheck__(cls, value: object) -> bool:
        return isinstance(value, _datetime)


class _Late(_datetime, metaclass=_Kind):
    @classmethod
    def now(cls, tz=None):
        return _datetime.now(tz) + datetime.timedelta(seconds=OFFSET)

    @classmethod
    def utcnow(cls):
        return _datetime.now(datetime.UTC).replace(tzinfo=None) + datetime.timedelta(seconds=OFFSET)


time.time = lambda: _time() + OFFSET
time.time_ns = lambda: _time_ns() + int(OFFSET * 1_000_000_000)
datetime.datetime = _Late
