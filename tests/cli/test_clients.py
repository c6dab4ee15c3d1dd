"""The clients against the receivers' sessions: both understand events and acknowledgements."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from headrace_cli.operating.snippets import PORTS
from headrace_cli.stack.services import SERVICES
from headrace_cli.wire.send.source import ShopSource
from headrace_cli.wire.target import CLIENTS
from headrace_common.operations.settings import LimitSettings
from headrace_common.record.encoding import decode
from headrace_common.session.client import Answer, Remark
from headrace_common.session.interface import Peer, Session
from headrace_courier.session import CourierSession
from headrace_courier.settings import CourierLimits, CourierSection
from headrace_forward.session import ForwardSession
from headrace_forward.settings import ForwardSection
from headrace_logjam.client import MESSAGE_FRAMES
from headrace_logjam.wire import joined, split
from headrace_lumberjack.session import LumberjackSession
from headrace_lumberjack.settings import LumberjackSection
from headrace_segment.session.dialects import SegmentSession

from tests.logjam.driving import driven
from tests.segment.instant import LIMITS as SEGMENT_LIMITS
from tests.segment.instant import InstantStore

PEER = Peer("127.0.0.1", 1, "127.0.0.1")
SESSIONS: dict[str, Callable[[], Session]] = {
    "courier": lambda: CourierSession(PEER, CourierLimits(), CourierSection()),
    "forward": lambda: ForwardSession(PEER, LimitSettings(), ForwardSection()),
    "lumberjack": lambda: LumberjackSession(PEER, LimitSettings(), LumberjackSection()),
    "segment": lambda: SegmentSession(PEER, SEGMENT_LIMITS),
}


def test_every_protocol_has_a_client() -> None:
    assert {*SESSIONS, "logjam"} == CLIENTS.keys() == PORTS.keys() == {service.name for service in SERVICES}


def test_what_logjams_client_says_is_understood() -> None:
    client, found = CLIENTS["logjam"](), driven()
    frames = split(client.frame([ShopSource(8).event(number) for number in range(8)]))
    found.send(*(frames[at : at + MESSAGE_FRAMES] for at in range(0, len(frames), MESSAGE_FRAMES)))
    for frame in found.turn():
        found.store(frame)
    answers = [client.receive(joined(reply[1:])) for reply in found.hear()]
    assert answers == [[Answer(0, count, 8)] for count in range(1, 9)]
    assert len({part.id for part in found.flat}) == 8


@pytest.mark.parametrize("protocol", SESSIONS)
def test_what_a_client_says_is_understood(protocol: str) -> None:
    client, session = CLIENTS[protocol](), SESSIONS[protocol]()
    shop = ShopSource(1000)
    heard: list[Any] = []
    store = InstantStore()
    for index, (first, count) in enumerate(((0, 3), (3, 1), (4, 50))):
        greeting = b"" if index else client.again()
        frame = client.frame([shop.event(number) for number in range(first, first + count)])
        session.receive(greeting + frame, 1_795_253_837_123)
        while session.status().busy:
            session.receive(b"", 1_795_253_837_123)
        acknowledged: list[Answer | Remark] = []
        again = True
        while again:
            again = False
            for question in session.questions():
                session.answered(question.ticket, store.answer(question))
                again = True
            for frame in session.frames():
                parts = [part for part in frame.parts() if isinstance(part, bytes)]
                heard += parts
                session.stored(frame.ticket, len(parts), True)
                again = True
            while said := session.outgoing():
                acknowledged += client.receive(said)
        assert acknowledged[-1] == Answer(index, count, count)
    assert [n for record in heard for n in range(54) if b'"n":%d,' % n in decode(record)[0]] == list(range(54))
    ids = {dict(decode(record)[1])["ce_id"] for record in heard}
    assert len(ids) == len(heard)
    assert all(name.startswith(b"d.") for name in ids)
