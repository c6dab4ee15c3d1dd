"""The bytes to explain: a file's or standard input's, raw, in hex, or of one TCP connection in a capture of packets."""

from __future__ import annotations

import ipaddress
import re
import struct
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path
from typing import Any, BinaryIO, Final

import dpkt
import typer

from headrace_cli.errors import CommandError

CHUNK: Final = 64 << 10
_HEX: Final = re.compile(rb"[0-9a-fA-F\s:]*")
_HEX_DIGIT: Final = re.compile(rb"[0-9a-fA-F]")
_NOT_HEX: Final = b" \t\r\n\v\f:"

BEGINNINGS: Final = (
    b"\xa1\xb2\xc3\xd4",
    b"\xd4\xc3\xb2\xa1",
    b"\xa1\xb2\x3c\x4d",
    b"\x4d\x3c\xb2\xa1",
    b"\x0a\x0d\x0d\x0a",
)
MOST_BYTES: Final = 1 << 30
"""Largest capture. All of it is in memory."""
MOST_LISTED: Final = 20
_HALF: Final = 1 << 31
_WHOLE: Final = 1 << 32
_FAULTS: Final = (dpkt.Error, ValueError, struct.error, KeyError, IndexError)
_LINKS: Final[Mapping[int, Callable[[bytes], Any]]] = {
    dpkt.pcap.DLT_EN10MB: dpkt.ethernet.Ethernet,
    dpkt.pcap.DLT_LINUX_SLL: dpkt.sll.SLL,
    dpkt.pcap.DLT_LINUX_SLL2: dpkt.sll2.SLL2,
    dpkt.pcap.DLT_NULL: dpkt.loopback.Loopback,
    dpkt.pcap.DLT_LOOP: dpkt.loopback.Loopback,
}
"""How a packet begins, by the capture's link type. All others begin with the IP header, or are none of ours."""
_RAW: Final = frozenset({12, 14, 101, 228, 229})


def read(name: str, *, as_hex: bool, connection: int = 0, server: bool = False) -> Iterator[bytes]:
    """Yield the bytes in pieces, decoded if they are hex (`as_hex`, or nothing but hex at the beginning).

    Of a capture of packets: what the client, or the `server`, of the `connection` of that number has sent.

    Raises `CommandError` for what cannot be read, is empty, or is not the hex that it begins as.
    """
    with _opened(name) as stream:
        beginning = stream.read(CHUNK)
        if not beginning.strip():
            raise CommandError(f"{_title(name)} is empty: there is nothing to explain.", status=2)
        if beginning.startswith(BEGINNINGS):
            yield _captured(beginning, stream, connection, server=server)
            return
        if connection:
            raise CommandError(f"--connection: {_title(name)} is no capture of packets.", status=2)
        if as_hex or (_HEX.fullmatch(beginning) is not None and _HEX_DIGIT.search(beginning) is not None):
            yield from _from_hex(name, beginning, stream)
            return
        yield beginning
        while piece := stream.read(CHUNK):
            yield piece


def _title(name: str) -> str:
    return "standard input" if name == "-" else name


@contextmanager
def _opened(name: str) -> Iterator[BinaryIO]:
    if name == "-":
        yield sys.stdin.buffer
        return
    try:
        with Path(name).open("rb") as file:
            yield file
    except OSError as error:
        raise CommandError(f"{name} cannot be read: {error.strerror}.", status=2) from error


def _captured(beginning: bytes, stream: BinaryIO, connection: int, *, server: bool) -> bytes:
    chosen = choose(read_all(beginning, stream), connection)
    data, lacks = (chosen.server if server else chosen.client).data()
    if not data:
        raise CommandError(f"The {'server' if server else 'client'} has sent nothing that the capture holds.", status=2)
    if lacks:
        typer.echo(f"The capture lacks what comes behind byte {len(data):,}: the rest is left out.", err=True)
    return data


def _from_hex(name: str, beginning: bytes, stream: BinaryIO) -> Iterator[bytes]:
    odd = b""
    piece = beginning
    while piece:
        digits = odd + piece.translate(None, _NOT_HEX)
        even = len(digits) & ~1
        try:
            data = bytes.fromhex(digits[:even].decode("ascii"))
        except ValueError as error:
            raise CommandError(f"{_title(name)} is not hex alone: leave out offsets and text.", status=2) from error
        odd = digits[even:]
        if data:
            yield data
        piece = stream.read(CHUNK)
    if odd:
        raise CommandError(f"{_title(name)} has an odd number of hex digits.", status=2)


End = tuple[bytes, int]


@dataclass(eq=False)
class Side:
    """The bytes that one end has sent. `first`: the sequence number of its first byte."""

    end: End
    first: int | None = None
    spoke_first: bool = False
    pieces: dict[int, bytes] = field(default_factory=dict)

    def add(self, number: int, data: bytes) -> None:
        """Bytes that begin at a sequence number, which wraps. What comes again counts once."""
        if self.first is None:
            self.first = number
        at = (number - self.first) % _WHOLE
        if at >= _HALF:  # before what was seen first: a keep-alive, or a resend from before the capture
            data, at = data[_WHOLE - at :], 0
        if len(data) > len(self.pieces.get(at, b"")):
            self.pieces[at] = data

    @property
    def size(self) -> int:
        """Bytes, up to the first hole."""
        return len(self.data()[0])

    def data(self) -> tuple[bytes, bool]:
        """Return the bytes in order, up to the first that the capture lacks, and whether it lacks one."""
        whole, at = bytearray(), 0
        for begin in sorted(self.pieces):
            if begin > at:
                return bytes(whole), True
            whole += self.pieces[begin][at - begin :]
            at = len(whole)
        return bytes(whole), False


@dataclass(eq=False)
class Connection:
    """A TCP connection. The client is the end that opened it; if the capture lacks that, the end with the higher port."""

    client: Side
    server: Side

    def __str__(self) -> str:
        sizes = f"{self.client.size:,} bytes from the client, {self.server.size:,} from the server"
        return f"{_name(self.client.end)} to {_name(self.server.end)}: {sizes}"


def read_all(beginning: bytes, stream: BinaryIO) -> list[Connection]:
    """The connections with data, in the order of their beginning. Blocks on `stream`.

    Raises `CommandError` for a capture that is too large, damaged, or of packets that are not IP.
    """
    data = beginning + stream.read(MOST_BYTES + 1 - len(beginning))
    if len(data) > MOST_BYTES:
        raise CommandError(
            f"The capture has more than {MOST_BYTES >> 30} GiB: choose packets when you capture.", status=2
        )
    found: list[Connection] = []
    open_now: dict[frozenset[End], Connection] = {}
    try:
        for source, target, segment in _segments(data):
            _take(source, target, segment, found, open_now)
    except _FAULTS as error:
        raise CommandError(f"The capture cannot be read: {error or type(error).__name__}.", status=2) from error
    return [each for each in found if each.client.pieces or each.server.pieces]


def choose(connections: list[Connection], number: int) -> Connection:
    """The connection of that number, from 1 on; 0: the only one. Raises `CommandError` if that is none, or not clear."""
    if not connections:
        raise CommandError("The capture holds no TCP connection with data.", status=2)
    if number > len(connections):
        raise CommandError(f"--connection {number}: the capture holds {len(connections)}.", status=2)
    if number or len(connections) == 1:
        return connections[max(number, 1) - 1]
    listed = [f"  {at}: {each}" for at, each in enumerate(connections[:MOST_LISTED], 1)]
    if len(connections) > MOST_LISTED:
        listed.append(f"  and {len(connections) - MOST_LISTED} more")
    raise CommandError(
        "The capture holds {} connections: name one with --connection.\n{}".format(len(connections), "\n".join(listed)),
        status=2,
    )


def _take(
    source: End, target: End, segment: Any, found: list[Connection], open_now: dict[frozenset[End], Connection]
) -> None:
    ends = frozenset((source, target))
    asks = bool(segment.flags & dpkt.tcp.TH_SYN) and not segment.flags & dpkt.tcp.TH_ACK
    known = open_now.get(ends)
    if known is None or (asks and known.client.spoke_first and known.client.first != (segment.seq + 1) % _WHOLE):
        client, server = (source, target) if asks or source[1] > target[1] else (target, source)
        known = open_now[ends] = Connection(Side(client), Side(server))
        found.append(known)
    side = known.client if known.client.end == source else known.server
    if segment.flags & dpkt.tcp.TH_SYN:
        side.first, side.spoke_first = (segment.seq + 1) % _WHOLE, True
    elif segment.data:
        side.add(segment.seq, bytes(segment.data))


def _segments(data: bytes) -> Iterator[tuple[End, End, Any]]:
    file = BytesIO(data)
    reader = dpkt.pcapng.Reader(file) if data.startswith(BEGINNINGS[-1]) else dpkt.pcap.Reader(file)
    link = reader.datalink()
    if link not in _LINKS and link not in _RAW:
        raise ValueError(f"packets of link type {link}, which are not looked into")
    for _, packet in reader:
        packed = _ip(link, packet)
        if isinstance(packed, dpkt.ip.IP | dpkt.ip6.IP6) and isinstance(packed.data, dpkt.tcp.TCP):
            segment = packed.data
            yield (packed.src, segment.sport), (packed.dst, segment.dport), segment


def _ip(link: int, packet: bytes) -> Any:
    """Return the IP packet; None if it is damaged, or cut by the capture within its headers."""
    try:
        if link in _LINKS:
            return _LINKS[link](packet).data
        return dpkt.ip.IP(packet) if packet[:1] and packet[0] >> 4 == 4 else dpkt.ip6.IP6(packet)
    except _FAULTS:
        return None


def _name(end: End) -> str:
    address = ipaddress.ip_address(end[0])
    return f"[{address}]:{end[1]}" if address.version == 6 else f"{address}:{end[1]}"
