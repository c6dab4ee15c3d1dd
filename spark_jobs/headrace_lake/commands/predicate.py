"""Which records to erase: conditions of the command line as SQL over the two tables. No Spark, no Kafka."""

from __future__ import annotations

import hashlib
import json
import re
import secrets
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Self

from headrace_lake.spark.literals import quoted

_CONDITION: Final = re.compile(
    r"(?P<field>[a-z_]+)(?P<path>(?:\.[^.=\[\]]+|\[\d+\]|\['[^'\\]+'\])*)\s*=(?P<value>.*)", re.DOTALL
)
_STEP: Final = re.compile(r"\.([A-Za-z_$@][\w$@-]*)|\[(\d{1,9})\]|\['([^'\\]+)'\]")
_PLAIN: Final = ("id", "source", "stream", "protocol")
_WITHIN: Final = ("body", "attributes")


@dataclass(frozen=True)
class Condition:
    """`field` has the value; `path`: JSONPath within `body` or `attributes`, else empty."""

    field: str
    path: str
    value: str

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parses ``source=…``, ``body.user.id=…``. Raises `ValueError`; its text says what is wrong."""
        found = _CONDITION.fullmatch(text)
        if found is None:
            raise ValueError(f"{text!r} is not of the form NAME=VALUE")
        field, path, value = found["field"], found["path"], found["value"]
        if field not in (*_PLAIN, *_WITHIN):
            raise ValueError(f"{field!r} is none of {', '.join(_PLAIN)}, body.PATH, attributes.PATH")
        if bool(path) != (field in _WITHIN):
            raise ValueError(
                f"{text!r}: " + (f"{field} has no parts" if path else f"name a part, such as {field}.name")
            )
        if not value:
            raise ValueError(f"{text!r} has no value")
        return cls(field, _json_path(path) if path else "", value)

    def __str__(self) -> str:
        return f"{self.field}{self.path.removeprefix('$')}={self.value}"

    def sql(self, columns: dict[str, str]) -> str:
        """Returns SQL; `columns`: field -> its expression. A value within JSON is compared as text."""
        subject = columns[self.field]
        if self.path:
            subject = f"get_json_object({subject}, {quoted(self.path)})"
        return f"{subject} = {quoted(self.value)}"


@dataclass(frozen=True)
class Predicate:
    """The records received from `since` up to, but not including, `until` for which all `conditions` hold.

    Without any of them it names nothing.
    """

    conditions: tuple[Condition, ...] = ()
    since: datetime | None = None
    until: datetime | None = None

    def __bool__(self) -> bool:
        return bool(self.conditions or self.since or self.until)

    def __str__(self) -> str:
        times = {"received_time>=": self.since, "received_time<": self.until}
        said = [str(condition) for condition in self.conditions]
        return json.dumps([*said, *(f"{name}{time.isoformat()}" for name, time in times.items() if time)])

    def events(self) -> str:
        """Returns SQL over the events table."""
        return self._sql({"id": "event_id"})

    def quarantine(self) -> str:
        """Returns SQL over the quarantine table, where a body can be looked into only if the bytes are JSON."""
        return self._sql({"id": "id", "body": "if(is_valid_utf8(raw), string(raw), null)"})

    def _sql(self, own: dict[str, str]) -> str:
        columns = {name: name for name in (*_PLAIN, *_WITHIN)} | own
        parts = [condition.sql(columns) for condition in self.conditions]
        for sign, moment in ((">=", self.since), ("<", self.until)):
            if moment is not None:
                parts.append(f"received_time {sign} timestamp'{moment.isoformat(sep=' ')}'")
        return " and ".join(f"coalesce({part}, false)" for part in parts) or "false"


def parse(texts: Iterable[str], since: datetime | None, until: datetime | None) -> Predicate:
    """Returns the predicate of the command line. Raises `ValueError`; its text says what is wrong."""
    return Predicate(tuple(map(Condition.parse, texts)), since, until)


def _json_path(path: str) -> str:
    """Returns `path` as Spark's `get_json_object` takes it. Raises `ValueError` if Spark cannot look for it."""
    if _STEP.sub("", path):
        raise ValueError(f"`body{path}` is not a path: use .name, ['any name'] and [0]")
    if "['*']" in path:
        raise ValueError(f"`body{path}`: nothing finds the name *")
    steps = (f"[{index}]" if index else f"['{name or other}']" for name, index, other in _STEP.findall(path))
    return "$" + "".join(steps)


def hashed(text: str, salt: str | None = None) -> str:
    """Returns a salted hash of `text`, as ``sha256:SALT:DIGEST``: a reader who has the text can recognise it.

    The salt, 32 hex digits, is new unless given. The digest is that of the salt's digits followed by the text in UTF-8.
    """
    salt = salt or secrets.token_hex(16)
    return f"sha256:{salt}:{hashlib.sha256((salt + text).encode()).hexdigest()}"
