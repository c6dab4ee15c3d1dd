"""When a request is answered, and what becomes of one that Kafka keeps waiting."""

from __future__ import annotations

import pytest
from headrace_common.operations.errors import ProtocolError
from headrace_otlp.session import PIPELINED

from tests.driving import NOW_MS, feed
from tests.otlp.driving import answers, body, raw, record, sent, session


def test_an_answer_waits_for_all_before_it() -> None:
    driven = session()
    driven.receive(sent(record("a")) + raw("GET / HTTP/1.1\nHost: a") + sent(record("b")), NOW_MS)
    first, second = driven.frames()
    driven.stored(second.ticket, 1, True)
    assert not driven.outgoing()
    driven.stored(first.ticket, 0, False)
    assert not driven.outgoing()
    driven.stored(first.ticket, 1, True)
    assert [answer.status for answer in answers(driven.outgoing())] == [200, 404, 200]


def test_a_request_that_kafka_keeps_waiting_is_answered_before_its_client_gives_up() -> None:
    driven, began = session(), 100.0
    assert driven.deadline() is None
    driven.receive(sent(record()), NOW_MS)
    (frame,) = driven.frames()
    now = began
    while not driven.over:
        due = driven.deadline()
        assert due is not None
        now = max(now, due)
        driven.tick(now)
        said = driven.outgoing()
    assert 6 <= now - began <= 8
    (answer,) = answers(said)
    assert (answer.status, answer.last) == (503, True)
    assert "Retry-After: 5" in answer.lines
    driven.stored(frame.ticket, 1, True)
    assert not driven.outgoing()


def test_what_is_stored_at_the_last_moment_is_told_as_stored() -> None:
    driven = session()
    driven.receive(sent(record()), NOW_MS)
    (frame,) = driven.frames()
    driven.tick(0.0)
    driven.stored(frame.ticket, 1, True)  # and the client does not read
    driven.tick(100.0)
    assert answers(driven.outgoing())[0].status == 200
    assert not driven.over
    assert driven.deadline() is None


def test_answers_that_wait_for_their_turn_are_limited() -> None:
    driven = session()
    driven.receive(sent(record()), NOW_MS)
    feed(driven, raw("GET / HTTP/1.1\nHost: a") * (PIPELINED - 1))
    with pytest.raises(ProtocolError) as caught:
        feed(driven, raw("GET / HTTP/1.1\nHost: a"))
    assert caught.value.limit == "PIPELINED"


def test_who_asks_for_his_turn_hears_of_it_behind_what_waits() -> None:
    driven, content = session(), body(record())
    lines = (
        "POST /v1/logs HTTP/1.1\nHost: a\nContent-Type: application/x-protobuf\nExpect: 100-continue\nContent-Length: "
    )
    driven.receive(sent(record()) + raw(f"{lines}{len(content)}"), NOW_MS)
    (frame,) = driven.frames()
    assert not driven.outgoing()
    driven.stored(frame.ticket, 1, True)
    assert [answer.status for answer in answers(driven.outgoing())] == [200, 100]
