"""An erasure and a replay: the product's own, but for the queries that find what a request names, and resends."""

from __future__ import annotations

from collections.abc import Set
from types import SimpleNamespace
from typing import Any

from headrace_lake.commands.erase import Erase, ErasureRequest
from headrace_lake.commands.predicate import Condition, Predicate
from headrace_lake.commands.replay import Replay, ReplayResult
from headrace_lake.commands.replay_plan import BatchRange, ReplayRequest
from headrace_lake.tables import erasures
from headrace_lake.tables.fence import REPLAYED, transaction

from tests.lake.model.frames import Frame, Rows
from tests.lake.model.job import Ignored, World
from tests.lake.model.judge import place_of
from tests.lake.model.session import Spark

Place = tuple[str, int, int]
_COLUMNS = ("table", "topic", "topic_id", "partition", "rows", "offsets", "ids", "landed_at")


class Eraser(Erase):
    """Erases the records at `wanted`; what earlier erasures have left, too."""

    def __init__(self, world: World, lake: str, wanted: Set[Place]) -> None:
        session: Any = Spark(world)
        request = ErasureRequest(Predicate((Condition("id", "", "x"),) if wanted else ()), "", "", keep_predicate=True)
        super().__init__(session, SimpleNamespace(path=lake), request, apply=True, log=Ignored())  # type: ignore[arg-type]
        self._lake = lake
        self._wanted = wanted

    def _plan(self) -> Any:
        return Frame(self._find, columns=_COLUMNS)

    def _find(self) -> Rows:
        session: Any = self._spark
        tables: dict[str, Rows] = {
            name: session.load(f"{self._lake}/{name}").read() for name in ("events", "quarantine")
        }
        gone = {name for row in session_ids(session, self._lake) for name in row["ids"]}
        gone |= {row["event_id"] for row in tables["events"] if place_of(row) in self._wanted}
        found: dict[tuple[str, str, int], dict[str, Any]] = {}
        for table, rows in tables.items():
            listed = {place_of(row) for row in session_places(session, self._lake, table)}
            for row in rows:
                named = place_of(row) in self._wanted if table == "quarantine" else row["event_id"] in gone
                if not named or place_of(row) in listed:
                    continue
                line = found.setdefault(
                    (table, row["topic_id"], row["partition"]),
                    {name: row.get(name) for name in _COLUMNS} | {"table": table, "rows": 0, "offsets": [], "ids": []},
                )
                line["rows"] += 1
                line["offsets"].append(row["offset"])
                line["ids"] += [row["event_id"]] if table == "events" else []
                line["landed_at"] = min(line["landed_at"], row["landed_at"])
        return list(found.values())


def session_ids(session: Any, lake: str) -> Rows:
    """The lines of the table of erasures that list anything."""
    listed: Any = erasures.read(session, lake)
    return [row for row in listed.read() if row["offsets"]]


def session_places(session: Any, lake: str, table: str) -> Rows:
    """The places that are listed of `table`."""
    listed: Any = erasures.places(session, lake, table)
    return list(listed.read())


class Replayer(Replay):
    """Replays all that Kafka holds."""

    def __init__(self, world: World, lake: str) -> None:
        everything = {
            (name, number): 0 for name, topic in world.kafka.topics.items() for number in range(len(topic.partitions))
        }
        log: Any = Ignored()
        session: Any = Spark(world)
        super().__init__(session, world.settings(lake), ReplayRequest(starts=everything), dry_run=False, log=log)
        self._world = world

    def _step(self, step: list[BatchRange], number: int) -> ReplayResult:
        version = transaction(self._epoch, REPLAYED + number)
        self._world.began.setdefault((self._lake, version), self._world.clock)
        return super()._step(step, number)
