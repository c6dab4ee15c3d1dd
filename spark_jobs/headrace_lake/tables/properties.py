"""Our properties of tables, and the features of Delta that we read. The command line reads them without PySpark."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

RETAINED_FROM: Final = "headrace.retainedFrom"
"""The first day (UTC, ISO 8601) whose rows are kept. Set before earlier rows are dropped."""

VACUUMED_AT: Final = "headrace.vacuumedAt"
"""When the table was last vacuumed, or created; Unix seconds."""

STRAYS: Final = "headrace.strays"
"""Of `batches`: the ends of rows that none of its lines covers, which a job left when it was shut out.

JSON: topic id -> partition -> one past the last such offset. As of the last claim; missing without any.
"""

BEGUN: Final = "headrace.begun"
"""Of `batches`: the first offsets that Kafka held when a topic was claimed before anything of it had landed.

JSON: topic id -> partition -> offset, if it is not 0. What Kafka had deleted before is no loss; what it deletes later is one.
"""

APP_ID: Final = "headrace"
"""Our application in Delta's transaction identifiers."""

RETAINED_APP: Final = "headrace.retainedFrom"
"""Our application in Delta's transaction identifiers whose version is `RETAINED_FROM`, in days since 1970.

The job commits it before it drops rows, so that the proof need not believe a property, which any writer can set.
"""

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
