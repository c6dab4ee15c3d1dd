"""Logs on standard error, a line of JSON per event. They wait for no reader; lines that a peer can trigger are limited."""

from __future__ import annotations

import contextlib
import logging
import os
import select
import time
from collections.abc import Callable, MutableMapping
from typing import Any, Final

import structlog
from typing_extensions import override

from headrace_common.operations.settings import LogSettings

Log = structlog.stdlib.BoundLogger

OWN: Final = "headrace"
"""The name of our loggers."""

REPEAT_TIME: Final = 10.0
"""Seconds in which lines of one kind are counted."""

BURST: Final = 10
"""Lines of a kind that are written in that time."""

KINDS: Final = 1_000
"""Kinds of lines that are remembered: a library's texts may have values in them."""


class Repeats(logging.Filter):
    """Drops warnings and errors that repeat: a hostile peer must not be able to fill a disk, and while Kafka is away, aiokafka
    says the same again and again. In `REPEAT_TIME` seconds `BURST` lines are written of one event, or of a library's whose texts
    begin alike before values are put in; our next line says how many were suppressed.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._windows: dict[tuple[str, str], tuple[float, int]] = {}  # a window's start, lines in it

    @override
    def filter(self, record: logging.LogRecord) -> bool:
        """Returns whether the line is written."""
        if record.levelno < logging.WARNING:
            return True
        event = record.msg if isinstance(record.msg, dict) else {}  # a line of ours, by structlog
        kind, now = (record.name, event.get("event") or str(record.msg).partition("\n")[0]), self._clock()
        start, asked = self._windows.get(kind, (now, 0))
        if now - start >= REPEAT_TIME:
            if asked > BURST:
                event["suppressed"] = asked - BURST
            start, asked = now, 0
        if len(self._windows) >= KINDS:
            self._windows.clear()
        self._windows[kind] = (start, asked + 1)
        return asked < BURST


PIPE_BYTES: Final = 4096
"""Bytes that a pipe which takes any takes at once."""

STANDARD_ERROR: Final = 2


class Lines(logging.Handler):
    """Writes to standard error. Drops lines, or the ends of lines, while that takes none: a pipe without a reader, a stopped
    terminal, a full disk.
    """

    def __init__(self) -> None:
        """Raises `OSError` if there is no standard error: the next socket would get its number, and a client these lines."""
        super().__init__()
        os.fstat(STANDARD_ERROR)
        self._room = select.poll()
        self._room.register(STANDARD_ERROR, select.POLLOUT)
        self._begun = False  # a part of the last line was written

    @override
    def emit(self, record: logging.LogRecord) -> None:
        try:
            text = f"{self.format(record)}\n"
        except Exception:
            self.handleError(record)
            return
        data = b"\n" * self._begun + text.encode(errors="backslashreplace")
        with contextlib.suppress(OSError):  # the disk is full, or the reader has gone
            while data and self._room.poll(0):
                data = data[os.write(STANDARD_ERROR, data[:PIPE_BYTES]) :]
                self._begun = bool(data)


def configure(settings: LogSettings, service: str) -> Log:
    """Sets up logging for this process and returns its logger, bound to `service`.

    Libraries (asyncio, aiokafka) log through the same formatter, from level warning up.
    """

    def named(logger: Any, method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
        event.setdefault("service", service)
        return event

    handler = Lines()
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                named,
                structlog.stdlib.add_log_level,
                structlog.processors.TimeStamper(fmt="iso", utc=True),
                structlog.processors.format_exc_info,
                structlog.processors.JSONRenderer(),  # as ASCII: a peer's text cannot steer a terminal
            ],
        )
    )
    handler.addFilter(Repeats())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    logging.getLogger(OWN).setLevel(settings.level.upper())
    structlog.configure(
        processors=[structlog.stdlib.filter_by_level, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )
    logger: Log = structlog.stdlib.get_logger(OWN).bind(service=service)
    return logger
