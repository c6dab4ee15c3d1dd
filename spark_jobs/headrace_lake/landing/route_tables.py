"""The tables of routes: made from a JSON schema at the start or from a sample of the first batch, and then fixed.

The names of all of them are in a property of `batches`: by it the fence, upkeep, erasures and the proof know them, also those
that the settings no longer have.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping
from dataclasses import replace

from headrace_common.operations.errors import ConfigError
from pyspark.sql import SparkSession

from headrace_lake.configuration.routes import RouteSettings
from headrace_lake.rows.routed import OWN, RouteTable
from headrace_lake.spark.halt import HaltError
from headrace_lake.spark.literals import quoted
from headrace_lake.spark.storage import Storage
from headrace_lake.tables.altered import Properties, change_properties, properties_of, set_properties
from headrace_lake.tables.fence import Fence
from headrace_lake.tables.layout import BATCHES, CHANGE_FEED, DAY, PROPERTIES, STATISTICS, make
from headrace_lake.tables.properties import ROUTES, VACUUMED_AT, route_names


def prepare(
    storage: Storage, lake: str, routes: Mapping[str, RouteSettings], fence: Fence, *, change_feed: bool
) -> dict[str, RouteTable | None]:
    """Returns the tables of `routes`, made if their columns are known; None for one whose columns the first batch decides.

    `fence` reads their properties from the tables' logs: Spark has nothing to do for tables that are up to date. Brings their
    streams and the change data feed up to date. Raises `ConfigError` if a table has other columns than its JSON schema asks for,
    whatever their names (another version may have chosen them), or is not a route's. Blocks on storage.
    """
    tables: dict[str, RouteTable | None] = {}
    for name, settings in routes.items():
        asked = settings.columns(OWN)
        if not storage.exists(f"{lake}/{name}/_delta_log"):
            tables[name] = None
            if asked is not None:
                tables[name] = create(storage, lake, RouteTable(name, settings.streams, asked), change_feed=change_feed)
            continue
        metadata = fence.metadata(name)
        have = metadata["configuration"]
        there = RouteTable.of(name, have, [field["name"] for field in json.loads(metadata["schemaString"])["fields"]])
        if there is None:
            raise ConfigError(
                f"LAKE__ROUTES: {lake}/{name} is a table that is not a route's: give the route another name"
            )
        wants, has = (
            {(each.path, each.kind): each.name for each in columns or ()} for columns in (asked, there.columns)
        )
        if asked is not None and wants.keys() != has.keys():
            other = sorted((wants | has)[column] for column in wants.keys() ^ has.keys())
            raise ConfigError(
                f"LAKE__ROUTES: the table {name} has other columns than the JSON schema asks for ({', '.join(other[:5])}):"
                " they are fixed; give the route another name for a table of its own"
            )
        now = replace(there, streams=settings.streams)
        wanted = now.properties | ({CHANGE_FEED: "true"} if change_feed else {})
        if not wanted.items() <= have.items():
            set_properties(storage.spark, f"{lake}/{name}", wanted)
        tables[name] = now
    made = [name for name, table in tables.items() if table is not None]
    if {*made} != {*route_names(fence.properties(BATCHES))}:
        _record(storage, lake, routes, made)
    return tables


def create(storage: Storage, lake: str, table: RouteTable, *, change_feed: bool) -> RouteTable:
    """Makes the table of a route, unless another job has made it meanwhile; returns it as it is. Blocks on storage."""
    path = f"{lake}/{table.name}"
    properties = {
        **PROPERTIES, **table.properties, VACUUMED_AT: str(int(time.time())), STATISTICS: ",".join(f"{c}" for c in table.ranged),
        **({CHANGE_FEED: "true"} if change_feed else {}),
    }  # fmt: skip
    columns = ", ".join(f"`{name}` {kind} COMMENT {quoted(text)}" for name, (kind, text) in table.kinds.items())
    listed = ", ".join(f"'{key}' = {quoted(value)}" for key, value in properties.items())
    about = "Headrace: the events of a route, with parts of their bodies as columns. Written by the landing job alone"
    make(
        storage,
        path,
        f"CREATE TABLE IF NOT EXISTS delta.`{path}` ({columns}) USING delta PARTITIONED BY ({DAY}) "
        f"COMMENT {quoted(about)} TBLPROPERTIES ({listed})",
    )
    made = _read(storage.spark, lake, table.name)
    if made is None:
        raise HaltError(f"the table {path} is not a route's: another program has just made it")
    _record(storage, lake, (table.name,), (table.name,))
    return made


def load(spark: SparkSession, lake: str, names: Iterable[str]) -> list[RouteTable]:
    """Returns the tables of routes, by `names` that are there. Blocks on storage."""
    found = (_read(spark, lake, name) for name in names)
    return [table for table in found if table is not None]


def _read(spark: SparkSession, lake: str, name: str) -> RouteTable | None:
    path = f"{lake}/{name}"
    return RouteTable.of(name, properties_of(spark, path), spark.read.format("delta").load(path).columns)


def _record(storage: Storage, lake: str, configured: Iterable[str], made: Iterable[str]) -> None:
    """Adds the names in `made` to the property of `batches`, and takes away those that are neither `configured` nor there."""
    kept, new = set(configured), set(made)
    gone: set[str] = set()

    def there(name: str) -> bool:
        return storage.exists(f"{lake}/{name}/_delta_log")

    def listed(have: Properties) -> Properties:
        nonlocal gone
        before = set(route_names(have))
        gone = {name for name in before - kept - new if not there(name)}
        after = (before | new) - gone
        return {ROUTES: json.dumps(sorted(after))} if after != before else {}

    change_properties(storage.spark, f"{lake}/{BATCHES}", listed)
    if back := [name for name in gone if there(name)]:  # another job made it again, and found it listed
        _record(storage, lake, configured, back)
