"""Brings tables of older versions to what this one makes: columns, statistics, comments; a commit only for what differs.

No table feature is switched on here but the change data feed, which must be asked for.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from pyspark.sql import SparkSession

from headrace_lake.spark.literals import quoted
from headrace_lake.tables.altered import COMMENT, change_properties, unless_altered
from headrace_lake.tables.layout import (
    ABOUT,
    BATCHES,
    CHANGE_FEED,
    SCHEMAS,
    STATISTICS,
    comments,
    statistics,
    statistics_before,
)  # fmt: skip
from headrace_lake.tables.shape import Shape

_LATER: Final = {BATCHES: ("number", "digest")}
"""Columns that tables of older versions lack."""


def upgrade(
    spark: SparkSession, name: str, path: str, metadata: Mapping[str, Any], shape: Shape, *, change_feed: bool
) -> None:
    """Brings the existing table `name` at `path` up to date. Blocks on storage; another job may do the same meanwhile.

    `metadata`: Delta's action `metaData`. Statistics that were chosen by hand are left as they are, and so is a change data feed
    that is on.
    """
    have = {field["name"]: field["metadata"].get(COMMENT) for field in json.loads(metadata["schemaString"])["fields"]}
    if missing := [SCHEMAS[name][column] for column in _LATER.get(name, ()) if column not in have]:
        listed = ", ".join(
            f"`{field.name}` {field.dataType.simpleString()} COMMENT {quoted(field.metadata[COMMENT])}"
            for field in missing
        )
        spark.sql(f"ALTER TABLE delta.`{path}` ADD COLUMNS ({listed})")
    properties = {**metadata["configuration"], COMMENT: metadata.get("description")}
    if _properties(name, properties, shape, change_feed=change_feed):
        change_properties(spark, path, lambda have: _properties(name, have, shape, change_feed=change_feed))
    if texts := {column: text for column, text in comments(name, shape).items() if have.get(column, text) != text}:
        comment(spark, path, texts)


def comment(spark: SparkSession, path: str, texts: Mapping[str, str]) -> None:
    """Sets the comments of columns of the table at `path`, in one commit."""
    listed = ", ".join(f"`{column}` COMMENT {quoted(text)}" for column, text in texts.items())
    unless_altered(lambda: spark.sql(f"ALTER TABLE delta.`{path}` ALTER COLUMN {listed}"))


def _properties(name: str, have: Mapping[str, str], shape: Shape, *, change_feed: bool) -> dict[str, str]:
    """Returns the properties to set."""
    wanted = {COMMENT: ABOUT[name]}
    if have.get(STATISTICS) == statistics_before(name, shape)[STATISTICS]:
        wanted |= statistics(name, shape)
    if change_feed:
        wanted[CHANGE_FEED] = "true"
    return {key: value for key, value in wanted.items() if have.get(key) != value}
