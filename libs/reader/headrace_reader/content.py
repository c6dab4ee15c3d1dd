"""The proof of content: whether each range still holds what landed, by the digests in `batches`. Reads every row of the lake.

What a digest covers, and what it holds against: `headrace_lake.tables.digest`.
"""

# ruff: noqa: S608  (the SQL is assembled from constants and quoted names)
from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, Final

import duckdb
import numpy as np
import pyarrow as pa
from headrace_common.record.contract import GapField, GapReason
from headrace_lake.tables.digest import OF_TABLE, SEEDS, Covered, taken_in

from headrace_reader import xxh64
from headrace_reader.checks import checked, dropped, judged
from headrace_reader.tables import RETAINED, Row, interruptible, quoted
from headrace_reader.xxh64 import Words

_AT_ONCE: Final = 16_384
"""Rows that are hashed together."""
_PLACES: Final = "_places"
_DAY: Final = 86_400_000_000
_ZERO: Final = "0" * 32


def _contradicts(column: str, field: GapField) -> str:
    """Returns SQL: a marker has a whole number at `field`, and `column` has another one."""
    number = f"try_cast(regexp_extract(try_cast(g.detail as json)->>'$.{field}', '^-?[0-9]{{1,18}}$') as bigint)"
    return f"({number} is not null and {number} is distinct from g.{column})"


_HERE: Final = 'e.topic_id = g.topic_id and e."partition" = g."partition"'
_MARKERS: Final = f"""
    select g.topic, g."partition", g."offset" from gaps g
    left join main.events e on {_HERE} and e."offset" = g."offset"
    where g.reason in ('{GapReason.LOGJAM}', '{GapReason.JOINED}') and case when e.topic_id is null
        then not exists (from erasures e where e."table" = 'events' and {_HERE} and list_contains(e.offsets, g."offset"))
            and not exists (from {RETAINED} k where k."table" = 'events' and g.landed_at < k."from")
        else e.source is distinct from g.source or e.received_time is distinct from g.received_time
            or coalesce(e.body <> g.detail, false) or {_contradicts("device", GapField.DEVICE)}
            or {_contradicts("from_sequence", GapField.FROM)} or {_contradicts("to_sequence", GapField.TO)} end"""


def proven(connection: duckdb.DuckDBPyConnection) -> list[Row]:
    """Returns a row for each table that landing fills, one for Logjam's gaps, and one for the ranges without a proof of content,
    if there are any.
    """
    places(connection)
    found, unknown = [], []
    for table, covered in OF_TABLE.items():
        lines = _Lines(connection, table)
        interruptible(connection, partial(lines.read, connection, covered))
        found.append(judged(f"each range of {table} holds what landed", lines.wrong()))
        unknown += [f"{table}: {said}"] if (said := lines.unknown()) else []
    found.append(checked(connection, "each Logjam gap is what its marker in events says", _MARKERS))
    if unknown:
        found.append({"check": "ranges whose content nothing proves", "ok": True, "detail": "; ".join(unknown)})
    return found


def places(connection: duckdb.DuckDBPyConnection) -> None:
    """Numbers the partitions that `batches` has, in a table of our own."""
    connection.execute(
        f"""create temp table {_PLACES} as select *, row_number() over (order by topic_id, "partition") - 1 as place
        from (select distinct topic_id, "partition" from batches)"""
    )


class _Lines:
    """The lines of `batches`, in order, and the sums of their rows in one table."""

    def __init__(self, connection: duckdb.DuckDBPyConnection, table: str) -> None:
        self._table: Final = table
        found = connection.sql(_lines(table)).to_arrow_table()
        self._of: Final = found
        self._place, self._from, self._to, self._landed = (
            found[name].to_numpy() for name in ("place", "from", "to", "landed")
        )
        self._known = found["known"].to_numpy().astype(bool)
        self._excused = found["excused"].to_numpy().astype(bool)
        self._said = [found[name].to_numpy() for name in ("a", "b")]
        self._sums = [found[name].to_numpy().copy() for name in ("gone_a", "gone_b")]
        self._misdated = np.zeros(len(found), bool)

    def read(self, connection: duckdb.DuckDBPyConnection, covered: Covered) -> None:
        """Adds up the hashes of all rows of the table."""
        erased = f"""select unnest(offsets) as "offset", topic_id, "partition" from erasures where "table" = '{self._table}'"""
        named = ", ".join(f"t.{quoted(name)}" for name in covered[0])
        asked = f"""select p.place, epoch_us(t.landed_at) as landed, t."day", {named}
            from main."{self._table}" t join {_PLACES} p using (topic_id, "partition")
            anti join ({erased}) e on t.topic_id = e.topic_id and t."partition" = e."partition" and t."offset" = e."offset\""""
        for batch in connection.sql(asked).to_arrow_reader(_AT_ONCE):
            at = self._lines_of(batch)
            inside = at >= 0
            for sums, columns, seed in zip(self._sums, covered, SEEDS, strict=True):
                np.add.at(sums, at[inside], _hashes(batch, columns, seed)[inside])
            landed, day = batch["landed"].to_numpy(), batch["day"].cast(pa.int32()).to_numpy()
            misdated = inside & ((landed < self._landed[at]) | (landed // _DAY != day))
            self._misdated[at[misdated]] = True

    def _lines_of(self, batch: pa.RecordBatch) -> Any:
        """Returns the line of each row; -1 for rows that no line covers."""
        place, offset = batch["place"].to_numpy(), batch["offset"].to_numpy()
        at = np.full(len(place), -1)
        for number in np.unique(place):
            first, end = np.searchsorted(self._place, [number, number + 1])
            here = np.flatnonzero(place == number)
            line = first - 1 + np.searchsorted(self._from[first:end], offset[here], side="right")
            inside = (line >= first) & (offset[here] < self._to[line])
            at[here[inside]] = line[inside]
        return at

    def wrong(self) -> list[Row]:
        """Returns the ranges that do not hold what landed."""
        group = self._of["of"].to_numpy()
        sums = [np.zeros(int(group.max(initial=-1)) + 1, np.uint64) for _ in SEEDS]
        for total, own in zip(sums, self._sums, strict=True):
            np.add.at(total, group, own)
        differs = np.zeros(len(group), bool)
        for total, said in zip(sums, self._said, strict=True):
            differs |= total[group] != said
        wrong = np.flatnonzero((differs & self._known & ~self._excused) | self._misdated)
        named = self._of.select(["topic", "partition", "from", "to", "epoch", "batch"]).take(wrong)
        found: list[Row] = named.to_pylist()
        return found

    def unknown(self) -> str:
        """Returns how many ranges are without proof, and up to where; empty without any."""
        lines = np.flatnonzero(~self._known & ~self._excused)
        if not len(lines):
            return ""
        rows_of = self._of.select(["epoch", "batch"]).take(lines).to_pylist()
        last = max((row["epoch"], row["batch"]) for row in rows_of)
        return f"{len(lines)} of {len(self._known)} ranges, the last of them of batch {last[1]} of epoch {last[0]}"


def _lines(table: str) -> str:
    """Returns a query for the lines of `batches` with their digests of `table`, by place and offset.

    `of`: lines of one batch that share their sums. If one of them lacks its sums, the others' are unknown.
    """
    word = "18446744073709551616"

    def number(text: str, at: int) -> str:
        return f"coalesce(try_cast('0x' || substr({text}, {at}, 16) as ubigint), 0)"

    here = """e.topic_id = l.topic_id and e."partition" = l."partition\""""
    return f"""
    with lines as (
        select p.place, topic, topic_id, "partition", "from", "to", epoch, batch, landed_at,
            digest, coalesce(try_cast(digest->>'$.slot' as bigint), -1) as slot
        from (select * replace (try_cast(digest as json) as digest) from batches) b
        join {_PLACES} p using (topic_id, "partition")),
    gone as (
        select topic_id, "partition", "from",
            (sum({number("digest", 1)}) % {word})::ubigint as gone_a, (sum({number("digest", 17)}) % {word})::ubigint as gone_b
        from erasures where "table" = '{table}' and digest is not null and "from" is not null group by all),
    said as (
        select l.*, coalesce(digest->>'$.sums."{table}"', '{_ZERO}') as sums, coalesce(gone_a, 0) as gone_a,
            coalesce(gone_b, 0) as gone_b,
            {dropped(table, "l")} as excused,
            coalesce(json_type(digest->'$.sums') = 'OBJECT', false)
            and not (json_exists(digest, '$.sums."{table}"') and digest->>'$.sums."{table}"' is null)
            and not exists (from erasures e where e."table" = '{table}' and {here} and (e."from" is null or e.digest is null)
                and list_min(e.offsets) < l."to" and list_max(e.offsets) >= l."from") as known
        from lines l left join gone using (topic_id, "partition", "from"))
    select place, topic, "partition", "from", "to", epoch, batch, epoch_us(landed_at) as landed,
        gone_a::ubigint as gone_a, gone_b::ubigint as gone_b, {number("sums", 1)} as a, {number("sums", 17)} as b,
        dense_rank() over (order by epoch, batch, slot) - 1 as "of",
        bool_or(excused) over (partition by epoch, batch, slot) as excused,
        bool_and(known) over (partition by epoch, batch, slot)
            and bool_and(digest is not null) over (partition by epoch, batch) as known
    from said order by place, "from\""""


def _hashes(batch: pa.RecordBatch, columns: Sequence[str], seed: int) -> Words:
    """Returns the hashes of rows, as Spark computes them by `hash_sql`."""
    hashed = np.full(len(batch), xxh64.SEED)
    for part in taken_in(columns, seed):
        if isinstance(part, str):
            hashed = _column(batch[part], hashed)
        else:
            hashed = xxh64.of_ints(np.full(len(batch), part, np.uint64), hashed)
    return hashed


def _column(column: pa.Array, seed: Words) -> Words:
    kind = column.type
    if (
        pa.types.is_string(kind)
        or pa.types.is_large_string(kind)
        or pa.types.is_binary(kind)
        or pa.types.is_large_binary(kind)
    ):
        return xxh64.of_texts(column, seed)
    there = ~column.is_null().to_numpy(zero_copy_only=False)
    if pa.types.is_floating(kind):
        values = column.fill_null(0).to_numpy().astype(np.float64)
        bits = np.where(np.isnan(values), np.float64("nan"), values + 0.0).view(np.uint64)
        hashed = xxh64.of_longs(bits, seed)
    elif pa.types.is_timestamp(kind) or pa.types.is_int64(kind):
        hashed = xxh64.of_longs(_whole(column.cast(pa.int64())), seed)
    else:
        hashed = xxh64.of_ints(_whole(column.cast(pa.int32())), seed)
    return np.where(there, hashed, seed)


def _whole(column: pa.Array) -> Words:
    whole: Words = column.fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64).view(np.uint64)
    return whole
