"""Items of quarantine: put together from rows of the lake, and read once more with the settings now given."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterator, Sequence
from datetime import datetime
from pkgutil import resolve_name
from typing import Any, Final

import duckdb
from headrace_common.operations.errors import ProtocolError
from headrace_common.operations.settings import Settings, load
from headrace_common.protocol import Protocol, installed
from headrace_common.record.contract import Reason
from headrace_common.record.event import Event
from headrace_common.session.again import QuarantinedItem, ReplayOutcome, read_again
from headrace_reader.address import LakeAddress, without_secrets
from headrace_reader.tables import connect, first_line

from headrace_cli.ground import CommandError
from headrace_cli.operating.records import parsed

_AT_ONCE: Final = 10
_ITEMS: Final = r"""
    with each_part as (
        select distinct on (name, hash, number) * from (
            select *, coalesce(sha256, '') as hash, coalesce(part, 1) as number,
                case when regexp_full_match(id, '[ud]\.[0-9a-f]{{32}}') then id
                    else concat(topic, '-', "partition", '-', "offset") end as name
            from quarantine where {where}))
    select name, any_value(reason), coalesce(any_value(protocol), '-'), coalesce(any_value(stream), '-'),
        coalesce(any_value(source), '-'), epoch_ms(min(received_time)), hash, any_value(attributes),
        coalesce(any_value(parts), 1) - count(*), list(coalesce(raw, ''::blob) order by number)
    from each_part group by name, hash order by max(received_time) desc, name, hash"""
"""An item that a client sent and no receiver understood, from its parts. Its name is its id, or its place on its topic if it has
none of ours. A resend is the same item.
"""


def items_of(
    lake: LakeAddress, reasons: Sequence[str] = (), protocols: Sequence[str] = (), since: datetime | None = None
) -> Iterator[tuple[QuarantinedItem, str]]:
    """Yield the items of these reasons and protocols (all, if there are none) that came since a time, the newest first, each with
    why it differs from what the client sent; an empty text if it does not.

    Raises `CommandError` if the table is missing or unreadable.
    """
    wanted: dict[str, Any] = {
        "list_contains(?, reason)": list(reasons), "list_contains(?, protocol)": list(protocols), "received_time >= ?": since,
    }  # fmt: skip
    conditions = {condition: value for condition, value in wanted.items() if value}
    where = " and ".join(conditions) or "true"
    with connect(lake) as connection:
        try:
            found = connection.execute(_ITEMS.format(where=where), [*conditions.values()])
            while rows := found.fetchmany(_AT_ONCE):
                for *known, sha256, attributes, missing, pieces in rows:
                    name, reason, protocol, stream, source, received_ms = known
                    about, content = parsed(attributes or "null"), b"".join(pieces)
                    item = QuarantinedItem(
                        name, reason, protocol, stream, source, received_ms, sha256,
                        about if isinstance(about, dict) else {}, content,
                    )  # fmt: skip
                    if missing:
                        yield item, f"{missing} of {missing + len(pieces)} parts are missing"
                    elif sha256 and hashlib.sha256(content).hexdigest() != sha256:
                        yield item, "its bytes do not have the hash that they had"
                    else:
                        yield item, ""
        except duckdb.Error as error:
            why = without_secrets(first_line(str(error)))
            raise CommandError(f"The quarantine table in {lake} cannot be read: {why}") from error


class ItemReader:
    """Reads items with the settings of the environment."""

    def __init__(self) -> None:
        self._settings: dict[str, Settings] = {}

    def read(self, item: QuarantinedItem) -> ReplayOutcome:
        """Return the receiver's outcome for an item today. Raises `ConfigError` for wrong settings, and nothing else."""
        if item.reason not in list(Reason):
            return ReplayOutcome(impossible="the record breaks the contract on its topic, no client sent it so")
        protocol = next((each for each in installed() if each.name == item.protocol and each.again), None)
        if protocol is None:
            return ReplayOutcome(impossible=f"nobody reads {item.protocol}")
        try:
            if item.reason == Reason.REFUSED:
                return read_again(item, [Event(item.content)])  # a whole record, with its id unless that is random
            replayed: ReplayOutcome = resolve_name(protocol.again)(item, self._settings_of(protocol))
            return replayed
        except ProtocolError as error:
            limit = f" ({error.limit})" if error.limit else ""
            return ReplayOutcome(impossible=f"the stream breaks: {error}{limit}")
        except (LookupError, ValueError, TypeError, struct.error) as error:
            return ReplayOutcome(impossible=str(error) or type(error).__name__)

    def _settings_of(self, protocol: Protocol[Any]) -> Settings:
        if protocol.name not in self._settings:
            self._settings[protocol.name] = load(protocol.settings)
        return self._settings[protocol.name]
