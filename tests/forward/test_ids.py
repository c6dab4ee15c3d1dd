"""Event ids: the rule of the design, computed apart, and when a chunk may name the content instead of the sending."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest
from headrace_common.session.interface import Peer

from tests.driving import Seen
from tests.forward.driving import NOW_MS, Outcome, drive, event_time, every_way, pack, parts_of, session
from tests.ids import hashed

KNOWN = orjson.loads((Path(__file__).parent / "ids.json").read_bytes())
NOW = NOW_MS // 1000


def by_the_rule(tag: bytes, chunk: bytes, entries: bytes) -> str:
    """The first 24 hex digits."""
    return hashed(b"forward", tag, chunk, entries)[:24]


@pytest.mark.parametrize("case", KNOWN, ids=[case["name"] for case in KNOWN])
def test_those_that_are_written_down(case: dict[str, Any]) -> None:
    tag, chunk, entries, data = (bytes.fromhex(case[name]) for name in ("tag", "chunk", "entries", "message"))
    prefix = by_the_rule(tag, chunk, entries)
    assert case["ids"] == [f"d.{prefix}{index:08x}" for index in range(len(case["ids"]))]
    assert [event.id for event in every_way(data).events] == case["ids"]


def sent(*records: Any, tag: Any = "t", chunk: Any = "chunk", times: Any = None) -> bytes:
    times = times or [event_time(NOW, 123_456_789)] * len(records)
    body = b"".join(pack([time, record]) for time, record in zip(times, records, strict=True))
    return pack([tag, body, {} if chunk is None else {"chunk": chunk}])


def ids(data: bytes, **limits: Any) -> list[str]:
    outcome: Outcome = drive([data], **limits)
    assert not outcome.rejects
    return [event.id for event in outcome.events]


def test_tags_are_different() -> None:
    every = [ids(sent({"a": 1}, tag=tag))[0] for tag in ("", "5", "t")]
    assert len(set(every)) == len(every)


def named(identity: str, data: bytes) -> str:
    driven = session(Peer("192.0.2.7", 1, identity, certified=True))
    driven.receive(data, NOW_MS)
    (frame,) = driven.frames()
    (part,) = parts_of(frame)
    return part.id if isinstance(part, Seen) else part.id.decode()


@pytest.mark.parametrize("data", [sent({"a": 1}), sent({"a": 1}, tag="t" * 2000), b'["t",1,{},{"chunk":"c"}]'])
def test_two_clients_with_certificates_share_no_id(data: bytes) -> None:
    """Also if the name in the certificate is the peer's address."""
    ids = [named(identity, data) for identity in ("a", "b", "192.0.2.7")]
    assert len(set(ids)) == 3
    assert ids == [named(identity, data) for identity in ("a", "b", "192.0.2.7")]
    assert all(name.startswith("d.") for name in ids)


def test_the_clients_name_stands_before_the_entries() -> None:
    entry = pack([event_time(NOW, 123_456_789), {"a": 1}])
    name = hashed(b"forward", b"t", b"chunk", b"web-1", entry)[:24]
    assert named("web-1", sent({"a": 1})) == f"d.{name}00000000"
