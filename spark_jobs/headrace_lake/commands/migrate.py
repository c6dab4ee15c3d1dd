"""``python -m headrace_lake migrate``: adds the columns that the settings ask for to existing tables. Keeps all rows."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable
from dataclasses import replace
from typing import Any, Final

from headrace_common.operations.errors import ConfigError
from headrace_common.operations.log import Log
from pyspark.sql import SparkSession

from headrace_lake.configuration.promotion import merged, split
from headrace_lake.configuration.settings import LakeProcessSettings, LakeSettings, location
from headrace_lake.spark.catalog import register
from headrace_lake.spark.engine import running
from headrace_lake.spark.halt import HaltError
from headrace_lake.spark.literals import quoted
from headrace_lake.spark.storage import Storage
from headrace_lake.tables import layout
from headrace_lake.tables.altered import (
    COMMENT,
    Properties,
    change_properties,
    properties_of,
    set_properties,
    unless_altered,
)
from headrace_lake.tables.fence import Fence
from headrace_lake.tables.layout import EVENTS, SCHEMAS
from headrace_lake.tables.shape import PROMOTION, Shape, of_table, parse_all, settled
from headrace_lake.tables.upgrade import upgrade

_VARIANT_FEATURE: Final = "delta.feature.variantType"


def add(commands: Any) -> None:
    """Adds the command to the result of `add_subparsers`."""
    parser = commands.add_parser(
        "migrate",
        help="add columns to existing tables",
        description="Adds to the events table the columns that LAKE__PROMOTE and LAKE__BODY ask for, and those named here. "
        "They are null in existing rows. Stop the job first.",
    )
    parser.add_argument("--config", default=argparse.SUPPRESS, help="YAML file with settings; the environment wins")
    parser.add_argument(
        "--promote", action="append", default=[], metavar="PART",
        help='a part of the body as a column, such as "body.status as status int"; repeatable',
    )  # fmt: skip
    parser.add_argument("--variant", action="store_true", help="keep the body as VARIANT, in the column body_variant")
    parser.set_defaults(act=_act)


def _act(settings: LakeProcessSettings, arguments: argparse.Namespace, log: Log) -> None:
    parse_all(arguments.promote, (), None)  # before Spark starts: whether they can be read
    with running(settings.lake, settings.log) as spark:
        shape = migrate(spark, settings.lake, arguments.promote, variant=arguments.variant)
    log.info("migrated", promoted=[str(promotion) for promotion in shape.promoted], variant=shape.variant)


def prepare(storage: Storage, settings: LakeSettings, fence: Fence | None = None) -> Shape:
    """Creates missing tables, brings older ones up to date, names them in the catalog; returns the shape to land with.

    `fence`: one that has read the tables' logs, or None. Raises `ConfigError` if the settings contradict the tables or
    the catalog.
    """
    lake = location(settings.path)
    fence = fence or Fence(storage.spark, lake)
    there = _shape(storage, lake, fence)
    shape = settled(settings, there, SCHEMAS[EVENTS].names)
    for name in layout.create(storage, lake, shape, change_feed=settings.change_data_feed):
        path, metadata = f"{lake}/{name}", fence.metadata(name)
        upgrade(storage.spark, name, path, metadata, shape, change_feed=settings.change_data_feed)
    if settings.catalog_schema:
        register(storage.spark, lake, settings.catalog_schema, SCHEMAS)
    return shape


def migrate(spark: SparkSession, settings: LakeSettings, promote: Iterable[str], *, variant: bool) -> Shape:
    """Adds the columns that the settings and the arguments ask for to the events table; returns its new shape.

    Settings that are not given keep what the table has. Raises `ConfigError` for promotions that the table cannot have,
    `HaltError` if the table is missing, or if it has a column of the same name with another type.
    """
    lake = location(settings.path)
    now = _shape(Storage(spark), lake, Fence(spark, lake))
    if now is None:
        raise HaltError(f"there are no tables in {lake}: the first start of the job creates them as the settings say")
    asked, more = (parse_all(texts, SCHEMAS[EVENTS].names, now) for texts in (split(settings.promote), promote))

    def shape(there: Shape) -> Shape:
        try:
            promoted = merged((*(asked or there.promoted), *more))
        except ValueError as error:
            raise ConfigError(str(error)) from error
        return Shape(promoted, variant or (there.variant if settings.body is None else settings.body == "variant"))

    def recorded(have: Properties) -> Properties:
        now = shape(of_table(have))  # another migration may have added columns since
        return now.properties | layout.statistics(EVENTS, now)

    wanted = shape(now)
    path = f"{lake}/{EVENTS}"
    have = {field.name: field.dataType.simpleString() for field in _frame(spark, path).schema.fields}
    for name, kind in wanted.columns.items():
        if have.get(name, kind) != kind:
            raise HaltError(f"the events table has a column {name} of the type {have[name]}: choose another name")
    if wanted.variant and not now.variant:
        set_properties(spark, path, {_VARIANT_FEATURE: "supported"})
    missing = ", ".join(
        f"`{name}` {kind} COMMENT {quoted(wanted.comments[name])}"
        for name, kind in wanted.columns.items()
        if name not in have
    )
    if missing:
        unless_altered(lambda: spark.sql(f"ALTER TABLE delta.`{path}` ADD COLUMNS ({missing})"))
    change_properties(spark, path, recorded)
    return of_table(properties_of(spark, path))


def _shape(storage: Storage, lake: str, fence: Fence) -> Shape | None:
    if not storage.exists(f"{lake}/{EVENTS}/_delta_log"):
        return None
    metadata = fence.metadata(EVENTS)
    shape = of_table(metadata["configuration"])
    comments = {
        field["name"]: field["metadata"].get(COMMENT, "") for field in json.loads(metadata["schemaString"])["fields"]
    }
    promoted = {*shape.columns, *(name for name, text in comments.items() if text.startswith(PROMOTION))}
    return replace(shape, taken=frozenset(promoted.intersection(SCHEMAS[EVENTS].names)))


def _frame(spark: SparkSession, path: str) -> Any:
    return spark.read.format("delta").load(path)
