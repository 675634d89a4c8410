"""Puts this process's clock wrong by `FAULTS_CLOCK_SHIFT_S` seconds, before anything else is imported.

Python asks the operating system for the time in C, in `time` and in `datetime` apart, so both are
replaced. PostgreSQL, Kafka and the kernel's timers keep the right time, as they do around a machine
whose own clock is wrong. `time.monotonic` is left alone: it does not know what time it is.
"""

import datetime as dt
import os
import time as _time
from typing import Any

_SHIFT_S = float(os.environ["FAULTS_CLOCK_SHIFT_S"])

_true_time, _true_time_ns = _time.time, _time.time_ns
_Datetime = dt.datetime


class _Shown(type):
    """Makes every true `datetime` an instance of the shifted class: drivers written in C make those."""

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, _Datetime)

    def __subclasscheck__(cls, subclass: type) -> bool:
        return issubclass(subclass, _Datetime)


class _Shifted(_Datetime, metaclass=_Shown):
    """`datetime`, but for what time it is now. What it returns are true `datetime`s."""

    def __new__(cls, *arguments: Any, **named: Any) -> Any:  # noqa: ANN401 - as the original
        return _Datetime(*arguments, **named)

    @classmethod
    def now(cls, tz: Any = None) -> Any:  # noqa: ANN401 - as the original
        return _Datetime.now(tz) + dt.timedelta(seconds=_SHIFT_S)

    @classmethod
    def utcnow(cls) -> Any:  # noqa: ANN401 - as the original
        return _Datetime.now(dt.UTC).replace(tzinfo=None) + dt.timedelta(seconds=_SHIFT_S)

    @classmethod
    def fromtimestamp(cls, *arguments: Any, **named: Any) -> Any:  # noqa: ANN401 - as the original
        return _Datetime.fromtimestamp(*arguments, **named)

    @classmethod
    def fromisoformat(cls, text: str) -> Any:  # noqa: ANN401 - as the original
        return _Datetime.fromisoformat(text)


_time.time = lambda: _true_time() + _SHIFT_S
_time.time_ns = lambda: _true_time_ns() + int(_SHIFT_S * 1_000_000_000)
dt.datetime = _Shifted  # type: ignore[misc] # the very point
