"""An Iceberg table that lists the files of a Delta table, and owns none of them.

Each commit makes its snapshot list exactly the files of one version of the Delta table, whatever it listed before: so a mirror
that was killed, or that another one overtook, only has to look again. Iceberg never writes a data file and deletes none.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

from headrace_common.operations.errors import ConfigError
from headrace_lake.configuration.places import within
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.io.pyarrow import parquet_file_to_data_file
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table, Transaction
from pyiceberg.table.update.snapshot import ExpireSnapshots

from headrace_mirror.source import DeltaSource, Source

KEEP: Final = 100
"""Snapshots that stay, beside the current one. Older ones lead to files that Delta has vacuumed, sooner or later."""

_NAMES: Final = "schema.name-mapping.default"
_PROPERTIES: Final = {
    "gc.enabled": "false",  # the files are Delta's
    "commit.retry.num-retries": "0",  # a commit fits one snapshot only: after another one, look again
    "commit.manifest-merge.enabled": "true",
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "20",
}
_WITHOUT_RANGES: Final = {"write.metadata.metrics.default": "counts"}
_READERS: Final = 8
"""Threads that read the ends of Parquet files."""


class IcebergTarget:
    """The Iceberg table of one Delta table. Every call blocks on the catalog and may raise what pyiceberg does."""

    def __init__(self, catalog: Catalog, identifier: tuple[str, ...]) -> None:
        self._catalog = catalog
        self._identifier = identifier

    def shown(self) -> Mapping[str, str]:
        """Returns the properties of the current snapshot, with those of `Source.stamp`, or none."""
        try:
            snapshot = self._catalog.load_table(self._identifier).current_snapshot()
        except NoSuchTableError:
            snapshot = None
        return snapshot.summary.additional_properties if snapshot is not None and snapshot.summary is not None else {}

    def write(self, source: Source, lake: str) -> tuple[int, int]:
        """Commits a snapshot that lists the files of `source`; returns how many it added and removed.

        Raises `ConfigError` if the catalog puts the table into the folder `lake`, where Delta's vacuum would delete it.
        """
        content = source.content()
        table = self._table(content)
        if within(table.location(), lake):
            if table.current_snapshot() is None:
                self._catalog.drop_table(self._identifier)
            raise ConfigError(f"the Iceberg table {table.location()} is inside LAKE__PATH, which Delta's vacuum sweeps")
        before = _listed(table)
        with table.transaction() as transaction:
            _describe(transaction, content)
            added = _data_files(table, transaction, {p: v for p, v in content.files.items() if p not in before})
            removed = [file for path, file in before.items() if path not in content.files]
            update = transaction.update_snapshot(source.stamp)
            with update.overwrite() if removed else update.merge_append() as producer:
                for file in added:
                    producer.append_data_file(file)
                for file in removed:
                    producer.delete_data_file(file)
            old, waste = _expired(table)
            if old:
                ExpireSnapshots(transaction).by_ids(old).commit()
        for path in waste:
            table.io.delete(path)
        return len(added), len(removed)

    def _table(self, source: DeltaSource) -> Table:
        try:
            return self._catalog.load_table(self._identifier)
        except NoSuchTableError:
            return self._catalog.create_table(self._identifier, source.columns, properties=_PROPERTIES)


def _listed(table: Table) -> dict[str, DataFile]:
    """Returns the files of the current snapshot, by path."""
    snapshot = table.current_snapshot()
    return {
        entry.data_file.file_path: entry.data_file
        for manifest in (snapshot.manifests(table.io) if snapshot is not None else ())
        for entry in manifest.fetch_manifest_entry(table.io)
    }


def _describe(transaction: Transaction, source: DeltaSource) -> None:
    """Adds the columns, partitions and properties that the table lacks."""
    with transaction.update_schema() as update:
        update.union_by_name(source.columns)
    if transaction.table_metadata.spec().is_unpartitioned():
        with transaction.update_spec() as spec:
            for name in source.partitioned_by:
                spec.add_identity(name)
    metadata = transaction.table_metadata
    wanted = {**_PROPERTIES, _NAMES: metadata.schema().name_mapping.model_dump_json()}
    if missing := {name: value for name, value in wanted.items() if metadata.properties.get(name) != value}:
        transaction.set_properties(missing)


def _data_files(table: Table, transaction: Transaction, files: Mapping[str, tuple[Any, ...]]) -> list[DataFile]:
    """Describes Parquet files, whose ends it reads. The values of partitions are not in them."""
    metadata = transaction.table_metadata
    without_ranges = metadata.model_copy(update={"properties": {**metadata.properties, **_WITHOUT_RANGES}})

    def described(path: str) -> DataFile:
        try:
            file = parquet_file_to_data_file(table.io, metadata, path)
        except OverflowError:  # a time that Python does not have, such as a stranger's Kafka timestamp
            file = parquet_file_to_data_file(table.io, without_ranges, path)
        for number, value in enumerate(files[path]):
            file.partition[number] = value
        file.spec_id = metadata.default_spec_id
        return file

    with ThreadPoolExecutor(_READERS) as threads:
        return list(threads.map(described, files))


def _expired(table: Table) -> tuple[list[int], Iterable[str]]:
    """Returns the snapshots beyond `KEEP`, and the files of metadata that only they need. None while the table has a branch
    or a tag.
    """
    snapshots = sorted(table.metadata.snapshots, key=lambda each: each.sequence_number or 0)
    old, kept = snapshots[:-KEEP], snapshots[-KEEP:]
    if not old or len(table.metadata.refs) > 1:
        return [], ()
    needed = {manifest.manifest_path for manifest in kept[0].manifests(table.io)}
    waste = {manifest.manifest_path for each in old for manifest in each.manifests(table.io)} - needed
    return [each.snapshot_id for each in old], waste | {each.manifest_list for each in old}
