"""From frames to records."""

from __future__ import annotations

import json
import tracemalloc
from pathlib import Path
from typing import Any

from headrace_common.operations.settings import LimitSettings
from headrace_common.record.event import Reject, deterministic_id
from headrace_common.session.memory import MEMORY_BYTES, Memory
from headrace_lumberjack.session import LumberjackSession
from headrace_lumberjack.settings import LumberjackSection
from headrace_lumberjack.wire import json_frame, window

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
