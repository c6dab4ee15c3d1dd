"""Structured logs on standard error, one line per event. They wait for no reader; lines that a peer can trigger are limited."""

from __future__ import annotations

import logging
import os
import re
import select
import time
from collections.abc import Callable, MutableMapping
from typing import Any, Final

import structlog
from typing_extensions import override

from headrace_common.operations.settings import LogSettings

Log = structlog.stdlib.BoundLogger

_CONTROL: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")

OWN: Final = "headrace"
"""The name of our loggers."""

REPEAT_TIME: Final = 10.0
"""Seconds in which the same line of a library is written once."""


class LibraryRepeats(logging.Filter):
    """Passes a library's line on once in `REPEAT_TIME` seconds: while Kafka is away, aiokafka says the same again and again. Two
    lines are the same if their texts begin with the same line, before values are put in.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._said: dict[tuple[str, str], float] = {}

    @override
    def filter(self, record: logging.LogRecord) -> bool:
        if record.name.partition(".")[0] == OWN:
            return True
        now, key = self._clock(), (record.name, str(record.msg).partition("\n")[0])
        if now - self._said.get(key, -REPEAT_TIME) < REPEAT_TIME:
            return False
        if len(self._said) >= 1000:
            self._said.clear()
        self._said[key] = now
        return True


PIPE_BYTES: Final = 4096
"""Bytes that a pipe which takes any takes at once."""

STANDARD_ERROR: Final = 2


def fill_standard_files() -> None:
    """Opens nothing, on its descriptor, where the process was started without standard input, output or error.

    Else the next socket would get that number, and a client what libraries write there.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest number that is free


class Lines(logging.Handler):
    """Writes to standard error. Drops lines while that takes none: a pipe without a reader, a stopped terminal, a full disk. The
    next line that can be written follows one that says how many were dropped.
    """

    def __init__(self) -> None:
        super().__init__()
        self._room = select.poll()
        self._room.register(STANDARD_ERROR, select.POLLOUT)
        self._dropped = 0
        self._begun = False  # a part of the last line was written

    @override
    def emit(self, record: logging.LogRecord) -> None:
        try:
            text = f"{self.format(record)}\n"
            if self._dropped:
                said = {"msg": f"{self._dropped} lines were dropped", "levelname": "WARNING", "name": record.name}
                text = f"{self.format(logging.makeLogRecord(said))}\n{text}"
        except Exception:
            self.handleError(record)
            return
        whole = self._write(b"\n" * self._begun + text.encode(errors="backslashreplace"))
        self._dropped = 0 if whole else self._dropped + 1

    def _write(self, data: bytes) -> bool:
        """Writes `data`; returns False if it was not all of it."""
        while data:
            try:
                if not self._room.poll(0):
                    return False
                written = os.write(STANDARD_ERROR, data[:PIPE_BYTES])
            except OSError:  # the disk is full, or the reader has gone
                return False
            data = data[written:]
            self._begun = bool(data)
        return True


def escaped(logger: Any, method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Writes control characters as escapes, but line ends and tabs: a peer's text, also in a stack, cannot steer a terminal."""
    for key, value in event.items():
        if isinstance(value, str):
            event[key] = _CONTROL.sub(lambda found: f"\\x{ord(found[0]):02x}", value)
    return event


def configure(settings: LogSettings, service: str) -> Log:
    """Sets up logging for this process and returns its logger, bound to `service`.

    Libraries (asyncio, aiokafka) log through the same formatter, from level warning up.
    """
    fill_standard_files()
    console = settings.format == "console" or (settings.format == "auto" and os.isatty(STANDARD_ERROR))
    shared: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
    ]

    def named(logger: Any, method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
        event.setdefault("service", service)
        return event

    # JSON has escapes of its own
    render = [escaped, structlog.dev.ConsoleRenderer()] if console else [structlog.processors.JSONRenderer()]
    handler = Lines()
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[named, *shared],
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *render],
        )
    )
    handler.addFilter(LibraryRepeats())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    logging.getLogger(OWN).setLevel(settings.level.upper())
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *shared,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )
    logger: Log = structlog.stdlib.get_logger(OWN).bind(service=service)
    return logger


class RateLimited:
    """Writes at most `burst` lines per `interval` seconds for each event name; the next line says how many were suppressed.

    A hostile peer must not be able to fill a disk.
    """

    def __init__(
        self, log: Log, *, burst: int = 10, interval: float = 10.0, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._log = log
        self._burst: Final = burst
        self._interval: Final = interval
        self._clock = clock
        self._windows: dict[str, tuple[float, int]] = {}  # event -> (window's start, lines requested in it)

    def warning(self, event: str, **values: Any) -> None:
        """Logs a warning, unless the event has used up its lines in this interval."""
        self._say(self._log.warning, event, values)

    def exception(self, event: str, **values: Any) -> None:
        """Logs an error with the stack of the exception that is being handled, likewise."""
        self._say(self._log.exception, event, values)

    def _say(self, say: Callable[..., Any], event: str, values: dict[str, Any]) -> None:
        now = self._clock()
        start, asked = self._windows.get(event, (now, 0))
        suppressed = 0
        if now - start >= self._interval:
            suppressed = max(0, asked - self._burst)
            start, asked = now, 0
        self._windows[event] = (start, asked + 1)
        if asked >= self._burst:
            return
        if suppressed:
            values["suppressed"] = suppressed
        say(event, **values)
