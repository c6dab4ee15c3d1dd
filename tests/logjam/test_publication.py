"""What is stored is published again, as a device does it."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
import zmq
import zmq.asyncio
from headrace_cli.machine.ports import free_port
from headrace_common.operations.settings import KafkaSettings
from headrace_logjam.publication import Publication
from headrace_logjam.wire import Meta, decode_meta

from tests.contract.embedded import EmbeddedKafka
from tests.contract.stopping import stopped
from tests.driving import NOW_MS
from tests.logjam.driving import asking, driven, event
from tests.logjam.test_service import ACCEPTED, REFUSED, Logjam, connected, heard

DEVICE = 77


def test_only_what_is_stored_is_published_once_numbered() -> None:
    publication, said = Publication(DEVICE, b"tcp://here:9606"), []
    found = driven(publish=lambda frames, now_ms: said.append(publication.message(frames, now_ms)))
    good = [event({"n": n}, n, device=5, sequence=99, created_ms=1000 * n) for n in range(3)]
    (frame,) = found.send(*map(asking, good[:2]), asking(event(b"no JSON")), asking(good[2]))
    for stored, published in ((3, 0), (None, 3)):
        found.store(frame, stored)
        assert [each[:3] for each in said] == [each[:3] for each in good[:published]]
    metas = [decode_meta(each[3]) for each in said]
    assert metas == [Meta(0, DEVICE, NOW_MS, 1), Meta(1, DEVICE, 1000, 2), Meta(2, DEVICE, 2000, 3)]
    beat = publication.heartbeat(NOW_MS)
    assert beat[:3] == [b"heartbeat", b"tcp://here:9606", b"{}"]
    assert decode_meta(beat[3]) == Meta(0, DEVICE, NOW_MS, 4)
    assert [answer[2] for answer in found.hear()] == [b"202 Accepted"] * 2 + [b"400 Bad Request", b"202 Accepted"]


def test_of_a_spoiled_frame_only_messages_are_published() -> None:
    """It is in quarantine as a whole, and its parts were not all made. Others must be served on."""
    said: list[list[bytes]] = []
    found = driven(publish=lambda frames, now_ms: said.append(Publication(DEVICE, b"").message(frames, now_ms)))
    broken = event({"n": 2})[:3], [*event({"n": 3})[:3], b"no meta"]
    for frame in found.send(asking(event({"n": 1})), *map(asking, broken)):
        found.session.stored(frame.ticket, 1, True)
    assert [each[2] for each in said] == [b'{"n":1}']


@pytest.mark.kafka
@pytest.mark.long
async def test_a_subscriber_sees_no_hole_but_the_restart(
    topics: KafkaSettings, kafka: EmbeddedKafka, tmp_path: Path, context: zmq.asyncio.Context
) -> None:
    port = free_port()
    address = "tcp://logjam.example.org:9606"
    with Logjam(topics, tmp_path, logjam={"pub_port": port, "device": DEVICE, "pub_address": address}) as receiver:
        await receiver.start()
        subscriber = connected(context, zmq.SUB, port, RCVHWM=0, SUBSCRIBE=b"")
        producer = connected(context, zmq.DEALER, receiver.port)
        push = connected(context, zmq.PUSH, receiver.pull_port)
        beat = await heard(subscriber)  # it hears us from now on
        assert beat[:2] == [b"heartbeat", address.encode()]
        first = decode_meta(beat[3]).sequence
        for n in range(200):
            await producer.send_multipart(asking(event({"n": n}, n % 4, created_ms=n)))
            await push.send_multipart(event({"n": n}, created_ms=1000 + n))
        for _ in range(200):
            assert await heard(producer) == ACCEPTED
        found = [await heard(subscriber)]
        while sum(each[0] != b"heartbeat" for each in found) < 400 or found[-1][0] != b"heartbeat":
            found.append(await heard(subscriber))
        metas = [decode_meta(each[3]) for each in found]
        assert [meta.sequence for meta in metas] == list(range(first + 1, first + 1 + len(found)))
        assert {meta.device for meta in metas} == {DEVICE}
        assert {meta.created_ms for meta in metas} >= {*range(1, 200), *range(1000, 1200)}  # kept; 0 is that of receipt
        with stopped(kafka.pid):
            await producer.send_multipart(asking(event({})))
            while await subscriber.poll(500):
                assert (await heard(subscriber))[0] == b"heartbeat"
        assert await heard(producer) == ACCEPTED
        while (await heard(subscriber))[0] == b"heartbeat":
            pass  # until it is published
        await producer.send_multipart(asking(event(b"no JSON")))
        assert (await heard(producer))[1:] == REFUSED[1:]

        receiver.kill()
        await receiver.start()
        while decode_meta((await heard(subscriber))[3]).sequence > 2:
            pass  # it was on its way when the receiver was killed
        receiver.signal(signal.SIGTERM)
        assert await receiver.ended() == 0
