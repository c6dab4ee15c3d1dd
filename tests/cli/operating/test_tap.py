"""`headrace tap`: what is on a topic, decoded and filtered; wrong input in one sentence."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from headrace_cli.ground import CommandError
from headrace_cli.operating.records import LINE, decoded, pretty
from headrace_cli.options import parse_moment
from headrace_cli.verbs import tap as verb
from headrace_common.operations.settings import KafkaSettings
from headrace_reader.text import json_value, printable

from tests.cli.operating.topics import event_headers, lead_to, put, reject_headers
from tests.contract.embedded import EmbeddedKafka
from tests.contract.topic import own_topics
from tests.contract.waiting import there
from tests.lake.test_decode import FAULTY

START = int(time.time() * 1000) - 60_000
BETWEEN = datetime.fromtimestamp(START / 1000 + 9.5, UTC).isoformat()
NOW = datetime(2026, 11, 23, 12, tzinfo=UTC)


def kept(value: bytes | None, headers: Any, offset: int = 2) -> Any:
    return SimpleNamespace(
        topic="t", partition=1, offset=offset, timestamp=1_700_000_000_123, headers=headers or [], value=value
    )


def test_a_record_has_the_lakes_columns_and_no_controls() -> None:
    row = decoded(kept(b'{"a":1}', [*event_headers(7), ("ce_attributes", b'{"index":3}')]))
    assert row["event_id"] == f"d.{7:032x}"
    assert (row["protocol"], row["stream"], row["source"]) == ("forward", "shop", "/forward/h")
    assert (row["body"], row["attributes"], row["partition"], row["offset"]) == ({"a": 1}, {"index": 3}, 1, 2)
    headers = [*event_headers(1)[:6], ("content-type", b"application/octet-stream")]
    assert decoded(kept(b"1", headers))["payload"] == b"1"
    row = decoded(kept(b"\x1b[2J", reject_headers("bad_json", protocol="\x1b]0;", part=b"2/3")))
    assert (row["reason"], row["part"], row["raw"]) == ("bad_json", "2/3", b"\x1b[2J")
    assert {"1@2", "part", "2/3:"} <= {*pretty(row).plain.split()}
    assert "\x1b" not in pretty(row).plain
    assert printable("a\x1b[2J\x9b\u202eb") == "a\\x1b[2J\\x9b\\u202eb"
    for size in (LINE, LINE + 1):
        shown = pretty(decoded(kept(json.dumps("x" * size).encode(), event_headers(1)))).plain
        assert ("characters)" in shown) is (size > LINE)


def test_a_record_that_the_job_quarantines_is_shown_too() -> None:
    for record, _, _ in FAULTY.values():
        row = decoded(kept(record.value, record.headers))
        assert pretty(row).plain
        assert json.dumps(json_value(row))
    record = kept(b"", [])
    record.timestamp = 10**18
    assert decoded(record)["received_time"].year == 1970


def test_moments() -> None:
    rows = (
        ("90s", "2026-11-23T11:58:30+00:00"),
        ("2026-11-23T08:00", "2026-11-23T08:00:00+00:00"),
        ("2026-11-23T08:00+02:00", "2026-11-23T08:00:00+02:00"),
        ("99999d", "1753-02-08T12:00:00+00:00"),
    )
    for text, moment in rows:
        assert parse_moment(text, "--from", NOW).isoformat() == moment
    with pytest.raises(CommandError):
        parse_moment("100000d", "--from", NOW)


@pytest.fixture(scope="module")
def filled(kafka: EmbeddedKafka) -> KafkaSettings:
    """Numbers 0 to 9 on one partition, 10 to 14 later on another; and something in quarantine."""
    topics = own_topics(kafka.bootstrap)
    for partition, numbers in ((0, range(10)), (2, range(10, 15))):
        records = [(b'{"n":%d}' % n, event_headers(n, "courier" if n % 2 else "forward")) for n in numbers]
        start = START + numbers[0] * 1000
        put(topics, topics.events_topic, records, partition=partition, timestamp=start)
    put(topics, topics.quarantine_topic, [(b"oops", reject_headers("bad_json"))])
    return topics


@pytest.mark.kafka
def test_what_is_there(
    filled: KafkaSettings, monkeypatch: pytest.MonkeyPatch, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    lead_to(filled, monkeypatch)
    rows: tuple[tuple[dict[str, Any], Iterable[int]], ...] = (
        ({"begin": "beginning", "follow": False}, range(15)),
        ({"begin": BETWEEN, "follow": False, "protocol": ["forward"]}, (10, 12, 14)),
        ({"begin": "beginning", "follow": False, "stream": "SHOP"}, ()),
        ({"begin": "beginning", "limit": 2, "protocol": ["courier"]}, (1, 3)),
        ({"begin": BETWEEN, "follow": False}, range(10, 15)),
        ({"follow": False}, ()),
    )
    for options, numbers in rows:
        assert verb.tap(Path("nowhere"), as_json=True, **options) == 0
        found = map(json.loads, capsysbinary.readouterr().out.splitlines())
        assert sorted(row["body"]["n"] for row in found) == list(numbers), options
    assert verb.tap(Path("nowhere"), filled.bootstrap_servers, quarantine=True, begin="beginning", follow=False) == 0
    assert b"bad_json, part 1/1: why" in capsysbinary.readouterr().out


@pytest.mark.kafka
def test_ctrl_c_ends_it_cleanly(filled: KafkaSettings, monkeypatch: pytest.MonkeyPatch) -> None:
    lead_to(filled, monkeypatch)
    arguments = ["tap", "--kafka", filled.bootstrap_servers, "--from", "beginning", "--json"]
    with subprocess.Popen(
        [sys.executable, "-m", "headrace_cli", *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        for _ in range(15):
            there(process.stdout).readline()
        put(filled, filled.events_topic, [(b'{"n":15}', event_headers(15))])
        assert json.loads(there(process.stdout).readline())["body"] == {"n": 15}  # live
        process.send_signal(signal.SIGINT)
        assert there(process.stderr).read().decode() == "16 shown of 16 read\n"
        assert process.wait(120) == 0
