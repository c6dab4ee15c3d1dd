"""Broken clients: the sound events are acknowledged beside every fault, and those that are sent again keep their ids."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import pytest
from headrace_cli.stack.broker import EmbeddedKafka
from headrace_cli.stack.certificates import ensure
from headrace_cli.wire.send.connections import Tally
from headrace_cli.wire.send.source import LineSource
from headrace_cli.wire.target import CLIENTS, Security, Target
from headrace_common.operations.settings import TopicSettings

from tests.broken import faulty
from tests.broken.faults import Fault, Kind, Played
from tests.broken.faulty import play
from tests.cli.operating.test_send import PROTOCOLS, Server
from tests.contract import receiver as real
from tests.contract.topic import events, own_topics
from tests.contract.waiting import wait_for
from tests.explaining import receiver_of

HOST = "127.0.0.1"
NOW = 1_700_000_000_000
FRAMES = 20
BATCH = 5
FAULTS = {
    "slow-reader": Fault(Kind.SLOW_READER, 7, pause=0.2),
    "half-frame": Fault(Kind.HALF_FRAME, 7),
    "bomb": Fault(Kind.BOMB, 7, inflated=1 << 20),
    "bad-json": Fault(Kind.BAD_JSON, 7),
    "cut-after-3": Fault(Kind.CUT, 3),
    "resend": Fault(Kind.RESEND, 1),
    "no-ack": Fault(Kind.NO_ACK, 4),
    "malformed": Fault(Kind.MALFORMED, 7),
}


class Strict:
    """A receiver's own session for each connection, which is closed when it should be; it keeps the ids of each number."""

    def __init__(self, protocol: str) -> None:
        self.protocol = protocol
        self.ids: defaultdict[int, set[str]] = defaultdict(set)
        self.times: defaultdict[int, int] = defaultdict(int)
        self.quarantined = 0
        self.errors = 0

    def __call__(self) -> Callable[[bytes], bytes | None]:
        receiver = receiver_of(self.protocol, 1_000_000)

        def answer(data: bytes) -> bytes | None:
            heard = receiver.feed(data, NOW)
            self.quarantined += sum(heard.quarantined.values())
            for found in heard.events:
                mark = (found.get("body") or json.loads(found["payload"])).get("headrace")
                if mark is not None:
                    self.ids[mark["n"]].add(found["id"])
                    self.times[mark["n"]] += 1
            if heard.error is not None:
                self.errors += 1
                return None
            return b"".join(heard.replies)

        return answer


@pytest.fixture(scope="module")
def tls(tmp_path_factory: pytest.TempPathFactory) -> tuple[ssl.SSLContext, Path]:
    """What a server speaks, and the authority that a client trusts."""
    certificates = ensure(tmp_path_factory.mktemp("certificates"), "127.0.0.1")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificates.server)
    return context, certificates.ca


def lines(folder: Path) -> Path:
    path = folder / "lines"
    path.write_bytes(b"".join(b"line %d\n" % number for number in range(FRAMES * BATCH)))
    return path


def played(target: Target, fault: Fault, folder: Path) -> tuple[Tally, Played]:
    with lines(folder).open("rb") as stream:
        return asyncio.run(play(target, LineSource(stream), fault, BATCH))


def tried(protocol: str, fault: Fault, folder: Path) -> tuple[Strict, Tally, Played]:
    stored = Strict(protocol)
    with Server(stored).running() as server:
        tally, told = played(Target(protocol, HOST, server.port), fault, folder)
        wait_for(lambda: len(stored.ids) == FRAMES * BATCH, "what nobody asks an acknowledgement for is read, too")
    assert tally.problems == {}
    return stored, tally, told


@pytest.mark.parametrize(
    ("protocol", "name"),
    [
        (protocol, name)
        for protocol in PROTOCOLS
        for name in FAULTS
        if not (protocol == "segment" and name in ("bomb", "bad-json", "cut-after-3", "half-frame"))
    ],
)
def test_sound_events_are_acknowledged_beside_it(protocol: str, name: str, tmp_path: Path) -> None:
    fault = FAULTS[name]
    stored, tally, told = tried(protocol, fault, tmp_path)
    assert tally.acknowledged + sum(map(len, told.unasked)) == FRAMES * BATCH
    assert stored.ids.keys() == set(range(FRAMES * BATCH))
    assert all(len(ids) == 1 for ids in stored.ids.values())
    assert told.times >= 1
    twice = sum(times > 1 for times in stored.times.values())
    if fault.kind is Kind.RESEND:
        assert told.again == told.times == FRAMES
        assert twice == (0 if protocol == "segment" else FRAMES * BATCH)  # a segment's session knows its writer's level
    elif fault.kind is not Kind.CUT:
        assert twice == 0
    if fault.kind is Kind.HALF_FRAME:
        assert told.times == told.again == FRAMES // fault.every
    if fault.kind is Kind.NO_ACK:
        assert len(told.unasked) == FRAMES // fault.every
        assert told.answers == {"takes it": FRAMES // fault.every}
    assert bool(stored.quarantined) == (fault.kind is Kind.BAD_JSON)
    assert bool(stored.errors) == (fault.kind is Kind.MALFORMED)
    assert bool(told.closed) == (fault.kind is Kind.MALFORMED)
    if fault.kind in (Kind.BOMB, Kind.BAD_JSON):
        assert told.answers == {"acknowledges it": told.times}


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_malformed_bytes_begin_no_frame(protocol: str) -> None:
    assert receiver_of(protocol, 1).feed(CLIENTS[protocol].malformed, NOW).error is not None


def closing(protocol: str, times: int) -> tuple[Strict, Callable[[], Callable[[bytes], bytes | None]]]:
    """A server that ends its first so many connections when they say something."""
    stored, left = Strict(protocol), [times]

    def answers() -> Callable[[bytes], bytes | None]:
        left[0] -= 1
        return stored() if left[0] < 0 else lambda data: None

    return stored, answers


@pytest.mark.parametrize("protocol", ["courier", "forward", "lumberjack"])
def test_a_server_that_closes_is_counted_and_comes_to_hear_everything(
    protocol: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(faulty, "_RETURN", 0.0)
    stored, answers = closing(protocol, faulty.RETURNS)
    with Server(answers).running() as server:
        tally, told = played(Target(protocol, HOST, server.port), FAULTS["resend"], tmp_path)
    assert (tally.acknowledged, told.closed) == (FRAMES * BATCH, faulty.RETURNS)
    assert all(len(ids) == 1 for ids in stored.ids.values())


def test_a_server_that_always_closes_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(faulty, "_RETURN", 0.0)
    _, answers = closing("forward", faulty.RETURNS + 1)
    with Server(answers).running() as server:
        tally, told = played(Target("forward", HOST, server.port), FAULTS["resend"], tmp_path)
        assert server.connections == told.closed == faulty.RETURNS + 1
    assert tally.in_flight


@pytest.mark.parametrize("name", ["slow-reader", "half-frame", "cut-after-3", "no-ack", "malformed"])
def test_over_tls(name: str, tls: tuple[ssl.SSLContext, Path], tmp_path: Path) -> None:
    stored = Strict("lumberjack")
    with Server(stored, tls[0]).running() as server:
        target = Target("lumberjack", HOST, server.port, Security(str(tls[1])).context())
        tally, _ = played(target, FAULTS[name], tmp_path)
        wait_for(lambda: len(stored.ids) == FRAMES * BATCH, "what nobody asks an acknowledgement for is read, too")
    assert not tally.in_flight
    assert all(len(ids) == 1 for ids in stored.ids.values())


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.long
async def test_a_real_receiver(protocol: str, kafka: EmbeddedKafka, tmp_path: Path) -> None:
    """Through every fault each sound event is on the topic, under one id."""
    settings = own_topics(kafka.bootstrap, TopicSettings(events_partitions=4, segments_partitions=2))
    receiver = real.Receiver(protocol, settings, tmp_path)
    await receiver.start()
    runs: dict[str, str] = {}
    for name, fault in FAULTS.items():
        if protocol == "segment" and name in ("bomb", "bad-json"):
            continue
        with lines(tmp_path).open("rb") as stream:
            source = LineSource(stream)
            tally, told = await play(Target(protocol, HOST, receiver.port), source, fault, BATCH)
        runs[name] = source.run
        assert tally.problems == {}, name
        assert tally.acknowledged + sum(map(len, told.unasked)) == FRAMES * BATCH
        assert told.times > 0
        assert bool(told.closed) == (name == "malformed"), told
    await receiver.drains()
    ids: defaultdict[str, defaultdict[int, set[str]]] = defaultdict(lambda: defaultdict(set))
    for each in await events(settings):
        mark = each.json.get("headrace")
        if mark is not None:
            ids[mark["run"]][mark["n"]].add(each.id)
    for name, run in runs.items():
        assert ids[run].keys() == set(range(FRAMES * BATCH)), name
        assert all(len(each) == 1 for each in ids[run].values()), name
