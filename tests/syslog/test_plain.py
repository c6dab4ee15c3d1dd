"""Syslog over TCP and UDP: what real clients sent, how messages are framed, and what ends a connection."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import socket
from pathlib import Path

import pytest
from headrace_cli.verbs.explain import explain
from headrace_common.operations.settings import LimitSettings
from headrace_common.session.interface import Message
from headrace_syslog.session import DatagramSession

from tests.contract.embedded import EmbeddedKafka
from tests.contract.receiver import Receiver
from tests.contract.topic import events, own_topics
from tests.contract.waiting import until
from tests.driving import NOW_MS, Seen, parts_of
from tests.syslog.driving import VECTORS, Outcome, every_stream, stream


def texts(found: Outcome) -> list[str]:
    return [each.json["message"] for each in found.events]


@pytest.mark.parametrize("path", sorted(VECTORS.glob("tcp_*.bin")), ids=lambda path: path.stem)
def test_what_a_client_sent_over_tcp_is_understood(path: Path) -> None:
    found = every_stream(path.read_bytes())
    assert found.error is None
    assert [text.strip() for text in texts(found)] == ["one – ü", "two", "three"]
    assert {each.subject for each in found.events} == {"app"}


@pytest.mark.parametrize("path", sorted(VECTORS.glob("udp_*.bin")), ids=lambda path: path.stem)
def test_what_a_client_sent_over_udp_is_understood(path: Path) -> None:
    session = DatagramSession(LimitSettings())
    session.receive(Message((path.read_bytes(),), address="192.0.2.9"), NOW_MS)
    ((part,),) = map(parts_of, session.frames())
    assert isinstance(part, Seen)
    assert (part.json["message"].strip(), part.subject) == ("one – ü", "app")


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"<13>a\n<13>b\0<13>c\r\n<13>d", ["a", "b", "c", "d"]),
        (b"5 <13>a6 <13>b\n5 <13>c", ["a", "b", "c"]),
        (b"5 <13>a<13>b\n5 <13>c\n\n<13>d\n", ["a", "b", "c", "d"]),
        (b"8 <13>a\n\0b", ["a\n\0b"]),
        (b"2023-10-11T22:14:15Z h su: m\n", ["m"]),
        (b"0 a\n1234567890 b\n", ["0 a", "1234567890 b"]),
        (b"\n\0\r\n", []),
        (b"", []),
        (b"<13>a\r", ["a"]),
        (b"12", ["12"]),
        (b"<13>\xff\n", ["ÿ"]),
    ],
)
def test_each_message_shows_how_it_is_framed(data: bytes, expected: list[str]) -> None:
    found = every_stream(data)
    assert found.error is None
    assert texts(found) == expected
    assert not found.partial


def test_a_count_that_is_too_large_takes_what_follows() -> None:
    found = every_stream(b"5 <13>a2023 was a year\n")
    assert found.error is not None
    assert found.error.offset == len(b"5 <13>a")
    assert texts(found) == ["a"]


def test_a_count_that_is_too_small_leaves_a_line() -> None:
    assert texts(every_stream(b"5 <13>abc\n5 <13>d")) == ["a", "bc", "d"]


@pytest.mark.parametrize("data", [b"1025 ", b"<13>" + b"m" * 1021, b"<13>" + b"m" * 1021 + b"\n"])
def test_a_message_that_is_too_large_ends_the_connection(data: bytes) -> None:
    found = every_stream(b"<13>a\n" + data, frame_bytes=1024)
    assert found.error is not None
    assert (found.error.limit, found.error.offset) == ("LIMITS__FRAME_BYTES", 6)
    assert texts(found) == ["a"]


@pytest.mark.parametrize("data", [b"1024 <13>" + b"m" * 1020, b"<13>" + b"m" * 1020, b"<13>" + b"m" * 1020 + b"\n"])
def test_the_largest_message_is_taken(data: bytes) -> None:
    assert texts(every_stream(data, frame_bytes=1024, event_bytes=1024)) == []
    assert len(every_stream(data, frame_bytes=1024, event_bytes=1024).rejects) == 1
    assert texts(stream([data], frame_bytes=2048)) == ["m" * 1020]


def test_equal_datagrams_are_two_events_of_their_senders() -> None:
    session = DatagramSession(LimitSettings())
    for address in ("192.0.2.9", "2001:db8::1"):
        session.receive(Message((b"<13>m",), address=address), NOW_MS)
    (parts,) = map(parts_of, session.frames())
    assert [part.source for part in parts] == ["/syslog/192.0.2.9", "/syslog/2001%3Adb8%3A%3A1"]
    assert len({part.id for part in parts}) == 2


def test_equal_messages_over_tcp_are_two_events_whatever_their_numbers() -> None:
    """A restarted syslog-ng counts from 1 again, and has seconds; nobody sends again what was not answered."""
    found = stream([b'<14>1 2003-10-11T22:14:15Z h a 1 - [meta sequenceId="1"] m\n' * 2])
    assert len({each.id for each in found.events}) == 2


@pytest.mark.kafka
async def test_lines_and_datagrams_arrive_and_dropped_ones_are_counted(kafka: EmbeddedKafka, tmp_path: Path) -> None:
    topics = own_topics(kafka.bootstrap)
    with Receiver("syslog", topics, tmp_path) as receiver:
        await receiver.start()
        _, writer = await asyncio.open_connection(*receiver.address)
        writer.write(b"<13>line\n<13>last")
        writer.close()
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            sender.sendto(b"<13>first", receiver.address)

            async def stored() -> int:
                return len(await events(topics))

            async def three() -> bool:
                return await stored() == 3

            await until(three, "what was sent is stored")
            assert await receiver.metric("syslog_datagrams_dropped_total") == 0
            os.kill(receiver.pid, signal.SIGSTOP)
            for _ in range(10_000):
                sender.sendto(b"<13>" + b"m" * 1000, receiver.address)
            os.kill(receiver.pid, signal.SIGCONT)

            async def told() -> bool:
                """Of what the kernel has dropped, the next datagram tells."""
                sender.sendto(b"<13>end", receiver.address)
                return await receiver.metric("syslog_datagrams_dropped_total") > 0

            await until(told, "what was dropped is told")
        assert await receiver.metric("events_unacknowledgeable_total") > 3


def test_explain_shows_the_line_in_which_a_file_ends(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "said").write_bytes(b"<13>a\n<13>b")
    assert explain("syslog", str(tmp_path / "said")) == 0
    assert re.findall(r'"message":"(\w)"', capsys.readouterr().out) == ["a", "b"]
