"""``headrace explain``: what a receiver's own session makes of a client's bytes."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path
from pkgutil import resolve_name
from typing import Annotated, Any

import typer

from headrace_cli.ground import EXIT_FAILED, CommandError, check_known

app = typer.Typer()


def session_of(protocol: str) -> Any:
    """Return a receiver's session, with the limits of the environment. Raises `CommandError` for one that is not known."""
    from headrace_common.operations.settings import load
    from headrace_common.protocol import installed
    from headrace_common.session.interface import Peer

    known = {each.name: each for each in installed() if each.session}
    check_known("protocol", [protocol], known)
    given: Any = load(known[protocol].settings)
    made = resolve_name(known[protocol].session)
    peer, limits = Peer("127.0.0.1", 0, "client"), given.limits
    return made(peer, limits, *([getattr(given, protocol)] if hasattr(given, protocol) else []))


def heard(session: Any, data: bytes, now_ms: int) -> Iterator[tuple[str, Any]]:
    """Yield (kind, value) as if all were stored at once; the caller may answer a question. Raises `ProtocolError` at the end."""
    from headrace_common.operations.errors import ProtocolError
    from headrace_common.record.event import Reject

    fault, more = None, True
    while more:
        try:
            session.receive(data, now_ms)
        except ProtocolError as error:
            fault = error
        while more:
            more = False
            for frame in session.frames():
                more, parts = True, list(frame.parts())
                session.stored(frame.ticket, len(parts), True)
                yield from (("quarantine", part) if isinstance(part, Reject) else ("event", part) for part in parts)
            for question in [*session.questions()]:
                more = True
                yield "question", question
            while answer := session.outgoing():
                more = True
                yield "answer", answer
        if fault is not None:
            raise fault
        data, more = b"", session.status().busy


@app.command()
def explain(
    protocol: Annotated[str, typer.Argument(metavar="PROTOCOL", help="forward, …; a wrong name is answered with all.")],
    source: Annotated[str, typer.Argument(metavar="FILE|-", help="What a client has sent; - is standard input.")],
) -> int:
    """Show what a receiver makes of bytes: events, quarantine, answers, where it stops. Exit status 1 if it does not take all."""
    from headrace_common.operations.errors import ProtocolError
    from headrace_common.record.encoding import decode
    from headrace_reader.text import printable

    session, kinds = session_of(protocol), set()
    try:
        data = sys.stdin.buffer.read() if source == "-" else Path(source).read_bytes()
    except OSError as error:
        raise CommandError(f"{source} cannot be read: {error.strerror}.", status=2) from error
    try:
        for piece, ends in ((data, True), (b"", False)):
            for kind, value in heard(session, piece, time.time_ns() // 1_000_000):
                kinds.add(kind)
                print(kind, printable(str(decode(value) if kind == "event" else value)))
            if ends:
                session.eof()  # it may end a frame, which is heard then
    except ProtocolError as error:
        kinds.add("broken")
        why = f"{printable(str(error))} {error.limit or ''} {error.sample[:16].hex(' ')}"
        print(f"broken at byte {error.offset}: {why}")
    return EXIT_FAILED if kinds & {"quarantine", "broken"} else 0
