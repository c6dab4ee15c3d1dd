"""Changes to the properties of a table, and commits that Delta refuses because the table is being altered or its files merged."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from headrace_lake.spark.literals import quoted

_ATTEMPTS: Final = 5
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


def set_properties(spark: SparkSession, path: str, wanted: Mapping[str, str]) -> None:
    """Sets the properties `wanted` of the table at `path`, in a commit of their own, unless it has them. Blocks on storage."""
    ((have,),) = spark.sql(f"DESCRIBE DETAIL delta.`{path}`").select("properties").collect()
    listed = ", ".join(f"'{name}' = {quoted(value)}" for name, value in wanted.items() if have.get(name) != value)
    if listed:
        unless_altered(lambda: spark.sql(f"ALTER TABLE delta.`{path}` SET TBLPROPERTIES ({listed})"))
