"""From frames to records."""

from __future__ import annotations

import json
import tracemalloc
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from headrace_common.operations.settings import LimitSettings
from headrace_common.record.event import Reject, deterministic_id
from headrace_common.session.interface import Peer
from headrace_common.session.memory import MEMORY_BYTES, Memory
from headrace_lumberjack.session import LumberjackSession
from headrace_lumberjack.settings import LumberjackSection
from headrace_lumberjack.wire import V1, json_frame, pairs_frame, window

from tests.driving import PEER, traced
from tests.lumberjack.driving import Seen, document, drive, feed, parts_of

IDS = Path(__file__).parent / "ids.json"


def of(*documents: bytes, **more: Any) -> list[Seen | Reject]:
    frames = b"".join(json_frame(1 + index, item) for index, item in enumerate(documents))
    return drive([window(len(documents)) + frames], **more).flat


def one(raw: bytes, **more: Any) -> Seen:
    (part,) = of(raw, **more)
    assert isinstance(part, Seen)
    return part


def test_json_is_passed_through_byte_for_byte() -> None:
    raw = b' { "b" : 1.50, "a":\t12345678901234567890123, "c":1e999, "a":2, "d":"\\u00e9\xc3\xa9" } '
    assert one(raw).value == raw


@pytest.mark.parametrize(("letter", "length"), [("h", 1024), ("ü", 512)])
def test_a_name_as_long_as_is_believed_and_one_byte_longer(letter: str, length: int) -> None:
    """It goes into headers and is kept encoded: a client may call its host and its index anything."""
    name = letter * length
    believed = one(document(host={"name": name}, **{"@metadata": {"beat": name}}))
    assert believed.source == f"/lumberjack/{quote(name)}"
    assert believed.subject == name
    for _ in range(2):
        longer = one(document(host={"name": f"{name}x"}, **{"@metadata": {"beat": f"{name}x"}}))
        assert (longer.source, longer.subject) == ("/lumberjack/192.0.2.7", "-")
    (event,) = drive([window(1, V1) + pairs_frame(1, [(b"host", b"h" * 1025), (b"type", b"t" * 1025)])]).events
    assert (event.source, event.subject) == ("/lumberjack/192.0.2.7", "-")


def test_many_connections_share_what_they_remember() -> None:
    """A connection that sends a few hundred names and files, and then nothing, keeps nearly nothing of its own."""
    memory = Memory(1_000_000)
    sessions = []
    with traced():
        before = tracemalloc.get_traced_memory()[0]
        for number in range(8):
            driven = LumberjackSession(PEER, LimitSettings(), LumberjackSection(), memory)
            names = [f"{number}-{n}-" + "h" * (900 if n % 25 else 30_000) for n in range(250)]
            documents = [
                document(n, host={"name": name}, log={"file": {"path": name}, "offset": 1})
                for n, name in enumerate(names)
            ]
            feed(driven, window(250) + b"".join(json_frame(1 + n, raw) for n, raw in enumerate(documents)))
            for frame in driven.frames():
                assert len(parts_of(frame)) == 250
                driven.stored(frame.ticket, 250, True)
            driven.outgoing()
            sessions.append(driven)
            del documents, names, frame
        assert memory.used <= 1_000_000
        assert tracemalloc.get_traced_memory()[0] - before < 3_000_000


def test_ten_thousand_files_are_remembered_beside_each_other() -> None:
    """The memory begins again where it is full: with one file too many, each event would be worked out anew."""
    memory, used = Memory(), [0]
    driven = LumberjackSession(PEER, LimitSettings(), LumberjackSection(), memory)
    for _ in range(2):
        for start in range(0, 10_000, 1_000):
            frames = b""
            for number in range(start, start + 1_000):
                log = {"file": {"path": f"/var/log/containers/{number:0160}.log"}, "offset": number}
                host = f"node-{number % 300:030}"
                agent = {"id": f"{number % 300:036}", "ephemeral_id": f"{number % 300:036}", "hostname": host}
                frames += json_frame(number, document(log=log, agent=agent, host={"name": host}))
            feed(driven, window(1_000) + frames)
            for frame in driven.frames():
                driven.stored(frame.ticket, len(parts_of(frame)), True)
            driven.outgoing()
        used.append(memory.used)
    assert MEMORY_BYTES > used[1] == used[2] > 10_000 * 300


def test_a_certificate_says_who_it_is() -> None:
    assert one(document(), peer=Peer("192.0.2.7", 1, "edge-3")).source == "/lumberjack/edge-3"


# Ids


def test_the_id_is_over_the_fields_of_the_design() -> None:
    """What tells two inputs apart follows what names the file; the event's length comes last."""
    file = b'{"inode":"42","path":"/var/log/app.log"}'
    origin = (b"a-1", b"e-1", file)
    plain = (b"filebeat", b"", b"null", b"null", b"null")
    time = b"2026-11-21T09:30:00.000Z"

    def by_the_rule(raw: bytes, *fields: bytes) -> None:
        assert one(raw).id.encode() == deterministic_id("lumberjack", *fields, len(raw).to_bytes(4, "big"))

    by_the_rule(document(7), *origin, *plain, b"700", time, b"line 7")
    escaped = document(7, message='a "quoted"\tü')
    by_the_rule(escaped, *origin, *plain, b"700", time, 'a "quoted"\tü'.encode())
    marked = document(7, tags=["b", "a"], fields={"z": 1, "a": {"d": 1, "c": 2}}, data_stream={"type": "logs"})
    marks = (b"filebeat", b"", b'["b","a"]', b'{"a":{"c":2,"d":1},"z":1}', b'{"type":"logs"}')
    by_the_rule(marked, *origin, *marks, b"700", time, b"line 7")
    named = document(7, event={"dataset": "nginx"}, **{"@metadata": {"_id": "x", "index": "i"}})
    by_the_rule(named, b"x", b"i", b"nginx", b"null", b"null", b"null", time, b"line 7")
    whole = b'{"@timestamp":"t","@metadata":{"_id":"x"},"z":1,"a":{"d":1,"c":2}}'
    by_key = b'{"@metadata":{"_id":"x"},"@timestamp":"t","a":{"c":2,"d":1},"z":1}'
    by_the_rule(whole, b"x", b"", *plain[1:], b"t", by_key, b"")


def test_twenty_ids_are_what_they_were() -> None:
    """Ids are kept for years: a change here doubles what is sent again across an upgrade."""
    known = json.loads(IDS.read_text())
    assert len(known) == 20
    for case in known:
        assert one(case["event"].encode()).id == case["id"]


def changes() -> list[dict[str, Any]]:
    log = {"file": {"path": "/var/log/app.log", "inode": "42"}, "offset": 0}
    agent = {"id": "a-1", "ephemeral_id": "e-1"}
    return [
        {"message": "other"},
        {"@timestamp": "2026-11-21T09:30:00.001Z"},
        {"agent": {**agent, "id": "a-2"}},
        {"agent": {**agent, "ephemeral_id": "e-2"}},
        {"log": {**log, "offset": 1}},
        {"log": {**log, "file": {"path": "/var/log/app.log", "inode": "43"}}},
        {"log": {**log, "file": {"path": "/var/log/app.log"}}},
        {"message": None},
        {"message": 5},
        {"message": ["line 0"]},
        {"message": None, "more": 1},
        {"message": None, "more": 1.0},
        {"@metadata": {"_id": "1"}},
        {"@metadata": {"_id": "2"}},
        {"tags": []},
        {"tags": ["a"]},
        {"fields": {"a": "b"}},
        {"event": {"dataset": "d"}},
        {"log": {**log, "offset": 1}, "tags": ["a"]},
    ]


def test_other_content_is_another_id() -> None:
    raws = [document(), *(document(**change) for change in changes())]
    raws.append(raws[-1][:-1] + b',"message":"m"}')
    without = document(message=None)[:-1]
    numbers = (b"1e2", b"100", b"100.0", b'"100"', b"1e400", b"1e401", b"12345678901234567890123")
    raws += [without + b',"n":%b}' % number for number in (*numbers, b'1,"n":2', b'2,"n":2', b"2 ")]
    ids = [one(raw).id for raw in raws]
    assert len(set(ids)) == len(ids)
    assert all(name.startswith("d.") for name in ids)
    assert [one(raw).id for raw in raws] == ids


@pytest.mark.parametrize(
    "more",
    [
        {"agent": None},
        {"agent": {"id": "a-1"}},
        {"agent": {"ephemeral_id": "e-1"}},
        {"agent": {"id": 5, "ephemeral_id": "e-1"}},
        {"log": None},
        {"log": "a container's line"},
        {"log": 5},
        {"log": {"offset": 1}},
        {"log": {"file": {"path": "/x"}}},
        {"log": {"file": {"path": "/x"}, "offset": "1"}},
        {"log": {"file": None, "offset": 1}},
        {"@timestamp": None},
        {"@timestamp": 1_700_000_000},
        {"@timestamp": None, "@metadata": {"_id": "x"}},
        {"agent": None, "@metadata": {"_id": ""}},
        {"agent": None, "@metadata": {"_id": 5}},
    ],
)
def test_where_a_field_is_absent_the_id_is_unique(more: dict[str, Any]) -> None:
    """Never a hash with a hole."""
    names = {one(document(**more)).id for _ in range(3)}
    assert len(names) == 3
    assert all(name.startswith("u.") for name in names)
