"""`headrace explain` of a capture of packets: what each side of a connection has sent, however its packets came."""

from __future__ import annotations

import contextlib
import itertools
import random
from io import BytesIO
from pathlib import Path

import dpkt
import pytest
from headrace_cli.errors import CommandError
from headrace_cli.wire.explain import source
from headrace_cli.wire.explain.verb import ExplainOptions, explain
from headrace_lumberjack import wire as lumberjack
from hypothesis import given
from hypothesis import strategies as st

BEATS = lumberjack.encode([{"n": n, "mark": random.Random(n).randbytes(20).hex()} for n in range(80)])
CLIENT, SERVER = ("192.0.2.7", 50_123), ("192.0.2.1", 5044)
SYN, ACK = dpkt.tcp.TH_SYN, dpkt.tcp.TH_ACK

Packet = tuple[tuple[str, int], tuple[str, int], int, int, bytes]


def segment(packet: Packet) -> dpkt.ip.IP:
    (source_host, source_port), (target_host, target_port), number, flags, data = packet
    held = dpkt.tcp.TCP(sport=source_port, dport=target_port, seq=number % (1 << 32), flags=flags, data=data)
    own, other = (bytes(int(part) for part in host.split(".")) for host in (source_host, target_host))
    made = dpkt.ip.IP(src=own, dst=other, p=dpkt.ip.IP_PROTO_TCP, data=held)
    made.len = len(made)
    return made


def ethernet(packet: Packet) -> bytes:
    return bytes(dpkt.ethernet.Ethernet(data=segment(packet)))


def cooked(packet: Packet) -> bytes:
    return bytes(dpkt.sll.SLL(ethtype=dpkt.ethernet.ETH_TYPE_IP, data=segment(packet)))


def tagged(packet: Packet) -> bytes:
    whole = ethernet(packet)
    return whole[:12] + b"\x81\x00\x00\x05" + whole[12:]


def raw(packet: Packet) -> bytes:
    return bytes(segment(packet))


def conversation(data: bytes, cuts: list[int], first: int = 1000, client: tuple[str, int] = CLIENT) -> list[Packet]:
    """A handshake, and what the client sends, cut there."""
    packets: list[Packet] = [(client, SERVER, first, SYN, b""), (SERVER, client, 77, SYN | ACK, b"")]
    places = sorted({0, *cuts, len(data)})
    for begin, end in itertools.pairwise(places):
        packets.append((client, SERVER, first + 1 + begin, ACK, data[begin:end]))
    packets.append((SERVER, client, 78, ACK, b"2A\0\0\0\x28"))
    return packets


def pcap(packets: list[Packet], form=ethernet, link: int = 1, snaplen: int = 1 << 16) -> bytes:
    file = BytesIO()
    writer = dpkt.pcap.Writer(file, linktype=link, snaplen=snaplen)
    for at, packet in enumerate(packets):
        writer.writepkt(form(packet)[:snaplen], ts=at)
    return file.getvalue()


def pcapng(packets: list[Packet]) -> bytes:
    file = BytesIO()
    writer = dpkt.pcapng.Writer(file)
    for at, packet in enumerate(packets):
        writer.writepkt(ethernet(packet), ts=at)
    return file.getvalue()


def sent(data: bytes) -> tuple[bytes, bool]:
    (found,) = source.read_all(data[:7], BytesIO(data[7:]))
    return found.client.data()


@pytest.mark.parametrize(
    "data",
    [
        pcap(conversation(BEATS, [5, 900])),
        pcapng(conversation(BEATS, [5, 900])),
        pcap(conversation(BEATS, [5, 900]), cooked, 113),
        pcap(conversation(BEATS, [5, 900]), tagged),
        pcap(conversation(BEATS, [5, 900]), raw, 101),
        pcap(conversation(BEATS, [5, 900], first=(1 << 32) - 300)),
        pcap(conversation(BEATS, [5, 900])[2:]),
    ],
    ids=["pcap", "pcapng", "cooked", "tagged", "without a link", "numbers that wrap", "begun before the capture"],
)
def test_what_a_client_has_sent(data: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert sent(data) == (BEATS, False)
    file = tmp_path / "my.pcap"
    file.write_bytes(data)
    assert explain(str(file), ExplainOptions()) == 0
    assert "lumberjack, from a client" in capsys.readouterr().out
    assert explain(str(file), ExplainOptions(server=True)) == 0
    assert "lumberjack, from a server" in capsys.readouterr().out


@given(st.lists(st.integers(1, len(BEATS) - 1), max_size=9), st.integers(0, 1 << 32))
def test_packets_in_any_order_and_more_than_once(cuts: list[int], seed: int) -> None:
    chance = random.Random(seed)
    packets = conversation(BEATS, cuts) + conversation(BEATS, [chance.randrange(1, len(BEATS)) for _ in range(9)])
    begin, rest = packets[0], [packet for packet in packets if packet[3] == ACK]
    chance.shuffle(rest)
    assert sent(pcap([begin, *rest])) == (BEATS, False)


def test_what_follows_a_hole_is_left_out_and_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    packets = conversation(BEATS, [100, 200])
    del packets[3]
    file = tmp_path / "my.pcap"
    file.write_bytes(pcap(packets))
    assert b"".join(source.read(str(file), as_hex=False)) == BEATS[:100]
    assert "lacks what comes behind byte 100" in capsys.readouterr().err


def test_packets_that_the_capture_has_cut_are_holes() -> None:
    data, lacks = sent(pcap(conversation(BEATS, [10, 900]), snaplen=154))
    assert (data, lacks) == (BEATS[:110], True)


def test_several_connections_are_listed_and_one_is_chosen(tmp_path: Path) -> None:
    packets = conversation(BEATS, []) + conversation(BEATS[:6], [], 5000)  # the same ends, once more
    packets += conversation(BEATS, [], client=("192.0.2.8", 50_123))
    file = tmp_path / "my.pcap"
    file.write_bytes(pcap(packets))
    with pytest.raises(CommandError, match="3 connections: name one with --connection") as caught:
        next(source.read(str(file), as_hex=False))
    assert "2: 192.0.2.7:50123 to 192.0.2.1:5044: 6 bytes from the client, 6 from the server" in str(caught.value)
    assert b"".join(source.read(str(file), as_hex=False, connection=2)) == BEATS[:6]
    with pytest.raises(CommandError, match="--connection 4: the capture holds 3"):
        list(source.read(str(file), as_hex=False, connection=4))


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (pcap([]), "no TCP connection with data"),
        (pcap(conversation(b"", [])[:2]), "no TCP connection with data"),
        (pcap([], link=127), "link type 127"),
        (b"\n\r\r\n" + bytes(40), "cannot be read"),
        (b"\xa1\xb2\xc3\xd4\0", "cannot be read"),
    ],
)
def test_a_capture_that_tells_nothing_is_one_sentence(data: bytes, said: str, tmp_path: Path) -> None:
    file = tmp_path / "my.pcap"
    file.write_bytes(data)
    with pytest.raises(CommandError, match=said) as caught:
        list(source.read(str(file), as_hex=False))
    assert caught.value.status == 2


def test_a_capture_up_to_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    data = pcap(conversation(BEATS, []))
    monkeypatch.setattr(source, "MOST_BYTES", len(data))
    assert sent(data) == (BEATS, False)
    monkeypatch.setattr(source, "MOST_BYTES", len(data) - 1)
    with pytest.raises(CommandError, match="choose packets when you capture"):
        sent(data)


def test_a_connection_of_no_capture(tmp_path: Path) -> None:
    file = tmp_path / "raw"
    file.write_bytes(BEATS)
    with pytest.raises(CommandError, match=r"--connection: .* is no capture"):
        list(source.read(str(file), as_hex=False, connection=1))


@given(st.integers(0, 400), st.integers(0, 255))
def test_a_damaged_capture_ends_in_a_sentence_or_in_bytes(at: int, value: int) -> None:
    data = bytearray(pcapng(conversation(BEATS, [5, 900])) if at % 2 else pcap(conversation(BEATS, [5, 900])))
    data[at] = value
    with contextlib.suppress(CommandError):
        assert all(str(each) for each in source.read_all(bytes(data), BytesIO()))
