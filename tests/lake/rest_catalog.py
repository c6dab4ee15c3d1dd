"""An Iceberg REST catalog over pyiceberg's SQL catalog, in the place of the network. It can answer with faults.

Routes and statuses are those of Iceberg's OpenAPI specification (`rest-catalog-open-api.yaml`).
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from typing import Any, cast
from urllib.parse import unquote, urlsplit

from pyiceberg.catalog.rest import TableResponse
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import CommitTableRequest
from requests import PreparedRequest, Response

Act = Callable[[], tuple[int, str]]


class RestCatalog:
    """Serves the tables that are in the SQL catalog: they are shown, and changed."""

    def __init__(self, properties: dict[str, str]) -> None:
        self.catalog = SqlCatalog("headrace", **properties)
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
            return failed(409 if isinstance(error, CommitFailedException) else 500, str(error))

    def _done(self, method: str, parts: list[str], body: dict[str, Any]) -> str:
        match method, *parts:
            case "GET", "config":
                return json.dumps({"defaults": {}, "overrides": {}})
            case "GET", "namespaces", space:
                found = self.catalog.load_namespace_properties(space)
                return json.dumps({"namespace": [space], "properties": dict(found)})
            case "GET", "namespaces", space, "tables", name:
                table = self.catalog.load_table((space, name))
                shown = TableResponse(metadata_location=table.metadata_location, metadata=table.metadata)
                return str(shown.model_dump_json())
            case "POST", "namespaces", space, "tables", name:
                asked = CommitTableRequest.model_validate(body)
                table = self.catalog.load_table((space, name))
                return str(self.catalog.commit_table(table, asked.requirements, asked.updates).model_dump_json())
        raise NotImplementedError(method, parts)


def failed(status: int, message: str = "") -> tuple[int, str]:
    """Returns the answer of a request that failed."""
    return status, json.dumps({"error": {"message": message, "type": "Exception", "code": status}})
