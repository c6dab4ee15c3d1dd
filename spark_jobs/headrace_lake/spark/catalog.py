"""Names for the tables in a catalog (Hive metastore, Unity Catalog), so that engines find them. Nothing is dropped or moved."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from headrace_common.operations.errors import ConfigError
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from headrace_lake.spark.causes import root_cause
from headrace_lake.spark.halt import HaltError
from headrace_lake.spark.literals import quoted

_IMPLEMENTATION: Final = "spark.sql.catalogImplementation"


def register(spark: SparkSession, lake: str, schema: str, tables: Iterable[str]) -> None:
    """Gives `tables` in `lake` their names in `schema` (`schema` or `catalog.schema`), where they lack them. Blocks.

    Raises `ConfigError` if Spark has no such catalog, or if a name there belongs to something else; `HaltError` if the
    catalog does not do it.
    """
    catalog = schema.rpartition(".")[0]
    if catalog and spark.conf.get(f"spark.sql.catalog.{catalog}", None) is None:
        raise ConfigError(
            f"LAKE__CATALOG_SCHEMA names the catalog {catalog}, which Spark does not have: LAKE__SPARK needs"
            f" spark.sql.catalog.{catalog}"
        )
    if not catalog and spark.conf.get(_IMPLEMENTATION, "in-memory") != "hive":
        raise ConfigError(
            f"LAKE__CATALOG_SCHEMA is {schema}, and Spark has no catalog that outlives it: LAKE__SPARK needs"
            f" {_IMPLEMENTATION}=hive"
        )
    within = ".".join(f"`{part}`" for part in schema.split("."))
    try:
        if not spark.catalog.databaseExists(within):
            spark.sql(f"CREATE SCHEMA IF NOT EXISTS {within}")
    except (PySparkException, Py4JJavaError) as error:
        raise HaltError(f"the catalog of LAKE__CATALOG_SCHEMA ({schema}) fails: {root_cause(error)}") from error
    missing = [
        name for name in tables if not _is_there(spark, f"{schema}.{name}", f"{within}.`{name}`", f"{lake}/{name}")
    ]
    for name in missing:
        try:
            spark.sql(f"CREATE TABLE IF NOT EXISTS {within}.`{name}` USING delta LOCATION {quoted(f'{lake}/{name}')}")
        except (PySparkException, Py4JJavaError) as error:
            raise HaltError(f"the catalog cannot take the name {schema}.{name}: {root_cause(error)}") from error


def _is_there(spark: SparkSession, name: str, named: str, path: str) -> bool:
    """Returns whether `named` is in the catalog. Raises `ConfigError` if it is anything but the table at `path`."""
    try:
        if not spark.catalog.tableExists(named):
            return False
        found = _location(spark, named)
    except (PySparkException, Py4JJavaError):  # a view, or a table that was moved
        found = "something that cannot be read"
    wanted = _location(spark, f"delta.`{path}`")
    if found != wanted:
        raise ConfigError(
            f"LAKE__CATALOG_SCHEMA: {name} in the catalog is {found}, not {wanted}: drop that name, or choose another schema"
        )
    return True


def _location(spark: SparkSession, table: str) -> str:
    ((location, kind),) = spark.sql(f"DESCRIBE DETAIL {table}").select("location", "format").collect()
    return str(location).rstrip("/") if kind == "delta" else f"a table of the format {kind}"
