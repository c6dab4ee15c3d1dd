"""The verbs that look into a lake take it as a URL of an object store, with what the environment says of the store."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from headrace_cli.__main__ import app
from headrace_cli.ground import CommandError
from headrace_cli.operating import loss
from headrace_live import tables
from typer.testing import CliRunner

from tests.contract.waiting import there
from tests.lake.s3 import BUCKET, S3
from tests.lake.test_query import MOMENT, batch, event, make, reject

pytestmark = pytest.mark.long

RUN = "0123456789abcdef"
URL = f"s3://{BUCKET}/lake"


def named(**values: object) -> dict[str, Any]:
    return {"topic": "t", "number": 1, **values}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    body = json.dumps({"headrace": {"run": RUN, "n": 0}}, separators=(",", ":"))
    lake = tmp_path_factory.mktemp("lakes") / "lake"
    name = "d." + "0" * 31 + "7"
    make(
        lake,
        batches=[named(**batch(0, 3, 2, 1))],
        events=[event(0, body=body, topic="t"), event(1, topic="t")],
        quarantine=[
            {
                **reject(2),
                "received_time": MOMENT,
                "id": name,
                "topic": "t",
                "protocol": "forward",
                "part": 1,
                "parts": 1,
            }
        ],
    )
    return lake


@pytest.fixture(scope="module")
def s3(tmp_path_factory: pytest.TempPathFactory, folder: Path) -> Iterator[S3]:
    made = S3(tmp_path_factory.mktemp("s3"))
    made.copy(folder, "lake")
    yield made
    made.stop()


@pytest.fixture(autouse=True)
def environment(s3: S3, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in s3.storage_options.items():
        monkeypatch.setenv(name, value)


def test_check_loss(folder: Path, tmp_path: Path) -> None:
    assert list(loss.of_tables(URL)) == list(loss.of_tables(folder))
    options = ["check-loss", "--state", str(tmp_path), "--lake", URL, "--json"]
    done = CliRunner().invoke(app, options)
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["verdict"].startswith("nothing was lost")


def test_the_newest_of_quarantine(tmp_path: Path) -> None:
    words = ["query", "--named", "rejects", "--state", str(tmp_path), "--lake", URL, "--json"]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    assert [row["reason"] for row in json.loads(done.stdout)] == ["bad_json"]


def test_the_live_page_has_its_rows_and_their_age(folder: Path) -> None:
    look = tables.look(URL)
    assert look == tables.look(folder)
    assert (look.problem, dict(look.rows)) == ("", {"events": 2, "quarantine": 1})
    assert 0 < there(look.landed) < time.time()


@pytest.mark.parametrize(
    ("name", "value", "sentence"),
    [
        ("AWS_ENDPOINT_URL", "http://127.0.0.1:1", "nothing listens at the store's address"),
        ("AWS_ALLOW_HTTP", "false", "AWS_ALLOW_HTTP=true allows"),
    ],
)
def test_a_store_that_cannot_be_asked_is_a_sentence_everywhere(
    name: str, value: str, sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, value)
    assert sentence in tables.look(URL).problem
    for words in (["check-loss"], ["quarantine", "replay"]):
        done = CliRunner().invoke(app, [*words, "--state", str(tmp_path), "--lake", URL])
        assert isinstance(done.exception, CommandError)
        assert sentence in str(done.exception)
