"""When a request is answered."""

from __future__ import annotations

import pytest
from headrace_common.operations.errors import ProtocolError
from headrace_otlp.session import PIPELINED, OtlpSession

from tests.driving import NOW_MS, feed
from tests.otlp.driving import answers, body, raw, record, sent, session


def statuses(driven: OtlpSession) -> list[int]:
    return [answer.status for answer in answers(b"".join(iter(driven.outgoing, b"")))]


def test_an_answer_waits_for_all_before_it() -> None:
    driven = session()
    driven.receive(sent(record("a")) + raw("GET / HTTP/1.1\nHost: a") + sent(record("b")), NOW_MS)
    first, second = driven.frames()
    driven.stored(second.ticket, 1, True)
    assert not driven.outgoing()
    driven.stored(first.ticket, 0, False)
    assert not driven.outgoing()
    driven.stored(first.ticket, 1, True)
    assert statuses(driven) == [200, 404, 200]
    assert driven.deadline() is None, "however long it takes: who has heard 503 gives up what he sent"


def test_while_kafka_is_away_requests_are_refused_behind_what_waits() -> None:
    away: list[str] = []
    driven = session(problems=lambda: away)
    driven.receive(sent(record("a")), NOW_MS)
    away.append("it stores nothing")
    driven.receive(raw("GET / HTTP/1.1\nHost: a") + sent(record("b")) + sent(record("c")), NOW_MS)
    (frame,) = driven.frames()
    assert not driven.outgoing(), "what was taken before waits on"
    driven.stored(frame.ticket, 1, True)
    stored, other, refused = answers(b"".join(iter(driven.outgoing, b"")))
    assert (stored.status, other.status, refused.status) == (200, 404, 503)
    assert {"Retry-After: 5", "Connection: close"} <= {*refused.lines}
    assert driven.over


def test_answers_that_wait_for_their_turn_are_limited() -> None:
    driven = session()
    driven.receive(sent(record()), NOW_MS)
    feed(driven, raw("GET / HTTP/1.1\nHost: a") * (PIPELINED - 1))
    with pytest.raises(ProtocolError) as caught:
        feed(driven, raw("GET / HTTP/1.1\nHost: a"))
    assert caught.value.limit == "PIPELINED"


def test_who_asks_for_a_turn_gets_it_behind_others() -> None:
    driven, content = session(), body(record())
    lines = (
        "POST /v1/logs HTTP/1.1\nHost: a\nContent-Type: application/x-protobuf\nExpect: 100-continue\nContent-Length: "
    )
    driven.receive(sent(record()) + raw(f"{lines}{len(content)}"), NOW_MS)
    (frame,) = driven.frames()
    assert not driven.outgoing()
    driven.stored(frame.ticket, 1, True)
    assert statuses(driven) == [200, 100]
