"""The job's progress: what Spark's reports say."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Final

from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import StreamingQueryListener
from typing_extensions import override

from headrace_lake.kafka.source import TopicPartition
from headrace_lake.spark.jvm import java_class

Offsets = Mapping[TopicPartition, int]


class ProgressListener(StreamingQueryListener):
    """Calls `on_report` with each progress report of the query, in a thread of Spark's; with an empty one while it idles.

    The JVM calls it with its own events. PySpark would make Python objects of a report first, by hundreds of calls to the JVM
    after each batch, dozens of which fail; as text it comes by two.
    """

    class Java:
        """Tells the JVM, by py4j, which interface this class has."""

        implements: Final = ["org.apache.spark.sql.streaming.PythonStreamingQueryListener"]

    def __init__(self, spark: SparkSession, on_report: Callable[[Mapping[str, Any]], None]) -> None:
        self._on_report = on_report
        self._jlistenerobj = java_class(spark, "org.apache.spark.sql.streaming.PythonStreamingQueryListenerWrapper")(
            self
        )

    @override
    def onQueryStarted(self, event: Any) -> None:
        pass

    @override
    def onQueryProgress(self, event: Any) -> None:
        self._on_report(json.loads(event.progress().json()))

    @override
    def onQueryIdle(self, event: Any) -> None:
        self._on_report({})

    @override
    def onQueryTerminated(self, event: Any) -> None:
        pass


def reached(source: Mapping[str, Any]) -> dict[TopicPartition, int]:
    """Returns where each partition's batches end, from the source in a progress report; empty if the report has no offsets.

    A report gives offsets as a mapping or as JSON text. Where there are none it gives a text that is no offsets: ``null``;
    empty for a stopped query; ``None`` for a batch that a new driver lands again, because PySpark makes a text of it.
    """
    report = source.get("endOffset")
    try:
        value = json.loads(report) if isinstance(report, str) else report
    except ValueError:
        return {}
    topics = value if isinstance(value, dict) else {}
    return {
        (topic, int(number)): offset for topic, partitions in topics.items() for number, offset in partitions.items()
    }
