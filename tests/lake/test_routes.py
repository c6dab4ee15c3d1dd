"""Routes: streams that also get a table with typed columns, exactly once, whatever dies between the writes of two tables."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from headrace_common.operations.errors import ConfigError
from headrace_lake.configuration.routes import RouteColumn, sampled
from headrace_lake.landing import route_tables
from headrace_lake.landing import routes as landing_routes
from headrace_lake.rows import decode
from headrace_lake.rows import routed as routed_rows
from headrace_lake.rows.routed import MISFITS, OWN, RouteTable
from headrace_lake.spark.storage import Storage
from headrace_lake.tables.fence import Fence
from headrace_lake.tables.layout import EVENTS, GAPS
from headrace_lake.tables.properties import route_names
from headrace_lake.tables.shape import Shape
from headrace_lake.upkeep.merging import choice
from pyspark.sql import SparkSession

from tests.lake.records import LANDED, TOPICS, Record, changed, frame
from tests.lake.runs import Runs

SCHEMA = {"properties": {"index": {"type": "integer"}, "mark": {"type": "string"}, "text": {"type": "boolean"}}}
ROUTES = {
    "web": {"streams": "app.*"},
    "strict": {"streams": "other,app.w?b", "json_schema": SCHEMA},
    "none": {"streams": "elsewhere.*"},
}
TABLES = ("web", "strict")


def agrees(runs: Runs, *routes: str) -> None:
    """All that was sent is landed once, each route has it too, and the proof holds."""
    runs.check()
    routed(runs, *(routes or TABLES))


def routed(runs: Runs, *routes: str, among: set[tuple[str, int, int]] | None = None) -> None:
    """Each route has the events in `among` (all), with their bodies, once."""
    for name in routes:
        places = Counter(
            (row["topic"], row["partition"], row["offset"], row["index"])
            for row in runs.query(f'select topic, "partition", "offset", "index" from {name}')
        )
        wanted = {
            (*place, json.loads(body)["index"])
            for place, (_, body) in runs.sent.events.items()
            if among is None or place in among
        }
        assert places == Counter(wanted), name


CASES: list[tuple[bytes, dict[str, Any]]] = [
    (b'{"n": 1, "f": 2, "b": true, "t": "x", "at": "2026-05-06T07:08:09.5+02:00", "o": {"d": "2026-05-06", "l": [1, {}]}}',
     {"n": 1, "f": 2.0, "b": True, "t": "x", "at": datetime(2026, 5, 6, 5, 8, 9, 500_000),
      "o_d": datetime(2026, 5, 6).date(), "o_l": "[1,{}]"}),
    (b'{"n": 1.5, "t": 7}', {"t": "7", MISFITS: "n"}),
    (b'{"n": 9223372036854775808, "f": "much", "b": "true", "t": {"a": null}}', {"t": '{"a":null}', MISFITS: "n,f,b"}),
    (b'{"at": "-0044-03-15", "o": {"d": "2026-02-30"}}', {MISFITS: "at,o_d"}),
    (b'{"n": null, "o": null, "more": [1]}', {}),
    (b'{"n": 3, "o": "text"}', {"n": 3, MISFITS: "body"}),
    (b"[1, 2]", {MISFITS: "body"}),
    (b"{broken", {MISFITS: "body"}),
    (b"", {MISFITS: "body"}),
    (b'{"n": 5, "deep": ' + b"[" * 300 + b"]" * 300 + b"}", {"n": 5}),
]  # fmt: skip


@pytest.mark.spark
@pytest.mark.parametrize("variant", [False, pytest.param(True, marks=pytest.mark.full)])
def test_values_that_do_not_fit_are_named_and_the_body_is_kept(spark: SparkSession, variant: bool) -> None:
    kinds = {
        ("n",): "bigint", ("f",): "double", ("b",): "boolean", ("t",): "string", ("at",): "timestamp", ("o", "d"): "date",
        ("o", "l"): "string",
    }  # fmt: skip
    columns = tuple(RouteColumn("_".join(path), path, kind) for path, kind in kinds.items())
    records = [Record(value=body) for body, _ in CASES]
    records += [Record(headers=changed("content-type", b"text/plain")), Record(headers=changed("ce_subject", b"other"))]
    events = decode.events(frame(spark, records), TOPICS, LANDED, Shape(variant=variant))
    table = RouteTable("web", "app.w*", columns)
    found = table.rows(events).orderBy("offset").collect()
    assert list(table.kinds) == list(found[0].asDict())
    assert len(found) == len(CASES) + 1, "another stream is not of this route"
    nothing = {column.name: None for column in columns} | {MISFITS: None}
    for (body, expected), row in zip(CASES, found, strict=False):
        assert {name: row[name] for name in nothing} == nothing | expected, body
        assert (row["body"] is None) == (row[MISFITS] is None)
        assert row["body"] in (None, body.decode()) or variant
    assert {name: found[-1][name] for name in (*nothing, "body")} == nothing | {"body": None}


@pytest.mark.spark
def test_no_key_of_a_body_stops_a_batch(spark: SparkSession, tmp_path: Path, empty_tables: Path) -> None:
    keys = ("_headrace_unreadable", "_headrace?unreadable", "_headrace_parsed", "_headrace_text", "\ud800", "", " ", "*",
            "a.b", "a]b", "\u2028", "\U0001f600", "\u00b5s", "\u03bcs", "\u0131", "I", "k" * 60_000)  # fmt: skip
    bodies = [json.dumps({key: 1}) for key in keys]
    bodies += ['{"Req": {"a": 1}}', '{"req": {"b": 2}}', '{"req": 3}', '{"Req": 4}']
    columns = sampled(bodies, OWN)
    shutil.copytree(empty_tables, tmp_path, dirs_exist_ok=True)
    table = route_tables.create(Storage(spark), str(tmp_path), RouteTable("web", "*", columns), change_feed=False)
    events = decode.events(frame(spark, [Record(value=body.encode()) for body in bodies]), TOPICS, LANDED)
    table.rows(events).write.format("delta").mode("append").save(f"{tmp_path}/web")
    rows = spark.read.format("delta").load(f"{tmp_path}/web").orderBy("offset").collect()
    found = [{column.path[0]: row[column.name] for column in columns if row[column.name] is not None} for row in rows]
    left_out = ("_headrace?unreadable", "\ud800", "", "\u03bcs", "I", "k" * 60_000)
    assert found == [{} if key in left_out else {key: 1} for key in keys] + [{"Req": '{"a":1}'}, {}, {}, {"Req": "4"}]
    assert [key[0] for key, row in zip(keys, rows, strict=False) if row[MISFITS] is not None] == [
        "k"
    ]  # Spark's parser has limits


@pytest.mark.spark
def test_routes_that_two_jobs_make_at_once_are_both_known(
    spark: SparkSession, tmp_path: Path, empty_tables: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another job makes its route when this one has read which there are: the tables of both are claimed from then on."""
    lake, storage = str(tmp_path), Storage(spark)
    columns = (RouteColumn("n", ("n",), "bigint"),)
    shutil.copytree(empty_tables, tmp_path, dirs_exist_ok=True)
    read = route_names

    def another_first(properties: Any) -> tuple[str, ...]:
        found = read(properties)
        monkeypatch.setattr(route_tables, "route_names", read)
        route_tables.create(storage, lake, RouteTable("two", "*", columns), change_feed=False)
        return found

    monkeypatch.setattr(route_tables, "route_names", another_first)
    route_tables.create(storage, lake, RouteTable("one", "*", columns), change_feed=False)
    assert sorted(Fence(spark, lake).routes()) == ["one", "two"]


class TestOnKafka:
    pytestmark = [pytest.mark.kafka, pytest.mark.spark]  # noqa: RUF012

    def test_each_stream_of_a_route_is_in_its_table_once(self, runs: Runs) -> None:
        runs.send(800, resend_every=20)
        runs.run(batch_records=500, routes=ROUTES)
        agrees(runs)
        assert not (runs.lake / "none").exists(), "no batch had such an event"
        runs.send(400, mark="b")
        runs.run(routes=ROUTES)
        agrees(runs)
        sums = "sum((routed->>'$.web')::bigint)::bigint as web, sum((routed->>'$.strict')::bigint)::bigint as strict"
        (said,) = runs.query(f"select {sums}, sum(events)::bigint as n from batches")
        assert said["web"] == said["strict"] == said["n"] == len(runs.sent.events)
        kinds = {row["column_name"]: row["column_type"] for row in runs.query("describe web")}
        assert (kinds["index"], kinds["text"], kinds["body_partition"]) == ("BIGINT", "VARCHAR", "BIGINT")
        odd = "select count(*) as n from strict where misfits = 'text' and body like '{%' and \"index\" is not null"
        assert runs.query(odd) == [{"n": len(runs.sent.events)}]
        assert runs.query("select count(*) as n from web where body is not null or misfits is not null") == [{"n": 0}]
        values = runs.metrics.registry.get_sample_value
        assert values("headrace_lake_route_misfits_total", {"route": "strict"}) == len(runs.sent.events)
        assert values("headrace_lake_routed_total", {"route": "web"}) == len(runs.sent.events)
        comments = {
            field.name: field.metadata.get("comment") for field in DeltaTable(str(runs.lake / "web")).schema().fields
        }
        assert comments["body_partition"] == "body.partition"
        assert all(comments.values())

    def test_a_job_that_dies_between_the_writes_of_two_tables(self, runs: Runs) -> None:
        runs.send(400)
        runs.run(routes=ROUTES)
        runs.send(400, mark="b", resend_every=20)
        runs.killed_behind("strict", routes=ROUTES)
        runs.lose_checkpoint()
        runs.run(batch_records=250, routes=ROUTES)
        agrees(runs)

    def test_a_route_begins_with_its_first_batch_and_keeps_its_columns(self, runs: Runs) -> None:
        """`test_model.py` has routes that end, and begin again."""
        runs.send(400)
        runs.run()
        before = set(runs.sent.events)
        runs.send(400, mark="b")
        runs.run(routes={"strict": ROUTES["strict"]})
        runs.check()
        routed(runs, "strict", among=set(runs.sent.events) - before)
        other = {"strict": {"streams": "app.*", "json_schema": {"properties": {"mark": {"type": "integer"}}}}}
        with pytest.raises(ConfigError, match=r"the table strict has other columns than the JSON schema .*index, mark"):
            runs.run(routes=other)
        shutil.copytree(runs.lake / GAPS, runs.lake / "mine")
        with pytest.raises(ConfigError, match="is a table that is not a route's"):
            runs.run(routes={"mine": {"streams": "x"}})

    def test_a_route_lacks_the_columns_of_its_own_that_a_later_version_adds(
        self, runs: Runs, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Whether the body has one by the name, as the table `strict` does, or not; also when the settings have it no more."""
        schema = {"properties": {"index": {"type": "integer"}, "content_type": {"type": "integer"}}}
        routes = {
            "strict": {"streams": "*", "json_schema": schema},
            "web": {"streams": "*"},
            "removed": {"streams": "*"},
        }
        runs.send(200)
        runs.run(routes=routes)
        monkeypatch.setattr(routed_rows, "_AFTER", ("content_type", *routed_rows._AFTER))
        for module in (routed_rows, route_tables, landing_routes):
            monkeypatch.setattr(module, "OWN", ("content_type", *OWN))
        del routes["removed"]
        routes["new"] = {"streams": "*"}
        runs.send(200, mark="b")
        runs.run(routes=routes)
        left_out = {line["table"]: line["columns"] for line in runs.said("columns left out")}
        assert left_out == {name: ["content_type"] for name in ("strict", "web")}
        agrees(runs, "strict", "web")
        for name in ("strict", "removed"):
            runs.sql(name, "delete from TABLE where `offset` % 3 = 0")
        runs.replay(routes=routes)
        agrees(runs, "strict", "web")
        kinds = {
            name: {row["column_name"]: row["column_type"] for row in runs.query(f"describe {name}")}.get("content_type")
            for name in ("strict", "web", "new", "removed")
        }
        assert kinds == {"strict": "BIGINT", "web": None, "new": "VARCHAR", "removed": None}

    def test_a_replay_restores_a_route(self, runs: Runs) -> None:
        runs.send(400)
        runs.run()
        early = set(runs.sent.events)
        runs.send(800, mark="b", resend_every=20)
        runs.run(batch_records=600, routes=ROUTES)
        late = set(runs.sent.events) - early
        lines = "select * exclude digest from batches order by all"
        said = runs.query(lines)
        runs.sql("web", "delete from TABLE where `offset` % 3 = 0")
        runs.sql(EVENTS, "delete from TABLE where `offset` % 5 = 0")
        runs.sql("strict", "delete from TABLE where `offset` % 5 = 0")
        wrong = [row["check"] for row in runs.proof() if not row["ok"]]
        assert "the route web has what batches says, each record once" in wrong
        assert "what the route web has is in events" in wrong
        dry = runs.replay(dry_run=True, routes=ROUTES)
        done = runs.replay()
        assert (done.routed, done.events) == (dry.routed, dry.events)
        assert done.routed > done.events > 0
        runs.check()
        routed(runs, *TABLES, among=late)
        assert runs.query(lines) == said
        assert runs.replay().routed == 0

    def test_an_erased_event_goes_from_its_routes(self, runs: Runs) -> None:
        runs.send(800)
        runs.run(batch_records=600, routes=ROUTES)
        wanted = sum(place[1] == 1 for place in runs.sent.events)
        host = "source=/forward/host-1"
        dry = runs.erase(host, apply=False)
        assert (dry.events, dry.routed) == (wanted, 2 * wanted)
        agrees(runs)
        done = runs.erase(host, at_once=True)
        assert (done.events, done.routed) == (wanted, 2 * wanted)
        left = {place for place in runs.sent.events if place[1] != 1}
        routed(runs, *TABLES, among=left)
        assert runs.proven(), runs.proof()
        (named,) = [row for row in runs.proof() if row["check"] == "what was erased on request"]
        assert f"routed {2 * wanted}" in named["detail"]
        runs.replay()
        routed(runs, *TABLES, among=left)
        runs.lose_checkpoint()
        runs.run(routes=ROUTES)
        assert runs.proven(), runs.proof()

    def test_upkeep_and_the_change_data_feed_know_routes(self, runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(choice, "MOST_SMALL", 2)
        runs.send(800)
        busy = {"batch_records": 400, "maintenance_share": 0.9, "change_data_feed": True}
        runs.run(routes=ROUTES, **busy)
        done = {(line["task"], line["table"]) for line in runs.said("maintained")}
        runs.send(40, mark="b")
        runs.run(routes=ROUTES, **busy)
        done |= {(line["task"], line["table"]) for line in runs.said("maintained")}
        assert {("compact", name) for name in TABLES} <= done
        agrees(runs)
        configuration = DeltaTable(str(runs.lake / "web")).metadata().configuration
        assert configuration["delta.enableChangeDataFeed"] == "true"
        assert runs.metrics.registry.get_sample_value("headrace_lake_files", {"table": "web"})
