"""Logs on standard error, a line of JSON per event. They wait for no reader; lines that a peer can trigger are limited."""

from __future__ import annotations

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
"""Lines of a kind of ours that are written in that time."""

KINDS: Final = 1_000
"""Kinds of lines that are remembered: a library's texts may have values in them."""


class Repeats(logging.Filter):
    """Drops warnings and errors that repeat: a hostile peer must not be able to fill a disk, and while Kafka is away, aiokafka
    says the same again and again. In `REPEAT_TIME` seconds, of our lines with one event `BURST` are written, and the next line
    says how many were suppressed; of a library's lines whose texts begin alike, before values are put in, one is.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._windows: dict[tuple[str, str], tuple[float, int]] = {}  # a window's start, lines in it

    def __call__(self, logger: Any, method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
        """Passes an event of ours on, as a processor of structlog. Raises `DropEvent`."""
        if method not in ("debug", "info"):
            suppressed = self._suppressed((OWN, event["event"]), BURST)
            if suppressed is None:
                raise structlog.DropEvent
            if suppressed:
                event["suppressed"] = suppressed
        return event

    @override
    def filter(self, record: logging.LogRecord) -> bool:
        """Returns whether the line of a library is written, or the line is ours."""
        text = str(record.msg).partition("\n")[0]
        return record.name.partition(".")[0] == OWN or self._suppressed((record.name, text), 1) is not None

    def _suppressed(self, kind: tuple[str, str], burst: int) -> int | None:
        """Counts a line. Returns None if it is suppressed, else how many the last window has suppressed."""
        now, suppressed = self._clock(), 0
        start, asked = self._windows.get(kind, (now, 0))
        if now - start >= REPEAT_TIME:
            start, asked, suppressed = now, 0, max(0, asked - burst)
        if len(self._windows) >= KINDS:
            self._windows.clear()
        self._windows[kind] = (start, asked + 1)
        return suppressed if asked < burst else None


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


def configure(settings: LogSettings, service: str) -> Log:
    """Sets up logging for this process and returns its logger, bound to `service`.

    Libraries (asyncio, aiokafka) log through the same formatter, from level warning up.
    """
    fill_standard_files()
    shared: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
    ]

    def named(logger: Any, method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
        event.setdefault("service", service)
        return event

    repeats = Repeats()
    handler = Lines()
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[named, *shared],
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                structlog.processors.JSONRenderer(),  # as ASCII: a peer's text cannot steer a terminal
            ],
        )
    )
    handler.addFilter(repeats)
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    logging.getLogger(OWN).setLevel(settings.level.upper())
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            repeats,
            *shared,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )
    logger: Log = structlog.stdlib.get_logger(OWN).bind(service=service)
    return logger
