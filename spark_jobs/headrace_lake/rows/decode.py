"""Turns records into rows, and counts rows while they are written. Pure: frames in, frames out.

Nothing that a producer can send makes these expressions throw.

Headers have a fixed order (`headrace_common.record.contract.HEADERS`). Each is read at its position and its key compared: half
the cost of a search by name. Only those of a record with another order, or with foreign headers, are searched by name, and put
into this order: by higher-order functions, which have no generated code. Spark generates the code of a plan, if not its classes,
again for each batch, and a large part of a small batch's cost is that: what is rare must not be in it.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from headrace_common.record.contract import (
    EVENT_RULES,
    HEADERS,
    JSON,
    QUARANTINE_HEADERS,
    QUARANTINE_RULES,
    REQUIRED_HEADERS,
    TYPE_PREFIX,
    Attribute,
    RecordFault,
    Rule,
)
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf

from headrace_lake.spark.jvm import selected
from headrace_lake.spark.literals import OURS
from headrace_lake.spark.literals import quoted as quoted
from headrace_lake.tables.layout import DAY

FAULT: Final = f"{OURS}fault"
"""Column of decoded rows: a `RecordFault`; null if the record is sound."""

_RECORD: Final = ("topic", "partition", "offset", "timestamp", "key", "value", "headers")
_CALENDAR: Final = "between timestamp'0001-01-01 00:00:00Z' and timestamp'9999-12-31 23:59:59.999999Z'"
"""The limits of other readers' calendars."""

_ROOM: Final = 1 << 30
"""Values for which a histogram has room; it takes memory only for those that it meets."""


@dataclass(frozen=True, slots=True)
class Topics:
    """The names of the two topics; `ids`: topic -> Kafka's id of it."""

    events: str
    quarantine: str
    ids: Mapping[str, str]


def decoded(records: DataFrame) -> DataFrame:
    """Returns `records` (a Kafka source's frame, with headers), plus `FAULT` and what the events table has of each record alone.

    Spark analyses this once for a whole stream; what depends on the batch (`events`), for each batch.
    """
    return selected(
        _event_texts(records),
        *_RECORD,
        FAULT,
        "ce_id as event_id",
        f"{_PROTOCOL} as protocol",
        "ce_source as source",
        "ce_subject as stream",
        f"if(time {_CALENDAR}, time, null) as event_time",
        "ce_time as event_time_text",
        "`content-type` as content_type",
        "if(json, string(value), null) as body",
        "if(json, null, value) as payload",
        "ce_attributes as attributes",
    )


def events(records: DataFrame, topics: Topics, landed_at: datetime) -> DataFrame:
    """Returns the rows for the events table from `decoded` records, plus `FAULT`.

    A row with a fault is not an event: `faults` turns its record into a row for the quarantine table.
    """
    own = ("event_id", "protocol", "source", "stream", "event_time", "event_time_text", "timestamp as received_time")
    rest = ("content_type", "body", "payload", "attributes")
    frame = records.where(f"topic = {quoted(topics.events)}")
    return selected(frame, FAULT, *own, *rest, *_position(topics.events, topics, landed_at))


def faults(records: DataFrame, topics: Topics, landed_at: datetime) -> DataFrame:
    """Returns the rows for the quarantine table from records in which `events` finds a fault: the whole record, with headers and
    key.
    """
    frame = _event_texts(records.where(f"topic = {quoted(topics.events)}")).where(f"{FAULT} is not null")
    protocol = f"nullif({_PROTOCOL}, '')"
    rows = _kept(topics.events, topics, landed_at, _EVENT_RULES, protocol=protocol, reject_id="ce_id")
    return selected(frame, *rows)


def rejects(records: DataFrame, topics: Topics, landed_at: datetime) -> DataFrame:
    """Returns the rows for the quarantine table from the quarantine topic: every record of it, sound or not."""
    frame = _headers(records.where(f"topic = {quoted(topics.quarantine)}"), QUARANTINE_HEADERS, QUARANTINE_HEADERS)
    frame = selected(
        frame, *_RECORD, "missing", "repeated", *_as_text(QUARANTINE_HEADERS), "false as json",
        "try_cast(substring_index(string(part), '/', 1) as int) as part_number",
        "try_cast(substring_index(string(part), '/', -1) as int) as parts",
    ).withColumn(FAULT, sf.expr(_fault(_REJECT_RULES)))  # fmt: skip
    own = {
        "reason": "reason", "detail": "detail", "part": "part_number", "parts": "parts", "sha256": "sha256",
        "attributes": "attributes",
    }  # fmt: skip
    rows = _kept(topics.quarantine, topics, landed_at, _REJECT_RULES, protocol="protocol", reject_id="id", own=own)
    return selected(frame, *rows)


def keyed_counts(key: str) -> Column:
    """Returns an aggregate that counts rows by `key` (SQL), a whole number below 2^53; rows where it is null do not count.

    Pass its value to `counts`. An aggregate for each key would cost every row time for every key, and every task a copy of them
    all. Spark's own `histogram_numeric` keeps a count for each value that it meets, and is exact as long as it has room for all.
    A Kafka partition is read by one task, so no task holds more counts than it has partitions.
    """
    return sf.expr(f"to_json(histogram_numeric(double({key}), {_ROOM}))")


def counts(value: str | None) -> Counter[int]:
    """Returns key -> number of rows, from the value of `keyed_counts`."""
    found: Counter[int] = Counter()
    for entry in json.loads(value or "[]"):
        found[int(entry["x"])] += int(entry["y"])
    return found


def _event_texts(records: DataFrame) -> DataFrame:
    frame = _headers(records, HEADERS, REQUIRED_HEADERS)
    return selected(
        frame, *_RECORD, "missing", "repeated", *_as_text(HEADERS), "has_ce_attributes",
        "try_cast(string(ce_time) as timestamp) as time",
        f"`content-type` = X'{JSON.hex()}' as json",
    ).withColumn(FAULT, sf.expr(_fault(_EVENT_RULES)))  # fmt: skip


def _kept(
    topic: str,
    topics: Topics,
    landed_at: datetime,
    rules: Mapping[str, str],
    *,
    protocol: str,
    reject_id: str,
    own: Mapping[str, str] | None = None,
) -> list[str]:
    """Returns the columns of the quarantine table for a frame with `FAULT`: the whole record, and the known fields.

    `own`: column -> its value if the record is sound.
    """
    wrong = (f"if(coalesce({_obeys(name, rule)}, false), null, {quoted(name)})" for name, rule in rules.items())
    columns = {
        "raw": "value",
        "reason": FAULT,
        "detail": f"case {FAULT} when '{RecordFault.MISSING_HEADER}' then missing"
        f" when '{RecordFault.REPEATED_HEADER}' then repeated when '{RecordFault.MALFORMED_HEADER}'"
        f" then concat_ws(', ', {', '.join(wrong)}) else '' end",
        "protocol": _if_valid(protocol),
        "source": _if_valid("ce_source"),
        "stream": _if_valid("ce_subject"),
        "id": _if_valid(reject_id),
        "part": "1",
        "parts": "1",
        "sha256": "sha2(value, 256)",
        # binary becomes base64
        "attributes": f"to_json(named_struct('{Attribute.HEADERS}', headers, '{Attribute.RECORD_KEY}', key))",
        "received_time": "timestamp",
    }
    for name, column in (own or {}).items():
        columns[name] = f"if({FAULT} is null, {column}, {columns[name]})"
    return [*(f"{column} as {name}" for name, column in columns.items()), *_position(topic, topics, landed_at)]


def _headers(records: DataFrame, names: Sequence[str], required: Sequence[str]) -> DataFrame:
    """Returns `records` with a binary column per header in `names`; `missing` and `repeated` list names with commas, or are null.

    `has_<name>` distinguishes an optional header that is null from one that is absent.
    """
    size = "size(headers)"
    ordered = [f"{size} between {len(required)} and {len(names)}"] + [
        f"{'' if name in required else f'{size} <= {index} or '}get(headers, {index}).key = {quoted(name)}"
        for index, name in enumerate(names)
    ]
    frame = selected(records, *_RECORD, f"coalesce({_every(ordered)}, false) as in_order")
    found = "filter(headers, each -> each.key = name)"
    frame = selected(
        frame,
        *_RECORD,
        f"if(in_order, headers, transform({_array(names)}, name -> get({found}, 0))) as named",
        f"if(in_order, null, {_names(required, f'coalesce(size({found}), 0) < 1')}) as missing",
        f"if(in_order, null, {_names(names, f'size({found}) > 1')}) as repeated",
    )
    return selected(
        frame, *_RECORD, "missing", "repeated",
        *(f"get(named, {index}).value as {_name(name)}" for index, name in enumerate(names)),
        *(f"get(named, {names.index(name)}) is not null as {_name('has_' + name)}" for name in names if name not in required),
    )  # fmt: skip


def _array(names: Sequence[str]) -> str:
    return f"array({', '.join(map(quoted, names))})"


def _names(names: Sequence[str], condition: str) -> str:
    """Returns SQL: the `names` for which the `condition` on `name` holds, with commas; null without any."""
    return f"nullif(array_join(filter({_array(names)}, name -> {condition}), ', '), '')"


_PROTOCOL: Final = f"substring_index(substring(ce_type, {len(TYPE_PREFIX) + 1}), '.', 1)"


def _name(name: str) -> str:
    return f"`{name}`"


def _obeyed(text: str, rule: Rule) -> str:
    """Returns SQL: whether `text` obeys a rule; null for null."""
    found = [f"{text} = {quoted(rule.equals)}"] if rule.equals else []
    if rule.least and rule.least == rule.most:
        found.append(f"octet_length({text}) = {rule.least}")
    else:
        found += [f"octet_length({text}) >= {rule.least}"] if rule.least else []
        found += [f"octet_length({text}) <= {rule.most}"] if rule.most is not None else []
    if rule.begins:
        found.append("(" + " or ".join(f"startswith({text}, {quoted(each)})" for each in rule.begins) + ")")
    found += [f"endswith({text}, {quoted(rule.ends)})"] if rule.ends else []
    found += [f"{text} rlike {quoted(f'^{rule.pattern}$')}"] if rule.pattern else []
    return " and ".join(found) or "true"


_EVENT_RULES: Final = {name.value: _obeyed(_name(name), rule) for name, rule in EVENT_RULES.items()}
# Spark reads most times quickly. It also reads less than a date with a time of day, and it cannot read every valid time.
_EVENT_RULES["ce_time"] = (
    "(time is not null and octet_length(ce_time) >= 20 and substring(ce_time, 11, 1) = 'T')"
    f" or {_EVENT_RULES['ce_time']}"
)

_REJECT_RULES: Final = {str(name): _obeyed(_name(name), rule) for name, rule in QUARANTINE_RULES.items()}
_REJECT_RULES["part"] += " and part_number >= 1 and part_number <= parts"


def _fault(rules: Mapping[str, str]) -> str:
    sound = _every(_obeys(name, rule) for name, rule in rules.items())
    cases = [
        ("value is null", RecordFault.NULL_VALUE),
        ("missing is not null", RecordFault.MISSING_HEADER),
        ("repeated is not null", RecordFault.REPEATED_HEADER),
        (f"not coalesce({sound}, false)", RecordFault.MALFORMED_HEADER),
        ("json and not is_valid_utf8(string(value))", RecordFault.INVALID_UTF8),
    ]
    return "case " + " ".join(f"when {condition} then '{fault}'" for condition, fault in cases) + " end"


def _obeys(name: str, rule: str) -> str:
    absent = f"not has_{name} or " if name in HEADERS and name not in REQUIRED_HEADERS else ""
    return f"{absent}(is_valid_utf8({_name(name)}) and ({rule}))"


def _if_valid(text: str) -> str:
    return f"if(is_valid_utf8({text}), {text}, null)"


def _as_text(names: Iterable[str]) -> list[str]:
    return [f"string({_name(name)}) as {_name(name)}" for name in names]


def _position(topic: str, topics: Topics, landed_at: datetime) -> list[str]:
    # A literal would become part of the generated code, and Spark would compile it again for each batch (0.7 CPU-seconds
    # in a young JVM). An array is passed to the code instead. The index is always 0, but Spark cannot know that.
    moment = f"get(array(timestamp'{landed_at:%Y-%m-%d %H:%M:%S.%f}Z'), int(offset < 0))"
    return [
        "topic",
        f"{quoted(topics.ids[topic])} as topic_id",
        "partition",
        "offset",
        f"{moment} as landed_at",
        f"date'{landed_at:%Y-%m-%d}' as {DAY}",
    ]


def _every(conditions: Iterable[str]) -> str:
    return "(" + " and ".join(f"({condition})" for condition in conditions) + ")"
