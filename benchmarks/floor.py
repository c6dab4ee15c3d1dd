"""Measures the passes over the bytes of Forward, 16 x 500, that no receiver can leave out: CPU-s per million events.

nice .venv/bin/python -m benchmarks.floor       # about 10 CPU-s
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Sequence
from hashlib import sha256
from typing import Any, Final

import msgspec
import orjson
from aiokafka.record.util import calc_crc32c
from headrace_common.kafka.record_batch import compressed
from headrace_common.record.event import Envelope, rfc3339_ms

from benchmarks.load import Load, documents

EVENTS: Final = 500
SECONDS: Final = 0.7
SENDS: Final = 2000


def report(name: str, seconds: float, events: int) -> None:
    """Prints one row."""
    print(f"{name:44s} {seconds / events * 1e6:7.3f} CPU-s/M", flush=True)


def take(name: str, work: Callable[[Any], object], frames: Sequence[Any]) -> None:
    """Measures what `work` costs for a frame of `EVENTS`."""
    count, began = 0, time.process_time()
    while time.process_time() - began < SECONDS:
        for frame in frames:
            work(frame)
        count += len(frames) * EVENTS
    report(name, time.process_time() - began, count)


def kernel(name: str, data: bytes, *, sends: bool) -> None:
    """Measures the kernel's part of TCP over loopback on this side; a child is the other."""
    here, there = _tcp_pair()
    if not os.fork():
        here.close()
        for _ in range(SENDS):
            there.recv(len(data), socket.MSG_WAITALL) if sends else there.sendall(data)
        os._exit(0)
    there.close()
    room, began = bytearray(256 << 10), time.process_time()
    if sends:
        for _ in range(SENDS):
            here.sendall(data)
    else:
        while here.recv_into(room):
            pass
    report(name, time.process_time() - began, SENDS * EVENTS)
    here.close()
    os.wait()


def _tcp_pair() -> tuple[socket.socket, socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        here = socket.create_connection(server.getsockname())
        return here, server.accept()[0]


def main() -> None:
    """Prints each pass."""
    encoded = documents("forward", Load(16, EVENTS, 0))[: EVENTS * 40]
    packed = [b"".join(encoded[at : at + EVENTS]) for at in range(0, len(encoded), EVENTS)]
    decode = msgspec.msgpack.Decoder(list[tuple[Any, dict[str, Any]]]).decode
    head = b"\xdc" + EVENTS.to_bytes(2, "big")
    records = [[record for _, record in decode(head + frame)] for frame in packed]
    values = [[orjson.dumps(record) for record in frame] for frame in records]
    event, at = Envelope("forward", "/forward/host-0001", "kube.logs").event, rfc3339_ms(1_795_253_837_000)
    plain = [
        b"".join(event(b"d." + os.urandom(16).hex().encode(), at, value, b"{}") for value in frame) for frame in values
    ]
    take("copying the records' bytes", bytearray, plain)
    take("CRC-32C of the records", calc_crc32c, plain)
    take("zstd of the records, as the publisher does it", compressed, plain)
    take("MessagePack to objects (msgspec)", lambda frame: decode(head + frame), packed)
    take("objects to JSON (orjson)", lambda frame: [orjson.dumps(record) for record in frame], records)
    take("SHA-256 of each value", lambda frame: [sha256(value).digest() for value in frame], values)
    kernel("receiving the frames by TCP", packed[0], sends=False)
    kernel("sending the compressed batches by TCP", compressed(plain[0]), sends=True)


if __name__ == "__main__":
    main()
