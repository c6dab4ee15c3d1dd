"""Commits that Delta refuses because the table is being altered or its files merged."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

_ATTEMPTS: Final = 20
_ALTERED: Final = re.compile(
    r"(Metadata|Protocol)ChangedException|DELTA_(METADATA|PROTOCOL)_CHANGED"
    r"|Concurrent(Append|Delete\w+)Exception|DELTA_CONCURRENT_(APPEND|DELETE)"
)


def unless_altered(commit: Callable[[], object]) -> None:
    """Calls `commit`, again if properties, columns or protocol of the table changed meanwhile, or files that it has read were
    merged: nothing was committed then.

    Raises what `commit` raises for any other reason, and after a few attempts.
    """
    for left in reversed(range(_ATTEMPTS)):
        try:
            commit()
            return
        except (Py4JJavaError, PySparkException) as error:
            if not left or _ALTERED.search(str(error)) is None:
                raise
