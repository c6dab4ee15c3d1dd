"""The catalog of MIRROR__CATALOG. A REST catalog may be silent, away, or not know whether a commit has landed."""

from __future__ import annotations

from typing import Any, Final

import requests
from headrace_common.operations.errors import ConfigError
from pyiceberg.catalog import AVAILABLE_CATALOGS, Catalog, CatalogType, load_catalog, rest
from pyiceberg.exceptions import (
    CommitFailedException,
    CommitStateUnknownException,
    ServerError,
    ServiceUnavailableError,
    TooManyRequestsError,
)
from pyiceberg.io import FileIO
from pyiceberg.table import CommitTableResponse, Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update import AddSnapshotUpdate, TableRequirement, TableUpdate
from sqlalchemy.exc import OperationalError
from typing_extensions import override

PATIENCE: Final = (10.0, 60.0)
"""Seconds that a REST catalog may take to accept a connection, and to go on with an answer."""
_PASSING: Final = (
    requests.ConnectionError,
    requests.Timeout,
    OperationalError,  # of an SQL database that does not answer, or is locked; a wrong password cannot be told from it
    CommitStateUnknownException,
    ServerError,
    ServiceUnavailableError,
    TooManyRequestsError,
)
"""Failures of a catalog that is away or overloaded."""


class _Session(requests.Session):
    """Gives up on a catalog that is silent: pyiceberg's own session would wait for ever."""

    @override
    def send(self, request: requests.PreparedRequest, **options: Any) -> requests.Response:
        return super().send(request, **{**options, "timeout": options.get("timeout") or PATIENCE})


class _RestCatalog(rest.RestCatalog):  # type: ignore[misc]
    """Looks whether a commit has landed that was refused, before pyiceberg deletes the metadata it wrote for it.

    A proxy that sends a request again when an answer is lost gives the answer to the second one: a conflict with the first.
    """

    @override
    def commit_table(
        self, table: Table, requirements: tuple[TableRequirement, ...], updates: tuple[TableUpdate, ...]
    ) -> CommitTableResponse:
        try:
            return super().commit_table(table, requirements, updates)
        except (CommitFailedException, CommitStateUnknownException):
            now = self.load_table(table.name())
            added = [each.snapshot.snapshot_id for each in updates if isinstance(each, AddSnapshotUpdate)]
            if not added or any(now.metadata.snapshot_by_id(each) is None for each in added):
                raise
            return CommitTableResponse(metadata=now.metadata, metadata_location=now.metadata_location)

    @staticmethod
    @override
    def _delete_old_metadata(io: FileIO, base: TableMetadata, metadata: TableMetadata) -> None:
        """Leaves them to the server, which has written them, and may need them yet."""


rest.Session = _Session
AVAILABLE_CATALOGS[CatalogType.REST] = lambda name, properties: _RestCatalog(name, **properties)


def opened(properties: dict[str, str]) -> Catalog:
    """Opens the catalog. Raises `ConfigError` if the properties are none of pyiceberg's or the catalog refuses them, and the
    errors of `requests`, sqlalchemy or pyiceberg while the catalog is away.
    """
    try:
        return load_catalog("headrace", **properties)
    except _PASSING:
        raise
    except Exception as error:
        raise ConfigError(f"MIRROR__CATALOG opens no catalog: {error}") from error
