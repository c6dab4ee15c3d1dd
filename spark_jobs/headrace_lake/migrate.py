"""``python -m headrace_lake migrate``: brings existing tables to what the settings ask for. What is there stays as it is."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from typing import Any, Final

from headrace_common.errors import ConfigError
from headrace_common.log import Log
from pyspark.sql import SparkSession

from headrace_lake import tables
from headrace_lake.engine import running
from headrace_lake.halt import HaltError
from headrace_lake.literals import quoted
from headrace_lake.promotion import Promotion, merged, split
from headrace_lake.settings import LakeProcessSettings, LakeSettings, location
from headrace_lake.shape import Shape, of_table, parse_all, settled
from headrace_lake.storage import Storage
from headrace_lake.tables import EVENTS, SCHEMAS

_VARIANT_FEATURE: Final = "delta.feature.variantType"


def add(commands: Any) -> None:
    """Adds the command to what `add_subparsers` returned."""
    parser = commands.add_parser(
        "migrate",
        help="add columns to existing tables",
        description="Adds to the events table the columns that LAKE__PROMOTE and LAKE__BODY ask for, and those named here. "
        "Rows that are there have null in them. Stop the job first.",
    )
    parser.add_argument("--config", default=argparse.SUPPRESS, help="YAML file with settings; the environment wins")
    parser.add_argument(
        "--promote", action="append", default=[], metavar="PART",
        help='a part of the body as a column, such as "body.status as status int"; may be repeated',
    )  # fmt: skip
    parser.add_argument("--variant", action="store_true", help="keep the body as VARIANT, in the column body_variant")
    parser.set_defaults(act=_act)


def _act(settings: LakeProcessSettings, arguments: argparse.Namespace, log: Log) -> None:
    promotions = parse_all(arguments.promote, SCHEMAS[EVENTS].names)
    with running(settings.lake, settings.log) as spark:
        shape = migrate(spark, settings.lake, promotions, variant=arguments.variant)
    log.info("migrated", promoted=[str(promotion) for promotion in shape.promoted], variant=shape.variant)


def prepare(storage: Storage, settings: LakeSettings) -> Shape:
    """Makes the tables that are not there yet; the shape to land with. Raises `ConfigError` when settings contradict them."""
    lake = location(settings.path)
    there = _shape(storage, lake)
    shape = settled(settings, there, SCHEMAS[EVENTS].names)
    tables.create(storage, lake, shape)
    return shape


def migrate(spark: SparkSession, settings: LakeSettings, promotions: Iterable[Promotion], *, variant: bool) -> Shape:
    """Gives the events table the columns that the settings and the arguments ask for; the shape that it has then.

    Without a word in the settings what it has stays. Raises `HaltError` when there is no table, or a column in the way.
    """
    lake = location(settings.path)
    now = _shape(Storage(spark), lake)
    if now is None:
        raise HaltError(f"there are no tables in {lake}: the first start makes them as the settings ask for")
    asked = parse_all(split(settings.promote), SCHEMAS[EVENTS].names)
    try:
        promoted = merged((*(asked or now.promoted), *promotions))
    except ValueError as error:
        raise ConfigError(str(error)) from error
    wanted = Shape(promoted, variant or (now.variant if settings.body is None else settings.body == "variant"))
    path = f"{lake}/{EVENTS}"
    have = {field.name: field.dataType.simpleString() for field in _frame(spark, path).schema.fields}
    for name, kind in wanted.columns.items():
        if have.get(name, kind) != kind:
            raise HaltError(f"the events table has a column {name} of the type {have[name]}: choose another name")
    if wanted.variant and not now.variant:
        _set(spark, path, {_VARIANT_FEATURE: "supported"})
    missing = ", ".join(f"`{name}` {kind}" for name, kind in wanted.columns.items() if name not in have)
    if missing:
        spark.sql(f"ALTER TABLE delta.`{path}` ADD COLUMNS ({missing})")
    _set(spark, path, wanted.properties | tables.statistics(EVENTS, wanted))
    return wanted


def _shape(storage: Storage, lake: str) -> Shape | None:
    path = f"{lake}/{EVENTS}"
    if not storage.exists(f"{path}/_delta_log"):
        return None
    detail = storage.spark.sql(f"DESCRIBE DETAIL delta.`{path}`").first()
    return of_table(dict(detail["properties"]) if detail is not None else {})


def _frame(spark: SparkSession, path: str) -> Any:
    return spark.read.format("delta").load(path)


def _set(spark: SparkSession, path: str, properties: dict[str, str]) -> None:
    listed = ", ".join(f"'{name}' = {quoted(value)}" for name, value in properties.items())
    spark.sql(f"ALTER TABLE delta.`{path}` SET TBLPROPERTIES ({listed})")
