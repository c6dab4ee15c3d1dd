"""A receiver is driven into the states that Logjam's alerts are about, and the rules are evaluated over what it says then."""

from __future__ import annotations

from pathlib import Path

import pytest
import zmq
import zmq.asyncio
from headrace_cli.stack.broker import EmbeddedKafka
from headrace_common.operations.settings import KafkaSettings

from tests.contract.receiver import HOST, Receiver
from tests.contract.stopping import stopped
from tests.contract.waiting import until
from tests.logjam.driving import event
from tests.logjam.test_consumer import heartbeat
from tests.logjam.test_devices import Device, complete, consumer
from tests.logjam.test_service import Logjam, asking, marked
from tests.scrapes import Page, firing

pytestmark = [pytest.mark.kafka, pytest.mark.requires("promtool"), pytest.mark.long]


async def once(receiver: Receiver, count: float, metric: str, **labels: str) -> Page:
    """The page when it has counted so much."""

    async def counted() -> bool:
        return await receiver.metric(f"logjam_{metric}_total", **labels) >= count

    await until(counted, f"{metric} {labels} is {count:g}")
    status, text = await receiver.get("/metrics")
    assert status == 200
    return Page(text)


def fires(folder: Path, *pages: Page) -> set[str]:
    return firing(["headrace-logjam"], "logjam", pages, folder)


async def test_what_a_device_drops_and_two_devices_with_one_number(
    topics: KafkaSettings, tmp_path: Path, context: zmq.asyncio.Context
) -> None:
    device = Device(context)
    receiver = consumer(topics, tmp_path / "receiver", {"one": device})
    await receiver.start()
    try:
        await device.joined()
        await device.send(3)
        await device.beat()
        await complete(topics, device.sequence)
        whole = await once(receiver, 0, "lost_messages", endpoint="one")
        device.skip(5)
        await device.send()
        lossy = await once(receiver, 5, "lost_messages", endpoint="one")
        await device.say(heartbeat(device.sequence + 1))  # of another address
        doubled = await once(receiver, 1, "notices", endpoint="one", notice="doubled")
    finally:
        receiver.stop()
        device.stop()
    assert fires(tmp_path, whole, whole) == set()
    assert fires(tmp_path, whole, lossy) == {"HeadraceLogjamLoses"}
    assert fires(tmp_path, lossy, doubled) == {"HeadraceLogjamCannotCount"}


async def test_answers_that_are_late_and_clients_that_are_refused(
    topics: KafkaSettings, kafka: EmbeddedKafka, tmp_path: Path, context: zmq.asyncio.Context
) -> None:
    receiver = Logjam(topics, tmp_path, logjam={"answer_time": 1, "allow": "127.0.0.2"})
    await receiver.start()

    def client(address: str) -> zmq.asyncio.Socket:
        made = context.socket(zmq.DEALER)
        made.connect(f"tcp://{address}:0;{HOST}:{receiver.port}")
        return made

    try:
        begun = await once(receiver, 0, "answers", answer="late")
        strangers = [client("127.0.0.3") for _ in range(12)]
        refusing = await once(receiver, len(strangers), "refused", why="address")
        with stopped(kafka.pid):
            await client("127.0.0.2").send_multipart(asking(event(marked())))
            late = await once(receiver, 1, "answers", answer="late")
    finally:
        receiver.stop()
    assert fires(tmp_path, begun, begun) == set()
    assert fires(tmp_path, begun, refusing) == {"HeadraceLogjamRefuses"}
    assert "HeadraceLogjamAnswersLate" in fires(tmp_path, refusing, late)
