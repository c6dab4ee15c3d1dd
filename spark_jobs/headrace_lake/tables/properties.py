"""What we know of any Delta table: our applications in its log, the features that we read, the names of its files. No PySpark."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

APP_ID: Final = "headrace"
"""Our application in Delta's transaction identifiers."""

RETAINED_APP: Final = "headrace.retainedFrom"
"""Our application in Delta's transaction identifiers whose version is the first day (UTC) that is kept, in days since 1970.

The job commits it before it drops earlier rows. A property could be set by any writer; the proof would have to believe it.
"""

VACUUMED_APP: Final = "headrace.vacuumedAt"
"""Our application in Delta's transaction identifiers whose version is when the table was last vacuumed, in Unix seconds."""

ERASED_APP: Final = "headrace.erasures"
"""Our application in the transaction identifiers of the table of erasures: its version is the number of erasures."""

KNOWN_FEATURES: Final = frozenset(
    {
        "appendOnly",
        "changeDataFeed",
        "checkConstraints",
        "clustering",
        "domainMetadata",
        "generatedColumns",
        "inCommitTimestamp",
        "invariants",
        "timestampNtz",
        "vacuumProtocolCheck",
    }
)
"""Delta's table features that change neither the form of the log nor which rows the listed files hold."""


def strange_features(protocol: Mapping[str, Any]) -> list[str]:
    """Returns the features in an action `protocol` that we do not know, sorted."""
    named = {*(protocol.get("readerFeatures") or ()), *(protocol.get("writerFeatures") or ())}
    old = {"columnMapping"} if protocol.get("minReaderVersion") == 2 else set()
    return sorted((named | old) - KNOWN_FEATURES)


def is_foreign(name: str) -> bool:
    """Returns whether the file of this name in the log belongs to another table, of which this one is a clone."""
    return ":/" in name or name.startswith("/")
