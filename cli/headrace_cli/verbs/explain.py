"""``headrace explain``: what a receiver's own session makes of a client's bytes."""

from __future__ import annotations

import struct
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from pkgutil import resolve_name
from typing import Annotated, Any

import typer
from headrace_common.operations.errors import ProtocolError
from headrace_common.operations.settings import load
from headrace_common.record.encoding import decode
from headrace_common.record.event import Reject
from headrace_common.session.again import parts_of
from headrace_common.session.interface import Message, Peer
from headrace_reader.text import printable

from headrace_cli.ground import EXIT_FAILED, CommandError, check_known
from headrace_cli.operating.parts import settings_class

app = typer.Typer()
_CLASSES = {name: f"session:{name.capitalize()}Session" for name in ("courier", "forward", "lumberjack")}
_CLASSES |= {"logjam": "session:ProducerSession", "segment": "session.conversation:SegmentSession"}


def session_of(protocol: str) -> Any:
    """Return a receiver's session, with the limits of the environment."""
    given: Any = load(settings_class(protocol))
    made = resolve_name(f"headrace_{protocol}.{_CLASSES[protocol]}")
    if protocol == "logjam":
        return made(given.limits, answers=True)
    peer, limits = Peer("127.0.0.1", 0, "client"), given.limits
    if protocol == "courier":
        return made(peer, limits)
    if protocol == "segment":
        return made(peer, resolve_name("headrace_segment.settings:limits_of")(limits, given.segment))
    return made(peer, limits, getattr(given, protocol))


def heard(session: Any, data: Any, now_ms: int) -> Iterator[tuple[str, Any]]:
    """Yield (kind, value) as if all were stored at once; the caller may answer a question. Raises `ProtocolError` at the end."""
    fault, more = None, True
    while more:
        try:
            session.receive(data, now_ms)
        except ProtocolError as error:
            fault = error
        if isinstance(data, Message):
            session.tick(0.0)
        while more:
            more = False
            for frame in session.frames():
                more, parts = True, list(parts_of([frame]))
                session.stored(frame.ticket, len(parts), True)
                yield from (("quarantine", part) if isinstance(part, Reject) else ("event", part) for part in parts)
            for question in [*session.questions()]:
                more = True
                yield "question", question
            while answer := session.outgoing():
                more = True
                yield "answer", answer if isinstance(answer, bytes) else b" ".join(answer.parts)
        if fault is not None:
            raise fault
        data, more = b"", session.status().busy


def _decoded(event: bytes) -> str:
    value, headers = decode(event)
    about = ", ".join(f"{name}: {text.decode(errors='backslashreplace')}" for name, text in headers)
    return f"{value.decode(errors='backslashreplace')} ({about})"


@app.command()
def explain(
    protocol: Annotated[str, typer.Argument(metavar="PROTOCOL", help="A receiver's, such as forward.")],
    source: Annotated[str, typer.Argument(metavar="FILE|-|HEX", help="What a client has sent; - is standard input.")],
) -> int:
    """Show what a receiver makes of bytes: events, quarantine, answers, where it stops. Exit status 1 if it does not take all."""
    check_known("protocol", [protocol], _CLASSES)
    try:
        data: Any = sys.stdin.buffer.read() if source == "-" else Path(source).read_bytes()
    except OSError as error:
        try:
            data = bytes.fromhex(source)
        except ValueError:
            raise CommandError(f"{source} cannot be read: {error.strerror}.", status=2) from error
    session, kinds = session_of(protocol), set()
    if protocol == "logjam":  # a message as quarantine keeps it
        try:
            frames = resolve_name("headrace_logjam.wire:split")(data)
        except struct.error as error:
            raise CommandError(
                "These bytes are no message as quarantine keeps it: frames, each behind its length."
            ) from error
        data = Message([b"", *frames], b"client", "client")
    try:
        for kind, value in heard(session, data, time.time_ns() // 1_000_000):
            kinds.add(kind)
            print(kind, printable(str(_decoded(value) if kind == "event" else value)))
        if protocol != "logjam":
            session.eof()
    except ProtocolError as error:
        kinds.add("broken")
        print(
            f"broken at byte {error.offset}: {printable(str(error))} {error.limit or ''} {error.sample[:16].hex(' ')}"
        )
    return EXIT_FAILED if kinds & {"quarantine", "broken"} else 0
