"""PROXY protocol headers, versions 1 and 2, as balancers write them."""

from __future__ import annotations

import ipaddress
import struct

import pytest
from headrace_common.listening.proxy import SIGNATURE_V2, V1_LONGEST, V2_LONGEST, ProxiedClient, header
from headrace_common.operations.errors import ProtocolError
from headrace_common.operations.networks import networks, normal, within
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.tiers import examples


def read(data: bytes) -> tuple[ProxiedClient | None, bytes]:
    """(who, what is left of `data` behind the header). EOFError when it is cut off."""
    reading = header()
    wanted = next(reading)
    while True:
        assert wanted > 0
        if len(data) < wanted:
            raise EOFError
        piece, data = data[:wanted], data[wanted:]
        try:
            wanted = reading.send(piece)
        except StopIteration as end:
            return end.value, data


def v2(command: int, family: int, body: bytes, length: int | None = None) -> bytes:
    return SIGNATURE_V2 + struct.pack(">BBH", 0x20 | command, family, len(body) if length is None else length) + body


def addresses(source: str, target: str, ports: tuple[int, int] = (56324, 24224)) -> bytes:
    return ipaddress.ip_address(source).packed + ipaddress.ip_address(target).packed + struct.pack(">HH", *ports)


LONGEST_V1 = b"PROXY UNKNOWN ".ljust(V1_LONGEST - len(b"\r\n"), b"x")
V4 = addresses("192.0.2.1", "198.51.100.2")
V6 = addresses("2001:db8::1", "2001:db8::2")

HEADERS: dict[str, tuple[bytes, ProxiedClient | None]] = {
    "v1, IPv4": (b"PROXY TCP4 192.0.2.1 198.51.100.2 56324 24224\r\n", ProxiedClient("192.0.2.1", 56324)),
    "v1, IPv6": (b"PROXY TCP6 2001:DB8::1 2001:db8::2 56324 24224\r\n", ProxiedClient("2001:db8::1", 56324)),
    "v1, mapped": (b"PROXY TCP6 ::ffff:192.0.2.1 ::ffff:192.0.2.2 1 2\r\n", ProxiedClient("192.0.2.1", 1)),
    "v1, unknown": (b"PROXY UNKNOWN\r\n", None),
    "v1, unknown with addresses": (b"PROXY UNKNOWN ffff::1 ffff::2 65535 65535\r\n", None),
    "v1, the longest": (LONGEST_V1 + b"\r\n", None),
    "v2, IPv4": (v2(1, 0x11, V4), ProxiedClient("192.0.2.1", 56324)),
    "v2, IPv6": (v2(1, 0x21, V6), ProxiedClient("2001:db8::1", 56324)),
    "v2, local": (v2(0, 0, b""), None),
    "v2, local with addresses": (v2(0, 0x11, V4), None),
    "v2, Unix": (v2(1, 0x31, bytes(216)), None),
    "v2, the longest": (v2(1, 0x11, V4 + bytes(V2_LONGEST - len(V4))), ProxiedClient("192.0.2.1", 56324)),
}


@pytest.mark.parametrize("name", HEADERS)
def test_header(name: str) -> None:
    data, client = HEADERS[name]
    assert read(data + b"\x93behind") == (client, b"\x93behind")


BAD = {
    "no header": b"\x93\xa1t\xce\x65\x53\xf1\x00\x81\xa1m\xa1x and more",
    "v1 that does not end": b"PROXY TCP4 " + b"1" * V1_LONGEST,
    "v1, too long": LONGEST_V1 + b"x\r\n",
    "v1, family and address differ": b"PROXY TCP6 192.0.2.1 192.0.2.2 1 2\r\n",
    "v1, no address": b"PROXY TCP4 example.org 192.0.2.2 1 2\r\n",
    "v1, an address with an interface, which may be any text": b"PROXY TCP6 fe80::1%a\tb ::1 1 2\r\n",
    "v1, port": b"PROXY TCP4 192.0.2.1 192.0.2.2 65536 2\r\n",
    "v1, words": b"PROXY TCP4 192.0.2.1 192.0.2.2 1\r\n",
    "v1, not ASCII": b"PROXY TCP4 192.0.2.\xc2\xb2 192.0.2.2 1 2\r\n",
    "v2, version": SIGNATURE_V2 + b"\x11\x11\x00\x0c" + V4,
    "v2, command": v2(2, 0x11, V4),
    "v2, too short": v2(1, 0x11, V4[:-1]),
    "v2, too short for IPv6": v2(1, 0x21, V4),
    "v2, too long": v2(1, 0x11, V4 + bytes(V2_LONGEST), V2_LONGEST + 1),
}


@pytest.mark.parametrize("name", BAD)
def test_what_is_no_header(name: str) -> None:
    with pytest.raises(ProtocolError):
        read(BAD[name])


@given(st.binary(max_size=300), st.sampled_from([b"", b"PROXY ", b"PROXY TCP4 ", SIGNATURE_V2, SIGNATURE_V2 + b"\x21"]))
@settings(max_examples=examples(10_000))
def test_any_bytes_are_a_header_or_an_error(data: bytes, start: bytes) -> None:
    try:
        client, _ = read(start + data)
    except (ProtocolError, EOFError):
        return
    assert client is None or 0 <= client.port <= 65535


def test_networks() -> None:
    listed = networks("10.0.0.0/8, 192.0.2.1 2001:db8::/32")
    assert all(within(each, listed) for each in ("10.1.2.3", "192.0.2.1", "2001:db8::5"))
    assert not any(within(each, listed) for each in ("192.0.2.2", "2001:db9::5"))
    assert not within("10.1.2.3", networks(""))
    assert not within("unix", networks("0.0.0.0/0 ::/0"))


@pytest.mark.parametrize(
    ("said", "meant"), [("::ffff:192.0.2.1", "192.0.2.1"), ("fe80::1%eth0", "fe80::1"), ("2001:DB8::1", "2001:db8::1")]
)
def test_an_address_has_one_form(said: str, meant: str) -> None:
    assert normal(said) == meant
