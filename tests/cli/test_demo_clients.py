"""The demo's clients against the receivers' sessions: both understand events and acknowledgements."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest
import zmq
import zmq.asyncio
from headrace_cli.clients.configuration import PORTS
from headrace_cli.clients.logjam import APP_ENV, DEVICE, DROPPED, NUMBERS, DemoDevice, message, send_messages
from headrace_cli.clients.protocols import DEMO_CLIENTS
from headrace_cli.errors import CommandError
from headrace_cli.stack.services import SERVICES
from headrace_cli.verbs.demo import SENDERS
from headrace_common.operations.settings import LimitSettings
from headrace_common.record.encoding import decode
from headrace_common.session.interface import Peer, Session
from headrace_courier.session import CourierSession
from headrace_courier.settings import CourierLimits, CourierSection
from headrace_forward.session import ForwardSession
from headrace_forward.settings import ForwardSection
from headrace_logjam.wire import ACCEPTED, decode_meta
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


def test_every_protocol_that_demo_speaks_is_tried_and_explained() -> None:
    assert SESSIONS.keys() == DEMO_CLIENTS.keys()
    assert SENDERS.keys() == PORTS.keys() == {service.name for service in SERVICES}


def test_what_demo_says_to_logjam_is_understood() -> None:
    found = driven()
    found.send(*([b"", *message(number)] for number in range(8)))
    for frame in found.turn():
        found.store(frame)
    assert [reply[1:] for reply in found.hear()] == [(APP_ENV, ACCEPTED)] * 8
    assert len({part.id for part in found.flat}) == 8


def test_the_demo_device_drops_what_it_says_it_drops() -> None:
    device = DemoDevice()
    address = json.loads(device.environment["HEADRACE_LOGJAM__ENDPOINTS"])["demo"]
    with zmq.Context() as context, context.socket(zmq.SUB) as consumer:
        consumer.setsockopt(zmq.RCVTIMEO, 60_000)
        consumer.setsockopt(zmq.SUBSCRIBE, b"")
        consumer.connect(address)
        expected = device.publish()
        seen = [decode_meta(consumer.recv_multipart()[3]) for _ in range(expected - 1)]
    device.close()
    assert {meta.device for meta in seen} == {DEVICE}
    assert {meta.sequence for meta in seen} | set(DROPPED) == set(range(1, NUMBERS + 1))
    assert not {meta.sequence for meta in seen} & set(DROPPED)


async def test_demos_producers_count_their_answers() -> None:
    context = zmq.asyncio.Context()
    router = context.socket(zmq.ROUTER)
    port = router.bind_to_random_port("tcp://127.0.0.1")
    sending = asyncio.create_task(asyncio.to_thread(send_messages, f"127.0.0.1:{port}", 500, lambda count: None))
    try:
        for number in range(501):
            if number == 500:
                assert await sending == 500
                sending = asyncio.create_task(asyncio.to_thread(send_messages, f"127.0.0.1:{port}", 1, lambda _: None))
            route, *_ = await router.recv_multipart()
            await router.send_multipart([route, APP_ENV, ACCEPTED if number < 500 else b"400 Bad Request"])
        with pytest.raises(CommandError, match=r"answered .*400 Bad Request"):
            await sending
    finally:
        context.destroy(linger=0)


@pytest.mark.parametrize("protocol", DEMO_CLIENTS)
def test_what_demo_says_is_understood(protocol: str) -> None:
    client, session = DEMO_CLIENTS[protocol](), SESSIONS[protocol]()
    heard: list[Any] = []
    store = InstantStore()
    for first, count in ((0, 3), (3, 1), (4, 50)):
        session.receive(client.frame(first, count), 1_795_253_837_123)
        while session.busy():
            session.receive(b"", 1_795_253_837_123)
        acknowledged = 0
        again = True
        while again:
            again = False
            for question in session.questions():
                session.answered(question.ticket, store.answer(question))
                again = True
            for frame in session.frames():
                parts = [part for part in frame.parts() if isinstance(part, bytes)]
                heard += parts
                session.settle(frame.ticket, len(parts), True)
                again = True
            while said := session.outgoing():
                acknowledged += client.receive(said)
        assert acknowledged == count
    assert [n for record in heard for n in range(54) if b'"n":%d,' % n in decode(record)[0]] == list(range(54))
    ids = {dict(decode(record)[1])["ce_id"] for record in heard}
    assert len(ids) == len(heard)
    assert all(name.startswith(b"d.") for name in ids)
