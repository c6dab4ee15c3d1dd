"""Payload entries to events."""

from __future__ import annotations

import pytest
from headrace_common.session.interface import Peer
from headrace_common.session.memory import MEMORY_BYTES, Memory
from headrace_courier.session import CourierSession
from headrace_courier.settings import CourierLimits
from headrace_courier.wire import jdat

from tests.courier.driving import NONCE, drive, every_way
from tests.driving import PEER, feed, parts_of


@pytest.mark.parametrize(
    "event",
    [
        b"{}",
        b' {"a" : 1.0, "b":1e0,"a":2}\n',
        '{"m":"ünï 日本 🚀"}'.encode(),
        b'{"m":"\\ud83d\\ude80\\u0000","n":1e999,"deep":[[[[]]]]}',
        b'{"n":' + b"9" * 400 + b"}",
        b'{"host":1e999,"type":{"a":1},"path":[1]}',
    ],
)
def test_json_goes_through_unchanged(event: bytes) -> None:
    outcome = every_way(jdat(NONCE, [event, event]))
    assert [seen.value for seen in outcome.events] == [event, event]
    assert outcome.acknowledged == [(NONCE, 2)]


def test_the_source_is_the_certificate_else_the_host_else_the_address() -> None:
    events = [b'{"host":"web 1"}', b"{}", b'{"host":""}', b'{"host":{"name":"x"}}', b'{"host":"web 1"}']
    data = jdat(NONCE, events)
    plain = [seen.headers["ce_source"].decode() for seen in drive([data]).events]
    assert plain == [
        "/courier/web%201",
        "/courier/192.0.2.7",
        "/courier/192.0.2.7",
        "/courier/192.0.2.7",
        "/courier/web%201",
    ]
    certified = drive([data], peer=Peer("192.0.2.7", 1, "agent.example")).events
    assert {seen.headers["ce_source"] for seen in certified} == {b"/courier/agent.example"}


def test_ten_thousand_files_are_remembered_beside_each_other() -> None:
    """The memory begins again where it is full: with one file too many, each event would be worked out anew."""
    paths = [f"/var/log/containers/{n:0160}.log" for n in range(10_000)]
    events = [b'{"path":"%b","host":"node-%030d"}' % (path.encode(), n % 300) for n, path in enumerate(paths)]
    memory, used = Memory(), [0]
    for _ in range(2):
        driven = CourierSession(PEER, CourierLimits(), memory=memory)
        feed(driven, jdat(NONCE, events))
        (frame,) = driven.frames()
        parts = parts_of(frame)
        assert [part.subject for part in parts] == paths
        used.append(memory.used)
    assert MEMORY_BYTES > used[1] == used[2] > 10_000 * 300
