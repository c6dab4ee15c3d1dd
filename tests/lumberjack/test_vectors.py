"""Real clients' bytes, and what a real server made of them.

`c2s` was sent by go-lumber's client (v2) and by logstash-forwarder (v1), `s2c` answered by go-lumber's server, which
decoded `batches`. `v1_ruby_json` was written by hand after ruby-lumberjack's client.rb with its option
`json`; no server was asked.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.driving import feed
from tests.lumberjack.driving import Outcome, acks, every_way, session

VECTORS = Path(__file__).parent / "vectors"
NAMES = sorted(path.name.removesuffix(".c1.c2s.bin") for path in VECTORS.glob("*.c2s.bin"))


def load(name: str) -> tuple[bytes, bytes, list[dict[str, Any]]]:
    batches = [json.loads(line) for line in (VECTORS / f"{name}.batches.jsonl").read_text().splitlines() if line]
    events = [event for batch in batches for event in batch["events"]]
    return (VECTORS / f"{name}.c1.c2s.bin").read_bytes(), (VECTORS / f"{name}.c1.s2c.bin").read_bytes(), events


def test_there_are_vectors() -> None:
    assert len(NAMES) == 5


@pytest.mark.parametrize("name", NAMES)
def test_a_capture_decodes_as_the_real_server_decoded_it(name: str) -> None:
    sent, _, events = load(name)
    outcome: Outcome = every_way(sent)
    assert [event.json for event in outcome.events] == events
    assert (outcome.rejects, outcome.error, outcome.partial) == ([], None, False)


@pytest.mark.parametrize("name", ["v2_sync_plain_3", "v2_sync_zlib3_3", "v1_ruby_json"])
def test_it_is_answered_as_the_real_server_answered(name: str) -> None:
    sent, answered, _ = load(name)
    assert every_way(sent).out == answered


def test_keep_alives_are_as_the_real_servers() -> None:
    """It spoke after 3, 6 and 9 seconds, and had stored the batch then."""
    sent, answered, _ = load("v2_keepalive_acks")
    driven = session()
    feed(driven, sent)
    (frame,) = driven.frames()
    out = b""
    for second in range(10):
        driven.tick(1000.0 + second)
        assert driven.deadline() == 1001.0 + second
        out += driven.outgoing()
    driven.stored(frame.ticket, 2, True)
    assert out + driven.outgoing() == answered


def test_v1_is_answered_with_the_last_events_number() -> None:
    """go-lumber counts the events of each batch instead; no v1 client looks."""
    sent, answered, _ = load("v1_logstash_forwarder_zlib")
    assert acks(answered) == [("1", 3), ("1", 3), ("1", 1)]
    assert every_way(sent).acks == [("1", 3), ("1", 6), ("1", 7)]
