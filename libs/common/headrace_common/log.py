"""Structured logs on standard error, one line per event, and a limiter for lines that a peer can provoke."""

from __future__ import annotations

import contextlib
import logging
import sys
import time
from collections.abc import Callable, Iterator, MutableMapping
from typing import Any, Final, cast

from headrace_common.settings import LogSettings


@contextlib.contextmanager
def _without(name: str) -> Iterator[None]:
    """A module that is not loaded yet cannot be imported meanwhile."""
    if name in sys.modules:
        yield
        return
    cast("dict[str, None]", sys.modules)[name] = None
    try:
        yield
    finally:
        del sys.modules[name]


with _without("rich"):  # 5 MB in every receiver, for coloured tracebacks: ours are text before structlog renders a line
    import structlog

Log = structlog.stdlib.BoundLogger


def configure(settings: LogSettings, service: str) -> Log:
    """Sets up logging for this process and returns its logger, bound to `service`.

    The lines of libraries (asyncio, aiokafka) come through the same formatter, from level warning on.
    """
    console = settings.format == "console" or (settings.format == "auto" and sys.stderr.isatty())
    shared: list[Callable[[Any, str, MutableMapping[str, Any]], Any]] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
    ]
    renderer: Any = structlog.dev.ConsoleRenderer() if console else structlog.processors.JSONRenderer()
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, renderer],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    own = logging.getLogger("headrace")
    own.setLevel(settings.level.upper())
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
    logger: Log = structlog.stdlib.get_logger("headrace").bind(service=service)
    return logger


class RateLimited:
    """Writes at most `burst` lines per `interval` seconds of each event name; the next one says how many it stood for.

    What a hostile peer can trigger must not fill a disk.
    """

    def __init__(
        self, log: Log, *, burst: int = 10, interval: float = 10.0, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._log = log
        self._burst: Final = burst
        self._interval: Final = interval
        self._clock = clock
        self._windows: dict[str, tuple[float, int]] = {}  # event -> (window's start, lines asked for in it)

    def warning(self, event: str, **values: Any) -> None:
        """Logs a warning, unless this event's lines are used up for now."""
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
        self._log.warning(event, **values)
