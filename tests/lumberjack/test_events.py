"""From frames to records."""

from __future__ import annotations

import json
import random
import tracemalloc
from base64 import b64encode
from pathlib import Path
from typing import Any
from urllib.parse import quote

import orjson
import pytest
from headrace_common.operations.settings import LimitSettings
from headrace_common.record.contract import Reason
from headrace_common.record.event import Reject, deterministic_id
from headrace_common.record.json_object import SHORT
from headrace_common.record.steps import finish
from headrace_common.session.interface import Peer
from headrace_common.session.memory import Memory
from headrace_lumberjack.identity import canonical, digest
from headrace_lumberjack.session import LumberjackSession
from headrace_lumberjack.settings import LumberjackSection
from headrace_lumberjack.wire import V1, json_frame, pairs_frame, window
from hypothesis import given
from hypothesis import strategies as st

from tests.driving import PEER, traced
from tests.lumberjack.driving import RECEIVED, Seen, document, drive, feed, parts_of

IDS = Path(__file__).parent / "ids.json"


def of(*documents: bytes, **more: Any) -> list[Seen | Reject]:
    frames = b"".join(json_frame(1 + index, item) for index, item in enumerate(documents))
    return drive([window(len(documents)) + frames], **more).flat


def one(raw: bytes, **more: Any) -> Seen:
    (part,) = of(raw, **more)
    assert isinstance(part, Seen)
    return part


def shuffled(value: Any, chance: random.Random) -> Any:
    """The same JSON with its keys in another order at every level."""
    if isinstance(value, dict):
        items = list(value.items())
        chance.shuffle(items)
        return {key: shuffled(item, chance) for key, item in items}
    if isinstance(value, list):
        return [shuffled(item, chance) for item in value]
    return value


def test_json_is_passed_through_byte_for_byte() -> None:
    raw = b' { "b" : 1.50, "a":\t12345678901234567890123, "c":1e999, "a":2, "d":"\\u00e9\xc3\xa9" } '
    assert one(raw).value == raw


@pytest.mark.parametrize(
    ("more", "source"),
    [
        ({}, "web-1"),
        ({"host": {"name": "h"}}, "h"),
        ({"host": {}}, "web-1"),
        ({"host": None, "agent": None}, "192.0.2.7"),
        ({"host": "plain", "agent": None}, "plain"),
        ({"host": "plain"}, "web-1"),
        ({"host": ["h"], "agent": {"hostname": "of/agent"}}, "of%2Fagent"),
        ({"host": {"name": 5}, "agent": 5}, "192.0.2.7"),
    ],
)
def test_the_source(more: dict[str, Any], source: str) -> None:
    assert one(document(**more)).source == f"/lumberjack/{source}"


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


def test_a_certificate_says_who_it_is() -> None:
    assert one(document(), peer=Peer("192.0.2.7", 1, "edge-3")).source == "/lumberjack/edge-3"


@pytest.mark.parametrize(
    ("more", "subject"),
    [
        ({}, "filebeat"),
        ({"@metadata": {"beat": "filebeat", "raw_index": "logs-nginx-default"}}, "logs-nginx-default"),
        ({"@metadata": {"beat": "filebeat", "index": "other"}}, "other"),
        ({"@metadata": None, "type": "syslog"}, "syslog"),
        ({"@metadata": {"type": "_doc"}, "type": 5}, "-"),
        ({"@metadata": {"beat": "ünï\n"}}, "ünï\n"),
    ],
)
def test_the_subject(more: dict[str, Any], subject: str) -> None:
    assert one(document(**more)).subject == subject


def test_the_time() -> None:
    event = one(document(**{"@timestamp": "2026-11-21 09:30:00.5-0130"}))
    assert (event.time, event.attributes) == ("2026-11-21T11:00:00.5Z", {})


@pytest.mark.parametrize("sent", [None, 5, "", "yesterday", ["2026-11-21T09:30:00Z"]])
def test_without_a_time_it_is_that_of_receipt(sent: Any) -> None:
    event = one(document(**{"@timestamp": sent}))
    assert (event.time, event.attributes) == (RECEIVED, {"time": "received"})


# Ids


@pytest.mark.parametrize(
    "long", [None, {"list": [[], {}, {"b": [1, 2], "a": None}] * 400, "text": ']}\\"' * 5000, "": {"": ""}}]
)
def test_permuted_keys_give_one_id(long: Any) -> None:
    chance = random.Random(11)
    value = json.loads(document(message=None, json=long, nested={"b": [{"d": 1, "c": 2}], "a": 0}))
    raws = {orjson.dumps(shuffled(value, chance)) for _ in range(5)}
    assert len(raws) == 5
    assert (min(map(len, raws)) > SHORT) == (long is not None)
    ids = {one(raw).id for raw in raws}
    assert len(ids) == 1
    assert ids.pop().startswith("d.")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from([1.5, "", "a", "1", '"', "\\"]),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(["", "a", "b", '"', "1"]), inner, max_size=4)
    ),
    max_leaves=12,
)


@given(JSON, JSON, st.randoms(use_true_random=False))
def test_a_digest_is_one_for_all_orders_of_keys_and_another_for_another_value(
    one: Any, other: Any, chance: random.Random
) -> None:
    digests = [finish(digest(orjson.dumps(each))) for each in (one, shuffled(one, chance), other)]
    assert digests[0] == digests[1]
    assert (digests[0] == digests[2]) == (canonical(orjson.dumps(one)) == canonical(orjson.dumps(other)))


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


# v1


def v1(*pairs: tuple[bytes, bytes], **limits: Any) -> Seen | Reject:
    (part,) = drive([window(1, V1) + pairs_frame(9, pairs)], **limits).flat
    return part


def test_pairs_become_an_object() -> None:
    event = v1((b"line", b'say "hi" \xc3\xbc'), (b"host", b"h"), (b"type", b"t"), (b"", b""))
    assert isinstance(event, Seen)
    assert event.json == {"line": 'say "hi" ü', "host": "h", "type": "t", "": ""}
    assert (event.source, event.subject, event.time) == ("/lumberjack/h", "t", RECEIVED)
    assert event.attributes == {"time": "received"}


def test_repeated_keys_are_kept_in_order() -> None:
    event = v1((b"tag", b"a"), (b"x/~", b"1"), (b"tag", b"b"), (b"x/~", b"2"), (b"tag", b"a"))
    assert isinstance(event, Seen)
    assert event.json == {"tag": ["a", "b", "a"], "x/~": ["1", "2"]}
    assert event.attributes["keys"] == {"/tag": "repeated", "/x~1~0": "repeated"}


def test_what_is_no_utf8_is_kept_beside() -> None:
    event = v1((b"line", b"a\xffb"), (b"k\xfe", b"v"), (b"line", b"c\x81"), (b"@timestamp", b"2026-11-21T09:30:00Z"))
    assert isinstance(event, Seen)
    assert event.json == {"line": ["aÿb", "c\ufffd"], "kþ": "v", "@timestamp": "2026-11-21T09:30:00Z"}
    assert event.time == "2026-11-21T09:30:00Z"
    assert event.attributes["invalid_utf8"] == {
        "/line/0": b64encode(b"a\xffb").decode(),
        "/line/1": b64encode(b"c\x81").decode(),
        "~key1": b64encode(b"k\xfe").decode(),
    }


def test_json_with_windows_1252_is_read_as_such() -> None:
    """With its own id, host and time; beside it, JSON as it comes."""
    raw = document(message="M?ller", host={"name": "h?"}).replace(b"?", b"\xfc")
    plain, event = of(document(), raw)
    assert isinstance(plain, Seen)
    assert isinstance(event, Seen)
    assert event.value == raw.replace(b"\xfc", "ü".encode())
    assert event.source.endswith("/h%C3%BC")
    assert event.time == plain.time
    assert plain.attributes == {}
    assert event.attributes == {
        "invalid_utf8": {"/message": b64encode(b"M\xfcller").decode(), "/host/name": b64encode(b"h\xfc").decode()}
    }
    timeless, bad = of(b'{"message":"\xe9"}', b'{"message":\xe9}')
    assert isinstance(timeless, Seen)
    assert timeless.attributes["time"] == "received"
    assert isinstance(bad, Reject)
    assert bad.reason is Reason.BAD_JSON


# Limits of one event: beyond them it is kept, and acknowledged


def test_an_event_as_large_as_allowed_and_one_byte_larger() -> None:
    raw = document(message="x" * 3000)
    good, bad = of(raw, raw[:-1] + b" }", event_bytes=len(raw))
    assert isinstance(good, Seen)
    assert isinstance(bad, Reject)
    assert (bad.reason, bad.raw) == (Reason.OVERSIZED, raw[:-1] + b" }")
    exact = 2000 - len(b'{"line":""}') - len(b'{"time":"received"}')
    assert isinstance(v1((b"line", b"x" * exact), event_bytes=2000), Seen)
    for size, said in (exact + 1, "2001 bytes"), (5000, "5022 bytes"):
        large = v1((b"line", b"x" * size), event_bytes=2000)
        assert isinstance(large, Reject)
        assert (large.reason, large.detail[: len(said)]) == (Reason.OVERSIZED, said)
        assert large.raw == pairs_frame(9, [(b"line", b"x" * size)])


@pytest.mark.parametrize(("opening", "closing"), [(b"[", b"]"), (b'{"a":', b"}")])
def test_an_event_as_deep_as_allowed_and_one_level_deeper(opening: bytes, closing: bytes) -> None:
    def nested(levels: int) -> bytes:
        return b'{"text":"}{[]\\"{{","x":' + opening * levels + b"1" + closing * levels + b"}"

    good, bad, *far = of(*(nested(levels) for levels in (63, 64, 900, 5000, 100_000)))
    assert isinstance(good, Seen)
    for part in (bad, *far):
        assert isinstance(part, Reject)
        assert part.reason == Reason.TOO_DEEP


@pytest.mark.parametrize(
    "raw", [b'{"message":"no time"}', b'{"@timestamp":"2026-11-21T09:30:00Z","message":"no place"}']
)
def test_equal_events_that_nothing_identifies_are_each_their_own(raw: bytes) -> None:
    assert len({part.id for part in of(raw, raw, raw)}) == 3
