"""A lake of an older version, as this one reads it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from headrace_cli.verbs import query
from headrace_lake.kafka.checkpoint import CheckpointMarker
from headrace_reader.proof import exactly_once

OLDER = Path(__file__).parent / "older.tar.xz"
"""The lake and the checkpoint of a stack of f91049af, whose lines of `batches` have no digests, between a batch and its commit.

It had landed 100 events of each protocol and a line that is not JSON, with `LAKE__PROMOTE="body.n as n bigint"` and the route
mine of all streams.
"""


@pytest.fixture
def state(tmp_path: Path) -> Path:
    shutil.unpack_archive(OLDER, tmp_path)
    return tmp_path


def test_a_lake_of_an_older_version_is_read_and_proven(state: Path) -> None:
    lake = state / "lake"
    for table in ("events", "mine"):
        counts = (
            f"select protocol, count(*) as rows, count(distinct event_id) as ids, sum(n) as n from {table} group by all"
        )
        assert {tuple(row.values()) for row in query.run(counts, lake)} == {
            *((name, 100, 100, 5050) for name in ("courier", "forward", "logjam", "lumberjack")),
            ("segment", 100, 100, None),  # bytes, so that nothing of them is promoted
        }
    assert query.run("select raw, reason, protocol from quarantine", lake) == [
        {"raw": b"not json", "reason": "bad_json", "protocol": "lumberjack"}
    ]
    proof = exactly_once(lake, content=True)
    assert all(row["ok"] for row in proof), proof


def test_a_checkpoint_of_an_older_version_says_whose_it_is(state: Path) -> None:
    marker = CheckpointMarker(**json.loads((state / "checkpoint" / "headrace.json").read_text()))
    assert (marker.epoch, set(marker.topics)) == (1, {"headrace.events", "headrace.quarantine"})
