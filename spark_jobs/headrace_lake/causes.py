"""What a Java exception means, in a line."""

from __future__ import annotations

import re
from typing import Any, Final

_AWAY: Final = re.compile(r"TimeoutException|DisconnectException|NetworkException|ConnectException|NotLeaderOrFollower")
_NOISE: Final = re.compile(r"\s+(SQLSTATE: \w+|===.*)$", re.DOTALL)
_LONGEST: Final = 600


def chain(error: BaseException) -> list[str]:
    """The Java exceptions behind `error`, outermost first, each as ``class: message``; `error` itself if there is none."""
    java: Any = getattr(error, "java_exception", None) or getattr(error, "_origin", None)
    if java is None:
        return [f"{type(error).__name__}: {error}"]
    found: list[str] = []
    while java is not None and len(found) < 20:
        found.append(str(java.toString()))
        java = java.getCause()
    return found


def root_cause(error: BaseException) -> str:
    """The first line of the innermost exception, without package names and stacks."""
    line = _NOISE.sub("", chain(error)[-1].strip().split("\n\n", 1)[0]).replace("\n", " ")
    return re.sub(r"^(?:[\w$]+\.)+(?=[A-Z])", "", line)[:_LONGEST]


def kafka_is_away(causes: str) -> bool:
    """Whether Java exceptions, as text, say that no broker answered (and not that one refused)."""
    return _AWAY.search(causes) is not None
