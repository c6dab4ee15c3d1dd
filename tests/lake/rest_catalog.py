"""An Iceberg REST catalog on the loopback, over pyiceberg's SQL catalog. Routes and statuses are those of Iceberg's OpenAPI
specification (`rest-catalog-open-api.yaml`); it can answer with faults.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote

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
from pyiceberg.table import CommitTableRequest, CommitTableResponse, Table

_STATUSES: dict[type[Exception], int] = {
    NoSuchNamespaceError: 404,
    NoSuchTableError: 404,
    NamespaceAlreadyExistsError: 409,
    TableAlreadyExistsError: 409,
    CommitFailedException: 409,
}
_SEPARATOR = "\x1f"
"""Between the levels of a namespace in a path."""

Act = Callable[[], tuple[int, Any]]
THREAD = "rest-catalog"


class RestCatalogServer(HTTPServer):
    """Serves the tables of `folder`, one request at a time, in a thread of its own."""

    def __init__(self, folder: Path, port: int = 0) -> None:
        super().__init__(("127.0.0.1", port), _Handler)
        self.catalog = SqlCatalog("headrace", uri=f"sqlite:///{folder}/catalog.db", warehouse=str(folder / "ice"))
        self.fault: Callable[[str, Act], tuple[int, Any]] = lambda request, act: act()
        """Answers a request ("POST /v1/…") with a status and a body; `act` does what was asked, and answers as it should."""
        self._thread = threading.Thread(target=self.serve_forever, args=(0.01,), name=THREAD, daemon=True)
        self._thread.start()

    def handle_error(self, *_: object) -> None:
        """Ends the connection without an answer: a fault wants it so."""

    def close(self) -> None:
        """Ends the server: its port refuses connections."""
        self.shutdown()
        self._thread.join()
        self.server_close()
        self.catalog.engine.dispose()


class _Handler(BaseHTTPRequestHandler):
    server: RestCatalogServer

    def _answer(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        body = json.loads(self.rfile.read(length)) if length else {}
        request = f"{self.command} {self.path.partition('?')[0]}"
        status, answer = self.server.fault(request, lambda: self._act(body))
        text = b"" if answer is None else answer.encode() if isinstance(answer, str) else json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    do_GET = do_POST = do_DELETE = do_HEAD = _answer  # noqa: N815

    def _act(self, body: dict[str, Any]) -> tuple[int, Any]:
        parts = [unquote(part) for part in self.path.partition("?")[0].split("/")[2:]]
        try:
            return self._done(parts, body)
        except Exception as error:
            return failed(_STATUSES.get(type(error), 500), type(error).__name__, str(error))

    def _done(self, parts: list[str], body: dict[str, Any]) -> tuple[int, Any]:
        catalog = self.server.catalog
        space = tuple(parts[1].split(_SEPARATOR)) if len(parts) > 1 else ()
        match self.command, parts[0], *parts[2:]:
            case "GET", "config":
                return 200, {"defaults": {}, "overrides": {}}
            case "POST", "namespaces":
                catalog.create_namespace(tuple(body["namespace"]), body["properties"])
                return 200, {"namespace": body["namespace"], "properties": {}}
            case "GET", "namespaces":
                return 200, {"namespace": space, "properties": dict(catalog.load_namespace_properties(space))}
            case "POST", "namespaces", "tables":
                wanted = CreateTableRequest.model_validate(
                    {"location": None, "partition-spec": None, "write-order": None, **body}
                )
                spec = wanted.partition_spec or UNPARTITIONED_PARTITION_SPEC
                place = (*space, wanted.name)
                return _shown(
                    catalog.create_table(
                        place, wanted.table_schema, wanted.location, spec, properties=wanted.properties
                    )
                )
            case "GET", "namespaces", "tables", name:
                return _shown(catalog.load_table((*space, name)))
            case "POST", "namespaces", "tables", name:
                asked = CommitTableRequest.model_validate(body)
                table = catalog.load_table((*space, name))
                done: CommitTableResponse = catalog.commit_table(table, asked.requirements, asked.updates)
                return 200, done.model_dump_json()
            case "DELETE", "namespaces", "tables", name:
                catalog.drop_table((*space, name))
                return 204, None
        return failed(406, "UnsupportedOperationException", self.path)

    def log_message(self, *_: object) -> None:
        """Says nothing."""


def failed(status: int, kind: str = "Exception", message: str = "") -> tuple[int, Any]:
    """Returns the answer of a request that failed."""
    return status, {"error": {"message": message, "type": kind, "code": status}}


def _shown(table: Table) -> tuple[int, Any]:
    return 200, TableResponse(metadata_location=table.metadata_location, metadata=table.metadata).model_dump_json()
