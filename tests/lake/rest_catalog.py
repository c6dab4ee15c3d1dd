"""An Iceberg REST catalog over pyiceberg's SQL catalog, in the place of the network. It can answer with faults.

Routes and statuses are those of Iceberg's OpenAPI specification (`rest-catalog-open-api.yaml`).
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, cast
from urllib.parse import unquote, urlsplit

from pyiceberg.catalog.rest import CreateTableRequest, TableResponse
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import (
    CommitFailedException,
    NamespaceAlreadyExistsError,
    NoSuchNamespaceError,
    NoSuchTableError,
    TableAlreadyExistsError,
)
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.table import CommitTableRequest, Table
from requests import PreparedRequest, Response

_STATUSES: dict[type[Exception], int] = {
    NoSuchNamespaceError: 404,
    NoSuchTableError: 404,
    NamespaceAlreadyExistsError: 409,
    TableAlreadyExistsError: 409,
    CommitFailedException: 409,
}
Act = Callable[[], tuple[int, str]]


class RestCatalog:
    """Serves the tables of `folder`."""

    def __init__(self, folder: Path) -> None:
        self.catalog = SqlCatalog("headrace", uri=f"sqlite:///{folder}/catalog.db", warehouse=str(folder / "ice"))
        self.fault: Callable[[str, Act], tuple[int, str]] = lambda request, act: act()
        """Answers a request ("POST /v1/…") with a status and a body; `act` does what was asked, and answers as it should."""

    def send(self, request: PreparedRequest, **_: object) -> Response:
        """Answers as `requests.adapters.HTTPAdapter.send` does."""
        path = urlsplit(str(request.url)).path
        response = Response()
        act = partial(self._act, str(request.method), path, json.loads(cast("bytes", request.body or b"{}")))
        response.status_code, text = self.fault(f"{request.method} {path}", act)
        response._content = text.encode()
        response.request = request
        return response

    def _act(self, method: str, path: str, body: dict[str, Any]) -> tuple[int, str]:
        try:
            return 200, self._done(method, [unquote(part) for part in path.split("/")[2:]], body)
        except Exception as error:
            return failed(_STATUSES.get(type(error), 500), type(error).__name__, str(error))

    def _done(self, method: str, parts: list[str], body: dict[str, Any]) -> str:
        space = tuple(parts[1:2])
        match method, parts[0], *parts[2:]:
            case "GET", "config":
                return json.dumps({"defaults": {}, "overrides": {}})
            case "POST", "namespaces":
                self.catalog.create_namespace(tuple(body["namespace"]), body["properties"])
                return json.dumps({"namespace": body["namespace"], "properties": {}})
            case "GET", "namespaces":
                found = self.catalog.load_namespace_properties(space)
                return json.dumps({"namespace": space, "properties": dict(found)})
            case "POST", "namespaces", "tables":
                unset = {"location": None, "partition-spec": None, "write-order": None}
                wanted = CreateTableRequest.model_validate({**unset, **body})
                spec = wanted.partition_spec or UNPARTITIONED_PARTITION_SPEC
                return _shown(
                    self.catalog.create_table(
                        (*space, wanted.name), wanted.table_schema, wanted.location, spec, properties=wanted.properties
                    )
                )
            case "GET", "namespaces", "tables", name:
                return _shown(self.catalog.load_table((*space, name)))
            case "POST", "namespaces", "tables", name:
                asked = CommitTableRequest.model_validate(body)
                table = self.catalog.load_table((*space, name))
                return str(self.catalog.commit_table(table, asked.requirements, asked.updates).model_dump_json())
        raise NotImplementedError(method, parts)


def failed(status: int, kind: str = "Exception", message: str = "") -> tuple[int, str]:
    """Returns the answer of a request that failed."""
    return status, json.dumps({"error": {"message": message, "type": kind, "code": status}})


def _shown(table: Table) -> str:
    return str(TableResponse(metadata_location=table.metadata_location, metadata=table.metadata).model_dump_json())
