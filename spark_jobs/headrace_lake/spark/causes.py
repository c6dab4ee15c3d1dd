"""The meaning of a Java exception, in one line."""

from __future__ import annotations

import re
from typing import Any, Final

_AWAY: Final = re.compile(
    r"org\.apache\.kafka\.\S*(?:Timeout|Disconnect|Network|NotLeaderOrFollower)\w*Exception"
    r"|TimeoutException: Cannot fetch record"  # Spark's own consumer of Kafka says so
    r"|javax\.security\.auth\.login\.LoginException"  # its client has no token
    r"|No resolvable bootstrap urls"  # the names of brokers are not in DNS yet
)
_NO_TIME: Final = re.compile(r"Record at topic \S+ partition \d+ offset \d+ has timestamp value \S+ that overflows")
_NOISE: Final = re.compile(r"\s+(SQLSTATE: \w+|===.*)$", re.DOTALL)
_LONGEST: Final = 600


def chain(error: BaseException) -> list[str]:
    """Returns the Java exceptions that caused `error`, outermost first, as ``class: message``; without any, `error` itself."""
    java: Any = getattr(error, "java_exception", None) or getattr(error, "_origin", None)
    if java is None:
        return [f"{type(error).__name__}: {error}"]
    found: list[str] = []
    while java is not None and len(found) < 20:
        found.append(str(java.toString()))
        java = java.getCause()
    return found


def root_cause(error: BaseException) -> str:
    """Returns the first line of the innermost exception, without package names and stacks."""
    line = _NOISE.sub("", chain(error)[-1].strip().split("\n\n", 1)[0]).replace("\n", " ")
    return re.sub(r"^(?:[\w$]+\.)+(?=[A-Z])", "", line)[:_LONGEST]


def no_time(causes: str) -> str | None:
    """Returns what the text of Java exceptions says of a record that no batch can read, which is not the innermost; else None."""
    found = _NO_TIME.search(causes)
    return found and found.group()


def kafka_is_away(causes: str) -> bool:
    """Returns whether the text of Java exceptions, with their packages, says that no broker answered (rather than that one
    refused).

    HDFS and Spark have exceptions of the same names: those are not Kafka's.
    """
    return _AWAY.search(causes) is not None
