"""`headrace send`, `smoke` and `explain`: events reach a receiver once, and what it does not acknowledge is said."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import signal
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import AsyncMock

import msgpack
import pytest
import zmq
from aiokafka.errors import KafkaConnectionError
from headrace_cli.ground import ROOT, CommandError
from headrace_cli.verbs.explain import explain
from headrace_cli.verbs.smoke import smoke
from headrace_cli.wire import sending as verb
from headrace_cli.wire import smoking as module
from headrace_cli.wire.sending import sent
from headrace_cli.wire.source import LINE_BYTES, EventSource, LineSource, RateSource
from headrace_cli.wire.target import CLIENTS, target_of
from headrace_common.operations.errors import DeliveryError, DeliveryPolicy
from headrace_common.operations.settings import KafkaSettings, TopicSettings
from headrace_courier import wire as courier
from headrace_logjam.wire import METHODS, decode_meta
from headrace_lumberjack import wire as lumberjack

from tests.cli.operating.topics import lead_to
from tests.contract.certificates import Authority
from tests.contract.conftest import DIALECTS
from tests.contract.embedded import EmbeddedKafka
from tests.contract.receiver import Receiver
from tests.contract.topic import events, own_topics
from tests.contract.waiting import wait_for
from tests.explaining import HOST, Serve, Stored, serving
from tests.forward.driving import encode

PROTOCOLS = sorted(name for name, client in CLIENTS.items() if client.malformed)


def saying(answer: bytes | None) -> Serve:
    """A server that says this to any bytes; None: it resets the connection."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await reader.read(65_536):
            if answer is None:
                break
            writer.write(answer)
        writer.transport.abort()

    return serve


def to(protocol: str, address: str, source: EventSource, ca: str = "", **how: Any) -> bool:
    """Sends as `send` does; whether all was acknowledged."""
    return sent(target_of(protocol, Path("nowhere"), address, ca), source, **how).fine


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_events_at_a_rate_arrive_once(protocol: str, capfd: pytest.CaptureFixture[str]) -> None:
    stored = Stored(protocol)
    with serving(stored) as target:
        assert to(protocol, target, RateSource(2000, 0.5, 400), connections=3, batch=7, as_json=True)
    told = json.loads(capfd.readouterr().out)
    assert (told["sent"], told["acknowledged"], told["problems"]) == (1000, 1000, {})
    assert 0 < told["p50"] <= told["p99"]
    inside = {"otlp": lambda body: body["body"], "relp": lambda body: json.loads(body["message"])}
    known = [inside[protocol](body) if protocol in inside else body for body in stored.bodies]
    assert sorted(value["headrace"]["n"] for value in known) == list(range(1000))
    assert {value["headrace"]["run"] for value in known} == {told["run"]}
    assert stored.connections == 3


def test_lines_of_a_file(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "lines").write_bytes(b'plain \xff text\r\n\n{"a": 1}\n[1]\n' + b"x" * (LINE_BYTES + 5) + b"\nlast")
    stored = Stored("forward")
    with serving(stored) as target:
        assert to("forward", target, LineSource((tmp_path / "lines").open("rb")), batch=2)
        first, *rest = sorted(stored.bodies, key=lambda body: body["headrace"]["n"])
        assert first["message"] == "plain \ufffd text"
        assert rest[0]["a"] == 1
        assert [body["message"] for body in rest[1:]] == ["[1]", "x" * LINE_BYTES, "last"]
        (tmp_path / "lines").write_bytes(b"".join(b"%d\n" % number for number in range(20_000)))
        capfd.readouterr()
        assert to("forward", target, LineSource((tmp_path / "lines").open("rb")), batch=1000, as_json=True)
    assert json.loads(capfd.readouterr().out)["frames"] <= 40, "many lines fill a frame"
    assert len(stored.bodies) == 20_005


def test_tls(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    stored, ours = Stored("lumberjack"), str(authority.file)
    tls = authority.server()
    assert [each.tls for each in module.parse(["logjam=h:1", "courier=h:1"], tls)] == [None, tls]
    with serving(stored, tls) as target:
        assert to("lumberjack", target, RateSource(100, 0.1, 300), ours)
        assert len(stored.bodies) == 10
        with pytest.raises(CommandError, match="not trusted"):
            to("lumberjack", target, RateSource(10, 1, 300), "system")
    with serving(saying(None)) as target, pytest.raises(CommandError, match="does not speak TLS as we do: it ends"):
        to("lumberjack", target, RateSource(10, 1, 300), ours)


@pytest.mark.parametrize("interrupted", [False, True])
def test_standard_input_is_sent_as_it_comes(interrupted: bool) -> None:
    stored = Stored("courier")
    with serving(stored) as target:
        command = [sys.executable, "-m", "headrace_cli", "send", "courier", target, "--json"]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        process = subprocess.Popen(command, **pipes, text=True)  # type: ignore[call-overload]
        process.stdin.write("one\n")
        process.stdin.flush()
        wait_for(lambda: stored.bodies, "the first line, before the second is written")
        if interrupted:
            process.send_signal(signal.SIGINT)
            process.wait(120)
        out, err = process.communicate(None if interrupted else "two\n", timeout=120)
    told = json.loads(out)
    assert (told["sent"], told["acknowledged"]) == (2 - interrupted, 2 - interrupted)
    assert (process.returncode, err) == (0, "")
    assert [body["message"] for body in stored.bodies] == ["one", "two"][: told["sent"]]


@contextlib.contextmanager
def device(answer: bytes, heard: list[list[bytes]]) -> Iterator[str]:
    """A ROUTER in a thread, which says this to each message."""
    with zmq.Context() as context, context.socket(zmq.ROUTER) as router:
        router.setsockopt(zmq.LINGER, 0)
        port, over = router.bind_to_random_port(f"tcp://{HOST}"), threading.Event()

        def serve() -> None:
            while not over.is_set():
                if router.poll(20):
                    route, *message = router.recv_multipart()
                    heard.append(message)
                    if answer:
                        router.send_multipart([route, message[1], answer])

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield f"{HOST}:{port}"
        finally:
            over.set()
            thread.join()


def test_logjam_is_one_message_an_event_and_202_counts(capfd: pytest.CaptureFixture[str]) -> None:
    heard: list[list[bytes]] = []
    with device(b"202 Accepted", heard) as address:
        assert to("logjam", address, RateSource(2000, 0.1, 300), connections=2, batch=50, as_json=True)
    found = json.loads(capfd.readouterr().out)
    assert (found["sent"], found["acknowledged"], found["frames"], len(heard)) == (200, 200, 200, 200)
    assert {decode_meta(message[-1]).compression for message in heard} == set(range(len(METHODS)))
    assert all(message[0] == b"" and message[2] == b"logs.demo.shop" for message in heard)


HTTP = b"HTTP/1.1 400 Bad Request\r\n\r\n" + b"\xff" * 300


@pytest.mark.parametrize(
    ("protocol", "answer", "sentence"),
    [
        ("forward", b"", "acknowledged nothing for 2 s"),
        ("forward", b"\x81\xa3ack\xa1x", "which was not sent"),
        ("courier", None, "the connection"),  # a reset, or an end, by chance
        ("courier", HTTP, "answered against the protocol"),
        ("lumberjack", HTTP, "answered against the protocol"),
        ("logjam", b"400 Bad Request", "400 Bad Request"),
        ("logjam", b"418", "no answer of a device"),
    ],
)
def test_a_server_that_does_not_acknowledge(
    protocol: str,
    answer: bytes | None,
    sentence: str,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    if answer == b"":
        monkeypatch.setattr(verb, "ANSWER_SECONDS", 2)
    with device(answer or b"", []) if protocol == "logjam" else serving(saying(answer)) as target:
        assert not to(protocol, target, RateSource(1000, 0.1, 300))
    err = capfd.readouterr().err
    assert f"{target} " in err
    assert sentence in err
    assert "events were not acknowledged" in err


SEGMENT = ROOT / "tests/segment/vectors/original/conv01_block.bin"
BEATS = lumberjack.window(3) + lumberjack.compressed(b"".join(lumberjack.json_frame(n, b"{}") for n in range(1, 4)))
CHUNK = encode("t", [(1, {"n": 0}), (2, {"n": 1})], chunk="c")


@pytest.mark.parametrize(
    ("protocol", "data", "status", "said"),
    [
        ("lumberjack", BEATS, 0, ["event"] * 3 + ["answer"]),
        ("lumberjack", BEATS + BEATS[:-1], 1, ["event"] * 3 + ["answer", "broken"]),
        ("lumberjack", b"GET / HTTP/1.1\r\n\r\n", 1, ["broken"]),
        ("courier", courier.jdat(bytes(16), [b'{"n":0}', b'{"n":1}']), 0, ["event", "event", "answer"]),
        ("courier", courier.jdat(bytes(16), [b"{"]), 1, ["quarantine", "answer"]),
        ("courier", courier.jdat(bytes(16), [bytes(9 << 20)] * 8, level=9), 1, ["broken"]),
        ("forward", CHUNK, 0, ["event", "event", "answer"]),
        ("forward", b'["t",1,{"n":0}]', 0, ["event"]),
        ("forward", CHUNK + b"\xc1", 1, ["event", "event", "answer", "broken"]),
        ("segment", SEGMENT.read_bytes(), 0, ["question"]),
        ("segment", b"\xff" * 16, 1, ["broken"]),
    ],
)
def test_it_shows_what_a_receiver_makes_of_bytes(
    protocol: str, data: bytes, status: int, said: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "bytes").write_bytes(data)
    assert explain(protocol, str(tmp_path / "bytes")) == status
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == said


def test_it_says_where_it_breaks_and_by_which_limit(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The limits are those of the environment."""
    monkeypatch.setenv("HEADRACE_LIMITS__FRAME_BYTES", "1024")
    (tmp_path / "bytes").write_bytes(CHUNK + msgpack.packb(["t", 1, {"n": "x" * 2000}]))
    assert explain("forward", str(tmp_path / "bytes")) == 1
    assert f"broken at byte {len(CHUNK)}: " in (out := capsys.readouterr().out)
    assert "LIMITS__FRAME_BYTES" in out
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(CHUNK)))
    assert explain("forward", "-") == 0


REAL = [dialect for dialect in DIALECTS if dialect.name in CLIENTS and not dialect.variant]


async def test_a_late_kafka_is_waited_for_a_topic_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """A network that enforces policies refuses a new pod at first."""
    late = DeliveryError("Kafka at kafka:9092: refused", DeliveryPolicy.RETRY)
    late.__cause__ = KafkaConnectionError("refused")
    missing = DeliveryError("topic events is missing", DeliveryPolicy.RETRY)
    monkeypatch.setattr(module, "AGAIN", 0)
    monkeypatch.setattr(module, "describe", AsyncMock(side_effect=[late, late, ["events"]]))
    await module.reached(KafkaSettings(), seconds=60)
    for error, seconds in ((late, -1), (missing, 60)):
        monkeypatch.setattr(module, "describe", AsyncMock(side_effect=[error]))
        with pytest.raises(DeliveryError, match=str(error)):
            await module.reached(KafkaSettings(), seconds)


@pytest.fixture
async def topics(kafka: EmbeddedKafka, monkeypatch: pytest.MonkeyPatch) -> KafkaSettings:
    four = TopicSettings(events_partitions=4, segments_partitions=1)
    found = await asyncio.to_thread(own_topics, kafka.bootstrap, four)
    lead_to(found, monkeypatch)
    return found


@pytest.fixture
async def receivers(topics: KafkaSettings, tmp_path: Path) -> AsyncIterator[dict[str, Receiver]]:
    started = {dialect.name: Receiver.of(dialect, topics, tmp_path) for dialect in REAL}
    for receiver in started.values():
        receiver.spawn()
    for receiver in started.values():
        await receiver.listens()
    yield started
    for receiver in started.values():
        receiver.stop()


@pytest.mark.kafka
async def test_each_event_is_found_and_what_nobody_answers_fails_alone(
    receivers: dict[str, Receiver], topics: KafkaSettings, capsys: pytest.CaptureFixture[str]
) -> None:
    targets = [f"{name}={HOST}:{receiver.port}" for name, receiver in receivers.items()]
    assert await asyncio.to_thread(smoke, targets, ca="", seconds=60) == 0
    said = capsys.readouterr().out
    assert said.count(f"on {topics.events_topic}, partition") == len(REAL) == len(await events(topics))
    assert said.count(" acknowledged in ") == len(REAL)
    targets = [f"courier={HOST}:1", f"forward={HOST}:{receivers['forward'].port}"]
    assert await asyncio.to_thread(smoke, targets, ca="", seconds=60) == 1
    said = capsys.readouterr().out
    assert f"!! courier    {HOST}:1 " in said
    assert said.count(f"on {topics.events_topic}, partition") == 1
