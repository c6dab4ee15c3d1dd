"""`headrace send --fault`: the sound events are acknowledged beside every fault, and those that are sent again keep their ids."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import ssl
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from headrace_cli.errors import CommandError
from headrace_cli.operating.wire.address import Target
from headrace_cli.operating.wire.explain.receiver import RECEIVERS, Receiver
from headrace_cli.operating.wire.security import Security
from headrace_cli.operating.wire.send import connections, faults, faulty, landed
from headrace_cli.operating.wire.send.beside import Beside
from headrace_cli.operating.wire.send.connections import Tally
from headrace_cli.operating.wire.send.faults import INFLATED, PAUSE, Fault, Kind, Played, fault_of
from headrace_cli.operating.wire.send.faulty import FaultyConnection
from headrace_cli.operating.wire.send.source import LineSource
from headrace_cli.operating.wire.send.verb import Options, send
from headrace_cli.operating.wire.talk.protocols import MALFORMED
from headrace_cli.stack.broker import EmbeddedKafka
from headrace_cli.stack.certificates import ensure
from headrace_common.operations.settings import TopicSettings

from tests.cli.operating.test_send import PROTOCOLS, Server
from tests.contract import receiver as real
from tests.contract.topic import events, own_topics
from tests.contract.waiting import wait_for
from tests.lake.test_query import event, make

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
        receiver = Receiver(RECEIVERS[self.protocol](0)[1], 1_000_000)

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


def played(
    protocol: str, fault: Fault, folder: Path, capfd: pytest.CaptureFixture[str]
) -> tuple[Strict, dict[str, Any]]:
    stored = Strict(protocol)
    with Server(stored).running() as server:
        options = Options(server.target, lines(folder), batch=BATCH, timeout=30, as_json=True, fault=fault)
        assert send(protocol, folder, options) == 0
        wait_for(lambda: len(stored.ids) == FRAMES * BATCH, "what nobody asks an acknowledgement for is read, too")
    told = json.loads(capfd.readouterr().out)
    assert (told["sent"], told["problems"]) == (FRAMES * BATCH, {})
    assert told["acknowledged"] + told["not_asked"] == told["sent"]
    assert told["fault"]["name"] == fault.name
    return stored, told


@pytest.mark.parametrize(
    ("protocol", "name"),
    [
        (protocol, name)
        for protocol in PROTOCOLS
        for name in FAULTS
        if not (protocol == "segment" and name in ("bomb", "bad-json", "cut-after-3", "half-frame"))
    ],
)
def test_sound_events_are_acknowledged_beside_it(
    protocol: str, name: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    fault = FAULTS[name]
    stored, told = played(protocol, fault, tmp_path, capfd)
    assert stored.ids.keys() == set(range(FRAMES * BATCH))
    assert all(len(ids) == 1 for ids in stored.ids.values())
    assert told["fault"]["played"] >= 1
    twice = sum(times > 1 for times in stored.times.values())
    if fault.kind is Kind.RESEND:
        assert told["fault"]["frames_sent_again"] == told["fault"]["played"] == FRAMES
        assert twice == (0 if protocol == "segment" else FRAMES * BATCH)  # a segment's session knows its writer's level
    elif fault.kind is not Kind.CUT:
        assert twice == 0
    if fault.kind is Kind.HALF_FRAME:
        assert told["fault"]["played"] == told["fault"]["frames_sent_again"] == FRAMES // fault.every
    if fault.kind is Kind.NO_ACK:
        assert told["not_asked"] == FRAMES // fault.every * BATCH
        assert told["fault"]["answers"] == {"takes it": FRAMES // fault.every}
    assert bool(stored.quarantined) == (fault.kind is Kind.BAD_JSON)
    assert bool(stored.errors) == (fault.kind is Kind.MALFORMED)
    assert bool(told["fault"]["closed_by_server"]) == (fault.kind is Kind.MALFORMED)
    if fault.kind in (Kind.BOMB, Kind.BAD_JSON):
        assert told["fault"]["answers"] == {"acknowledges it": told["fault"]["played"]}


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_malformed_bytes_begin_no_frame(protocol: str) -> None:
    assert Receiver(RECEIVERS[protocol](0)[1], 1).feed(MALFORMED[protocol], NOW).error is not None


@pytest.mark.parametrize(
    ("name", "options", "fault"),
    [
        ("", {}, None),
        ("cut-after-1", {}, Fault(Kind.CUT, 1)),
        ("cut-after-1000000", {}, Fault(Kind.CUT, 1_000_000)),
        ("resend", {}, Fault(Kind.RESEND, 1)),
        ("resend", {"every": 3}, Fault(Kind.RESEND, 3)),
        ("bomb", {"inflated": 7}, Fault(Kind.BOMB, 10, inflated=7 << 20)),
        ("slow-reader", {"pause": 0.5, "every": 2}, Fault(Kind.SLOW_READER, 2, pause=0.5)),
        ("slow-reader", {}, Fault(Kind.SLOW_READER, 10, PAUSE, INFLATED << 20)),
    ],
)
def test_what_the_options_ask_for(name: str, options: dict[str, Any], fault: Fault | None) -> None:
    assert fault_of(name, "lumberjack", **options) == fault
    assert fault is None or fault.name == name


@pytest.mark.parametrize(
    ("protocol", "name", "options", "sentence"),
    [
        ("forward", "fire", {}, "--fault fire: it is one of slow-reader, .*cut-after-N"),
        ("forward", "cut-after", {}, "it is one of"),
        ("forward", "cut-after-N", {}, "it is one of"),
        ("forward", "cut-after-0", {}, "1 to 1,000,000"),
        ("forward", "cut-after-1000001", {}, "1 to 1,000,000"),
        ("segment", "bomb", {}, "makes no sense for segment: segments compress nothing"),
        ("segment", "bad-json", {}, "any bytes"),
        ("forward", "", {"every": 2}, "--every: no fault needs it"),
        ("forward", "cut-after-2", {"every": 2}, "--every: --fault cut-after-2 does not need it"),
        ("forward", "resend", {"pause": 1.0}, "--pause: --fault resend does not need it"),
        ("forward", "resend", {"inflated": 1}, "--inflated: --fault resend does not need it"),
    ],
)
def test_what_makes_no_sense(protocol: str, name: str, options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(CommandError, match=sentence) as raised:
        fault_of(name, protocol, **options)
    assert raised.value.status == 2


def closing(protocol: str, times: int) -> tuple[Strict, Callable[[], Callable[[bytes], bytes | None]]]:
    """A server that ends its first so many connections when they say something."""
    stored, left = Strict(protocol), [times]

    def answers() -> Callable[[bytes], bytes | None]:
        left[0] -= 1
        return stored() if left[0] < 0 else lambda data: None

    return stored, answers


@pytest.mark.parametrize("protocol", ["courier", "forward", "lumberjack"])
def test_a_server_that_closes_is_counted_and_comes_to_hear_everything(
    protocol: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(faulty, "_RETURN", 0.0)
    stored, answers = closing(protocol, faulty.RETURNS)
    with Server(answers).running() as server:
        options = Options(server.target, lines(tmp_path), batch=BATCH, as_json=True, fault=FAULTS["resend"])
        assert send(protocol, tmp_path, options) == 0
    told = json.loads(capfd.readouterr().out)
    assert (told["acknowledged"], told["fault"]["closed_by_server"]) == (FRAMES * BATCH, faulty.RETURNS)
    assert all(len(ids) == 1 for ids in stored.ids.values())


def test_a_server_that_always_closes_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(faulty, "_RETURN", 0.0)
    _, answers = closing("forward", faulty.RETURNS + 1)
    with Server(answers).running() as server:
        options = Options(server.target, lines(tmp_path), batch=BATCH, fault=FAULTS["resend"])
        assert send("forward", tmp_path, options) == 1
        assert server.connections == faulty.RETURNS + 1
    told = capfd.readouterr()
    assert "events were not acknowledged." in told.err
    assert re.search(rf"connections closed by the server +{faulty.RETURNS + 1}$", told.out, re.M)


def test_harmful_plays_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(faults, "MOST_BOMBS", 2)

    async def play() -> tuple[Played, int]:
        played = Played(Fault(Kind.BOMB, 1, inflated=1))
        done = 0

        async def answer(self: Beside) -> str:
            nonlocal done
            done += 1
            return "closes the connection"

        monkeypatch.setattr(Beside, "_harmful", answer)
        beside = Beside(Target("forward", "127.0.0.1", 1), played, 1.0)
        for _ in range(4):
            beside.start()
            beside.start()  # while the first is being played
            await beside.finish(asyncio.Event())
        return played, done

    told, done = asyncio.run(play())
    assert (told.times, done, told.closed) == (2, 2, 2)


@pytest.mark.parametrize(("fault", "ends"), [(Fault(Kind.CUT, 5), "reset"), (Fault(Kind.HALF_FRAME, 5), "closed")])
async def test_a_cut_resets_and_half_a_frame_ends_in_order(fault: Fault, ends: str, tmp_path: Path) -> None:
    stored, tally, found = Strict("courier"), Tally(), []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        answer = stored()
        try:
            while data := await reader.read(65_536):
                writer.write(answer(data) or b"")
            found.append("closed")
        except ConnectionResetError:
            found.append("reset")
        writer.transport.abort()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    target = Target("courier", "127.0.0.1", server.sockets[0].getsockname()[1])
    report = Played(fault)
    with lines(tmp_path).open("rb") as stream:
        connection = FaultyConnection(
            target, LineSource(stream), tally, BATCH, 60, None, report, Beside(target, report, 60)
        )
        await connection.run(asyncio.Event())
    server.close()
    assert report.times == FRAMES // 5
    assert found[: FRAMES // 5] == [ends] * (FRAMES // 5)
    assert (tally.sent, tally.acknowledged) == (FRAMES * BATCH, FRAMES * BATCH)


@pytest.mark.parametrize("stopped", [False, True])
async def test_ctrl_c_breaks_a_play_off(stopped: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    gate, stop = asyncio.Event(), asyncio.Event()

    async def answer(self: Beside) -> str:
        await gate.wait()
        return "acknowledges it"

    monkeypatch.setattr(Beside, "_harmful", answer)
    report = Played(Fault(Kind.BAD_JSON))
    beside = Beside(Target("forward", "127.0.0.1", 1), report, 1.0)
    beside.start()
    (stop if stopped else gate).set()
    await beside.finish(stop)
    assert report.answers == ({} if stopped else {"acknowledges it": 1})


async def test_a_slow_reader_sends_ahead_and_hears_when_it_is_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "GRACE", 600.0)
    monkeypatch.setattr(faulty, "SLOW_WINDOW", 7)
    stored, stop, tally = Strict("forward"), asyncio.Event(), Tally()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        answer = stored()
        while data := await reader.read(65_536):
            writer.write(answer(data) or b"")
            if len(stored.ids) == 7 * BATCH:
                assert tally.acknowledged == 0  # although all is answered
                stop.set()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    target = Target("forward", "127.0.0.1", server.sockets[0].getsockname()[1])
    report = Played(Fault(Kind.SLOW_READER, 1, pause=3600))
    with lines(tmp_path).open("rb") as stream:
        made = LineSource(stream)
        await FaultyConnection(target, made, tally, BATCH, 600, None, report, Beside(target, report, 600)).run(stop)
    server.close()
    assert (tally.sent, tally.acknowledged, report.times) == (7 * BATCH, 7 * BATCH, 1)


@pytest.mark.parametrize("name", ["slow-reader", "half-frame", "cut-after-3", "no-ack", "malformed"])
def test_over_tls(name: str, tls: tuple[ssl.SSLContext, Path], tmp_path: Path) -> None:
    stored = Strict("lumberjack")
    with Server(stored, tls[0]).running() as server:
        options = Options(
            server.target, lines(tmp_path), batch=BATCH, security=Security(ca=tls[1]), fault=FAULTS[name], timeout=30
        )
        assert send("lumberjack", tmp_path, options) == 0
    assert stored.ids.keys() == set(range(FRAMES * BATCH))
    assert all(len(ids) == 1 for ids in stored.ids.values())


def test_the_table_says_what_the_server_did(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with Server(Strict("lumberjack")).running() as server:
        options = Options(server.target, lines(tmp_path), batch=BATCH, fault=FAULTS["no-ack"])
        assert send("lumberjack", tmp_path, options) == 0
    rows = [re.split("  +", line.strip()) for line in capfd.readouterr().out.splitlines()]
    assert ["not asked for", "25"] in rows
    assert ["fault: no-ack", "played 5 times"] in rows
    assert ["the server takes it", "5"] in rows
    assert ["connections closed by the server", "0"] in rows


def test_only_what_was_promised_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An event that nobody promised is in the lake; one that was promised comes later."""
    run = "0123456789abcdef"

    def row(number: int) -> dict[str, Any]:
        body = json.dumps({"headrace": {"run": run, "n": number}}, separators=(",", ":"))
        return event(number, event_id=f"d.{number}", body=body)

    lake = tmp_path / "lake"
    make(lake, events=[row(0), row(1)])

    def later(_: float) -> None:
        shutil.rmtree(lake)
        make(lake, events=[row(0), row(1), row(2)])

    monkeypatch.setattr(landed, "time", SimpleNamespace(monotonic=time.monotonic, sleep=later))
    tally = Tally(sent=3, acknowledged=2, open=[range(1, 2)])
    assert landed.look(lake, run, tally) == landed.Landed(3, 0, 0, [], [])
    monkeypatch.setattr(landed, "PATIENCE", 0.0)
    tally = Tally(sent=4, acknowledged=3, unasked=[range(3, 4)])
    assert landed.look(lake, run, tally) == landed.Landed(3, 0, 0, [], [])


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.long
async def test_a_real_receiver(protocol: str, kafka: EmbeddedKafka, tmp_path: Path) -> None:
    """Through every fault each sound event is on the topic, under one id."""
    settings = own_topics(kafka.bootstrap, TopicSettings(events_partitions=4, segments_partitions=2))
    receiver = real.Receiver(protocol, settings, tmp_path)
    await receiver.start()
    runs: dict[str, dict[str, Any]] = {}
    for name in FAULTS:
        if protocol == "segment" and name in ("bomb", "bad-json"):
            continue
        command = [
            sys.executable,
            "-m",
            "headrace_cli",
            "send",
            protocol,
            f"127.0.0.1:{receiver.port}",
            "--fault",
            name,
        ]
        command += ["--file", str(lines(tmp_path)), "--batch", str(BATCH), "--json"]
        command += {"bomb": ["--inflated", "2"], "slow-reader": ["--pause", "1"]}.get(name, [])
        process = await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        out, err = await process.communicate()
        assert process.returncode == 0, (name, err)
        told = runs[name] = json.loads(out)
        assert told["acknowledged"] + told["not_asked"] == told["sent"] == FRAMES * BATCH
        assert told["fault"]["played"] > 0
        assert bool(told["fault"]["closed_by_server"]) == (name == "malformed"), told
    receiver.stop()
    ids: defaultdict[str, defaultdict[int, set[str]]] = defaultdict(lambda: defaultdict(set))
    for each in await events(settings):
        mark = each.json.get("headrace")
        if mark is not None:
            ids[mark["run"]][mark["n"]].add(each.id)
    for name, told in runs.items():
        found = ids[told["run"]]
        assert found.keys() == set(range(FRAMES * BATCH)), name
        assert all(len(each) == 1 for each in found.values()), name
