"""Rows in memory behind the calls by which the product asks Spark for them."""

from __future__ import annotations

import operator
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

from pyspark.sql import Row

Rows = list[dict[str, Any]]
Condition = Callable[[Mapping[str, Any]], Any]

CONDITIONS: dict[str, Condition] = {
    "false": lambda _: False,
    "true": lambda _: True,
}
"""SQL over a row, and what it means here."""
_RANGE = re.compile(r"topic_id = '(.*?)' and partition = (\d+) and offset >= (\d+)(?: and offset < (\d+))?")
_BY_TOPIC = re.compile(r"when '(.*?)' then '(.*?)'")


@lru_cache(10_000)
def condition(text: str) -> Condition:
    """What a condition in SQL means; also those that name ranges of offsets."""
    if text in CONDITIONS:
        return CONDITIONS[text]
    ranges = [
        (topic_id, int(number), int(first), int(end) if end else 1 << 60)
        for topic_id, number, first, end in _RANGE.findall(text)
    ]
    if not ranges:
        raise NotImplementedError(text)

    def inside(row: Mapping[str, Any]) -> bool:
        place, offset = (row["topic_id"], row["partition"]), row["offset"]
        return any(place == (topic_id, number) and first <= offset < end for topic_id, number, first, end in ranges)

    return inside


class Expression:
    """A column, or a condition, over a row; with `over`, an aggregate. What the model need not know is None."""

    def __init__(
        self,
        value: Condition = lambda _: None,
        name: str = "",
        over: Callable[[Rows], Any] | None = None,
        *,
        many: bool = False,
    ) -> None:
        self.value = value
        self.name = name
        self.over = over
        self.many = many
        """Whether each row becomes as many as the value has entries."""

    def alias(self, name: str) -> Expression:
        return Expression(self.value, name, self.over, many=self.many)

    def _with(self, act: Callable[[Any, Any], Any], other: object) -> Expression:
        right = expression(other)

        def value(row: Mapping[str, Any]) -> Any:
            one, two = self.value(row), right.value(row)
            return None if one is None or two is None else act(one, two)

        return Expression(value)

    def __eq__(self, other: object) -> Expression:  # type: ignore[override]
        return self._with(operator.eq, Literal(other))

    __hash__ = None  # type: ignore[assignment]

    def __lt__(self, other: object) -> Expression:
        return self._with(operator.lt, Literal(other))

    def __and__(self, other: Expression) -> Expression:
        return Expression(lambda row: bool(self.value(row) and other.value(row)))

    def __or__(self, other: Expression) -> Expression:
        return Expression(lambda row: bool(self.value(row) or other.value(row)))

    def __add__(self, other: object) -> Expression:
        return self._with(operator.add, Literal(other))

    def __mul__(self, other: object) -> Expression:
        return self._with(operator.mul, Literal(other))

    def __sub__(self, other: object) -> Expression:
        return self._with(operator.sub, Literal(other))

    def __invert__(self) -> Expression:
        return Expression(lambda row: not self.value(row))

    def isNotNull(self) -> Expression:
        return Expression(lambda row: self.value(row) is not None)

    def otherwise(self, other: object) -> Expression:
        return Functions().coalesce(self, Literal(other))

    def __getattr__(self, name: str) -> Any:
        return lambda *_, **__: self


class Literal(Expression):
    """A constant; an expression stays what it is."""

    def __new__(cls, value: object) -> Expression:  # type: ignore[misc]
        return value if isinstance(value, Expression) else Expression(lambda _: value)


def expression(given: object) -> Expression:
    """A name means a column, as in Spark."""
    return Functions().col(given) if isinstance(given, str) else Literal(given)


class Functions:
    """In place of `pyspark.sql.functions`."""

    def col(self, name: str) -> Expression:
        name = name.strip("`")
        return Expression(lambda row: row.get(name), name)

    def lit(self, value: object) -> Expression:
        return Expression(lambda _: value)

    def expr(self, text: str) -> Expression:
        if text.startswith("case topic "):
            ids = dict(_BY_TOPIC.findall(text))
            return Expression(lambda row: ids.get(row["topic"]))
        return Expression(CONDITIONS.get(text, lambda _: None))

    def when(self, wanted: Expression, value: object) -> Expression:
        given = Literal(value)
        return Expression(lambda row: given.value(row) if wanted.value(row) else None)

    def coalesce(self, *given: object) -> Expression:
        parts = [expression(each) for each in given]

        def first(row: Mapping[str, Any]) -> Any:
            return next((found for part in parts if (found := part.value(row)) is not None), None)

        return Expression(first)

    def explode(self, name: str) -> Expression:
        return Expression(lambda row: row[name] or (), many=True)

    def broadcast(self, frame: Frame) -> Frame:
        return frame

    def count(self, _: object) -> Expression:
        return Expression(over=len)

    def count_if(self, given: object) -> Expression:
        wanted = expression(given)
        return Expression(over=lambda rows: sum(bool(wanted.value(row)) for row in rows))

    def keyed(self, given: Expression) -> Expression:
        """In place of `keyed_counts`."""
        return Expression(over=lambda rows: Counter(found for row in rows if (found := given.value(row)) is not None))

    def min(self, given: object) -> Expression:
        return self._over(min, given)

    def max(self, given: object) -> Expression:
        return self._over(max, given)

    def sum(self, given: object) -> Expression:
        return self._over(sum, given)

    def _over(self, act: Callable[[list[Any]], Any], given: object) -> Expression:
        part = expression(given)

        def over(rows: Rows) -> Any:
            found = [value for row in rows if (value := part.value(row)) is not None]
            return act(found) if found else None

        return Expression(over=over)

    def __getattr__(self, name: str) -> Any:
        return lambda *_, **__: Expression()


Measure = Expression | Callable[[Rows], dict[str, Any]]


def measured(rows: Rows, measures: Iterable[Measure]) -> dict[str, Any]:
    """The aggregates over `rows`, by name."""
    found: dict[str, Any] = {}
    for place, measure in enumerate(measures):
        if isinstance(measure, Expression):
            assert measure.over is not None, measure.name
            found[measure.name or f"_{place}"] = measure.over(rows)
        else:
            found |= measure(rows)
    return found


class Observed:
    """In place of `Observation`. `get` is there once the rows that it counts are committed."""

    get: dict[str, Any]


class Frame:
    """Rows that are read when they are needed, as often as they are needed."""

    def __init__(
        self, read: Callable[[], Rows], observed: Callable[[], None] | None = None, columns: Sequence[str] = ()
    ) -> None:
        self.read = read
        self.observed = observed
        self._columns = list(columns)
        self.write: Any = None

    @property
    def columns(self) -> list[str]:
        """The names that were given, or those of the rows that are there."""
        return self._columns or list({name: None for row in self.read() for name in row})

    def _then(self, act: Callable[[Rows], Rows], columns: Sequence[str] | None = None) -> Frame:
        return Frame(lambda: act(self.read()), self.observed, self._columns if columns is None else columns)

    def where(self, wanted: Any) -> Frame:
        holds = condition(wanted) if isinstance(wanted, str) else wanted.value
        return self._then(lambda rows: [row for row in rows if holds(row)])

    def select(self, *columns: Any) -> Frame:
        parts = [expression(column) for column in columns]
        many = next((part for part in parts if part.many), None)

        plain = {column.strip("`") for column in columns if isinstance(column, str)}

        def chosen(row: Mapping[str, Any]) -> dict[str, Any]:
            return {
                part.name: part.value(row)
                for part in parts
                if part is not many and (part.name in row or part.name not in plain)
            }

        def act(rows: Rows) -> Rows:
            if many is None:
                return [chosen(row) for row in rows]
            return [{**chosen(row), many.name: value} for row in rows for value in many.value(row)]

        return self._then(act, [part.name for part in parts])

    def withColumn(self, name: str, value: Expression) -> Frame:
        columns = [*self._columns, name] if self._columns else ()
        return self._then(lambda rows: [{**row, name: value.value(row)} for row in rows], columns)

    def drop(self, name: str) -> Frame:
        columns = [column for column in self._columns if column != name]
        return self._then(
            lambda rows: [{key: value for key, value in row.items() if key != name} for row in rows], columns
        )

    def distinct(self) -> Frame:
        return self._then(lambda rows: list({tuple(row.values()): row for row in rows}.values()))

    def join(self, other: Frame, on: Any, how: str) -> Frame:
        def paired(rows: Rows) -> Rows:
            others, alone = other.read(), [dict[str, Any]()] if how == "left" else []
            pairs = [(row, [each for each in others if on.value({**row, **each})]) for row in rows]
            return [{**row, **each} for row, found in pairs for each in found or alone]

        def by_key(rows: Rows) -> Rows:
            there = {tuple(row[key] for key in on) for row in other.read()}
            return [row for row in rows if (tuple(row[key] for key in on) in there) == (how == "left_semi")]

        if how.startswith("left_"):
            return self._then(by_key)
        return self._then(paired, [*self._columns, *other._columns] if self._columns and other._columns else ())

    def unionAll(self, other: Frame) -> Frame:
        return Frame(lambda: [*self.read(), *other.read()], columns=self._columns)

    def unionByName(self, other: Frame, **_: bool) -> Frame:
        names = self._columns
        return Frame(lambda: [*self.read(), *({**dict.fromkeys(names), **row} for row in other.read())], columns=names)

    def coalesce(self, _: int) -> Frame:
        return self

    def orderBy(self, *names: str) -> Frame:
        return self._then(lambda rows: sorted(rows, key=lambda row: [row[name] for name in names]))

    def createOrReplaceTempView(self, _: str) -> None:
        """A view is read when it is used: `Spark.sql` does that."""

    def persist(self) -> Frame:
        kept: list[Rows] = []

        def read() -> Rows:
            if not kept:
                kept.append(self.read())
            return kept[0]

        return Frame(read, self.observed, self._columns)

    def unpersist(self) -> None:
        pass

    def observe(self, observation: Observed, *measures: Measure) -> Frame:
        seen: dict[str, Any] = {}

        def act(rows: Rows) -> Rows:
            seen.update(measured(rows, measures))
            return rows

        def committed() -> None:
            observation.get = seen

        return Frame(lambda: act(self.read()), committed, self._columns)

    def agg(self, *measures: Measure) -> Frame:
        return self._then(lambda rows: [measured(rows, measures)])

    def groupBy(self, *keys: Any) -> Grouped:
        return Grouped(self, [expression(key) for key in keys])

    def count(self) -> int:
        return len(self.read())

    def first(self) -> Row | None:
        return next(iter(self.collect()), None)

    def collect(self) -> list[Row]:
        return [Row(**row) for row in self.read()]

    def toLocalIterator(self) -> Iterator[Row]:
        return iter(self.collect())

    def isEmpty(self) -> bool:
        return not self.read()


class Grouped:
    """The rows of a frame by keys."""

    def __init__(self, frame: Frame, keys: Sequence[Expression]) -> None:
        self._frame = frame
        self._keys = keys
        self._names = [key.name or f"key{place}" for place, key in enumerate(keys)]

    def count(self) -> Frame:
        return self.agg(Functions().count(1).alias("count"))

    def agg(self, *measures: Expression) -> Frame:
        def read() -> Rows:
            groups: dict[tuple[Any, ...], Rows] = {}
            for row in self._frame.read():
                groups.setdefault(tuple(key.value(row) for key in self._keys), []).append(row)
            return [
                {**dict(zip(self._names, key, strict=True)), **measured(rows, measures)} for key, rows in groups.items()
            ]

        return Frame(read, columns=[*self._names, *(measure.name for measure in measures)])
