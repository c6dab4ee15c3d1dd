"""Catalogs over HTTP, which may be silent, or not know whether a commit has landed."""

from __future__ import annotations

from typing import Any, Final

import requests
from pyiceberg.catalog import AVAILABLE_CATALOGS, CatalogType, rest
from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException
from pyiceberg.table import CommitTableResponse
from typing_extensions import override

PATIENCE: Final = (10.0, 60.0)
"""Seconds that a REST catalog may take to accept a connection, and to go on with an answer."""


class _Session(requests.Session):
    """Gives up on a catalog that is silent: pyiceberg's own session would wait for ever."""

    @override
    def send(self, request: requests.PreparedRequest, **options: Any) -> requests.Response:
        return super().send(request, **{**options, "timeout": options.get("timeout") or PATIENCE})


class _RestCatalog(rest.RestCatalog):  # type: ignore[misc]
    """Takes a refused commit for one that may have landed: otherwise pyiceberg deletes the metadata that it wrote for it.

    A proxy that sends a request again when an answer is lost gives the answer to the second one: a conflict with the first.
    """

    @override
    def commit_table(self, *commit: Any) -> CommitTableResponse:
        try:
            return super().commit_table(*commit)
        except CommitFailedException as error:
            raise CommitStateUnknownException(str(error)) from error


def install() -> None:
    """Makes pyiceberg take both."""
    rest.Session = _Session
    AVAILABLE_CATALOGS[CatalogType.REST] = lambda name, properties: _RestCatalog(name, **properties)
