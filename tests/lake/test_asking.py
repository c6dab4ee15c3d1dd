"""`headrace query` beside the proof: its formats, lakes in object stores, and what columns mean."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from deltalake import DeltaTable
from headrace_cli.ground import CommandError
from headrace_cli.verbs import query
from headrace_cli.verbs.query import QUERIES
from headrace_lake.tables.layout import ABOUT, BATCHES, EVENTS, SCHEMAS
from headrace_reader.address import trouble
from headrace_reader.proof import exactly_once

from tests.lake.s3 import BUCKET, S3
from tests.lake.test_query import MOMENT, batch, event, make

MEANING = SCHEMAS[EVENTS]["event_id"].metadata["comment"]


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("asked") / "lake"
    make(folder, events=[event(n) for n in range(3)], batches=[batch(0, 3, 3, number=1)])
    events = DeltaTable(str(folder / EVENTS))
    events.alter.set_table_description(ABOUT[EVENTS])
    events.alter.set_column_metadata("event_id", {"comment": MEANING})
    return folder


def test_csv_and_json_are_the_rows(lake: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sql = "select event_id, payload, landed_at, null as x, 'a,\"' as x from events order by 1"
    assert query.query(sql, lake=str(lake), as_csv=True) == 0
    found = list(csv.reader(io.StringIO(capsys.readouterr().out)))
    assert found[0] == ["event_id", "payload", "landed_at", "x", "x_1"]
    assert found[1:] == [[f"d.{n}", "/w==", MOMENT.isoformat(), "", 'a,"'] for n in range(3)]
    assert query.query(sql, lake=str(lake), as_json=True) == 0
    assert [row["event_id"] for row in json.loads(capsys.readouterr().out)] == ["d.0", "d.1", "d.2"]
    assert query.query("select event_id from events where false", lake=str(lake), as_json=True) == 0
    assert capsys.readouterr().out == "[]\n"


def test_a_file_is_replaced_whole_or_not_at_all(lake: Path, tmp_path: Path) -> None:
    file = tmp_path / "rows.parquet"
    file.write_text("before")
    with pytest.raises(CommandError, match="Conversion Error"):
        query.query("select cast(event_id as int) from events", lake=str(lake), output=file)
    with pytest.raises(CommandError, match="cannot be written as Parquet"):
        query.query("select interval 1 day", lake=str(lake), output=file)
    assert [path.read_text() for path in tmp_path.iterdir()] == ["before"]
    with pytest.raises(CommandError, match="No such file"):
        query.query("select 1", lake=str(lake), output=tmp_path / "none" / "x")


def test_what_a_store_said_is_one_sentence_without_secrets() -> None:
    chain = "Kernel error\n \x1b[31m↳\x1b[0m GET https://x/y?sig=abcd1234\n \x1b[31m↳\x1b[0m wrong key hushhush\n"
    assert trouble("s3://b/x", OSError(chain), {"AWS_SECRET_ACCESS_KEY": "hushhush"}) == "GET https://x/y?… wrong key …"
    refused = "GET http://169.254.169.254/latest - 403 Forbidden"
    assert "AWS_ACCESS_KEY_ID" in trouble("s3://b/x", OSError(refused), {})
    assert "GOOGLE_SERVICE_ACCOUNT" in trouble("gs://b/x", OSError(refused), {})


def test_columns_are_shown_with_what_they_mean(lake: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = {(row["table"], row["column"]): (row["type"], row["meaning"]) for row in query.run(QUERIES["schema"], lake)}
    assert found[EVENTS, ""] == ("", ABOUT[EVENTS])
    assert found[EVENTS, "event_id"] == ("varchar", MEANING)
    assert [column for table, column in found if table == BATCHES][1:] == SCHEMAS[BATCHES].names
    assert query.query(lake=str(lake), as_json=True, named="schema") == 0
    assert len(json.loads(capsys.readouterr().out)) == len(found)


@pytest.fixture(scope="module")
def s3(tmp_path_factory: pytest.TempPathFactory, lake: Path) -> Iterator[S3]:
    made = S3(tmp_path_factory.mktemp("s3"))
    made.copy(lake, "lake")
    yield made
    made.stop()


@pytest.mark.long
class TestStore:
    LAKE = f"s3a://{BUCKET}/lake"

    @pytest.fixture(autouse=True)
    def environment(self, s3: S3, monkeypatch: pytest.MonkeyPatch) -> None:
        for name, value in s3.storage_options.items():
            monkeypatch.setenv(name, value)

    def test_rows_proof_and_meaning_are_those_of_the_folder(self, lake: Path) -> None:
        for sql in ("select * from events order by all", "select * from gaps", *query.QUERIES.values()):
            assert query.run(sql, self.LAKE) == query.run(sql, lake)
        assert exactly_once(self.LAKE) == exactly_once(lake)
        assert query.run(QUERIES["schema"], self.LAKE) == query.run(QUERIES["schema"], lake)

    def test_nothing_else_is_read(self, lake: Path) -> None:
        file = next((lake / EVENTS).rglob("*.parquet"))
        with pytest.raises(CommandError, match="disabled"):
            query.run(f"select * from '{file}'", self.LAKE)

    def test_a_file_that_is_gone(self, s3: S3, lake: Path) -> None:
        s3.copy(lake, "broken")
        s3.delete("broken/events/day=")
        with pytest.raises(CommandError, match=r"not found|NotFound|404"):
            query.run("select * from events", f"s3://{BUCKET}/broken")

    @pytest.mark.parametrize(
        ("changed", "lake_", "said"),
        [
            ({}, "s3://nobody/lake", "there is no such bucket"),
            ({}, f"s3://{BUCKET}/none", "There are no tables in s3://"),
            ({"AWS_ALLOW_HTTP": "false"}, LAKE, "AWS_ALLOW_HTTP=true"),
            ({"AWS_ENDPOINT_URL": "http://127.0.0.1:1"}, LAKE, "nothing listens"),
        ],
    )
    def test_what_is_missing_is_one_sentence(
        self, changed: dict[str, str], lake_: str, said: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for name, value in changed.items():
            monkeypatch.setenv(name, value)
        with pytest.raises(CommandError, match=said) as caught:
            query.run("select 1", lake_)
        assert "\n" not in str(caught.value)
