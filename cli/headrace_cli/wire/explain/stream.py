"""A stream explained frame by frame: what stands there, and what a receiver does with it. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain

from headrace_common.operations.settings import Settings
from headrace_common.session.explain import SAMPLE, ReplyWalker, Unit

from headrace_cli.errors import CommandError
from headrace_cli.wire.explain.receiver import EXPLANATIONS, Heard, Receiver, hear_message
from headrace_cli.wire.explain.source import protocol_of

MESSAGE_BYTES = 32 << 20
"""Largest file with one message of a protocol of messages."""


@dataclass
class Summary:
    """What came of a stream. `broken`: why it cannot be read beyond `broken_at`; `limit`: the setting that was exceeded."""

    protocol: str
    server: bool = False
    frames: int = 0
    size: int = 0
    understood: int = 0
    events: int = 0
    replies: int = 0
    quarantine: Counter[str] = field(default_factory=Counter)
    broken: str = ""
    broken_at: int = 0
    limit: str | None = None
    sample: bytes = b""

    @property
    def fine(self) -> bool:
        """Whether all of it is understood."""
        return not self.broken and not self.quarantine


def _something(heard: Heard) -> bool:
    return bool(heard.error or heard.replies or heard.stored or heard.quarantined)


@dataclass(frozen=True)
class Explained:
    """A frame, None for bytes that belong to none; what the receiver does then, and what that says to the client."""

    unit: Unit | None
    heard: Heard
    said: list[str]


class Explainer:
    """Explains one stream. `most`: parts, events and rejects of a frame that are kept. Memory follows the largest frame."""

    def __init__(
        self,
        pieces: Iterator[bytes],
        protocol: str,
        most: int,
        *,
        server: bool,
        client: bool,
        settings: Callable[[str], Settings] | None = None,
    ) -> None:
        """`protocol`: empty if the first bytes say it; `server`, `client`: who sent it, if that is known.

        `settings`: the receiver's, by protocol; None: the defaults.

        Raises `CommandError` if nobody says so and no protocol begins so.
        """
        beginning = b""
        for piece in pieces:
            beginning += piece
            if len(beginning) >= SAMPLE:
                break
        found = protocol or protocol_of(beginning)
        self._pieces = chain((beginning,), pieces)
        self._most = most
        self._how = EXPLANATIONS[found]
        self.summary = Summary(found, server or (not client and self._how.server_begins(beginning)))
        if self.summary.server and self._how.replies is None:
            raise CommandError(f"The answers of {found} are texts; only a client's message can be explained.", status=2)
        self._first = beginning[:1]
        self._settings = None if settings is None or self.summary.server else settings(found)

    def run(self, now_ms: int) -> Iterator[Explained]:
        """Yield frames; the summary is complete when there are no more."""
        if self._how.message is not None:
            return self._message(now_ms)
        return self._replies() if self.summary.server else self._requests(now_ms)

    def _requests(self, now_ms: int) -> Iterator[Explained]:
        assert self._how.stream is not None
        walker, session = self._how.stream(self._most, self._settings)
        receiver = Receiver(session, self._most, self._how.answer)
        fed = 0
        for piece in self._counted():
            begin = self.summary.size - len(piece)
            for unit in walker.feed(piece):
                heard = receiver.feed(piece[fed - begin : unit.end - begin], now_ms)
                fed = max(fed, unit.end)
                yield self._told(unit, heard)
                if heard.error is not None:
                    self._count_rest()
                    return
            heard = receiver.feed(piece[fed - begin :], now_ms)  # the receiver may refuse what a frame announces
            fed = self.summary.size
            if _something(heard):
                yield self._told(None, heard)
            if heard.error is not None:
                self._count_rest()
                return
        heard = receiver.end()
        if _something(heard):
            yield self._told(None, heard)

    def _told(self, unit: Unit | None, heard: Heard) -> Explained:
        summary = self.summary
        if unit is not None:
            summary.frames += 1
            summary.understood = unit.end
        summary.events += heard.stored
        summary.quarantine.update(heard.quarantined)
        said = self._said(heard.replies)
        summary.replies += len(said)
        if heard.error is not None:
            error = heard.error
            offset = error.offset
            summary.broken, summary.limit, summary.sample = str(error), error.limit, error.sample
            summary.broken_at = summary.size if offset is None else offset
        return Explained(unit, heard, said)

    def _said(self, replies: Iterable[bytes]) -> list[str]:
        found: list[str] = []
        for reply in replies:
            assert self._how.replies is not None
            units = list(self._how.replies(reply[:1]).feed(reply))
            found += [f"{unit.kind} {unit.meaning}" for unit in units] or [f"{len(reply)} bytes"]
        return found

    def _replies(self) -> Iterator[Explained]:
        assert self._how.replies is not None
        walker = self._how.replies(self._first)
        for piece in self._counted():
            for unit in walker.feed(piece):
                self.summary.frames += 1
                self.summary.understood = unit.end
                yield Explained(unit, Heard(), [])
            if isinstance(walker, ReplyWalker) and walker.broken:
                self._break(walker.broken)
                return
        if self.summary.understood < self.summary.size:
            self._break("the stream ends inside a reply, or it is none")

    def _break(self, why: str) -> None:
        self.summary.broken, self.summary.broken_at = why, self.summary.understood
        self._count_rest()

    def _message(self, now_ms: int) -> Iterator[Explained]:
        raw = b""
        for piece in self._counted():
            raw += piece
            if len(raw) > MESSAGE_BYTES:
                raise CommandError(f"It is larger than one message may be ({MESSAGE_BYTES >> 20} MiB).", status=2)
        assert self._how.message is not None
        found = self._how.message(raw, self._settings, now_ms)
        if found is None:
            self._break("not frames with their lengths, as the quarantine keeps a message")
            return
        unit, heard = found[0], hear_message(found[1], self._most)
        self.summary.understood = unit.end
        self.summary.frames, self.summary.events = 1, heard.stored
        self.summary.quarantine.update(heard.quarantined)
        said = [reply.decode(errors="replace") for reply in heard.replies]
        self.summary.replies = len(said)
        yield Explained(unit, heard, said)

    def _counted(self) -> Iterator[bytes]:
        for piece in self._pieces:
            self.summary.size += len(piece)
            yield piece

    def _count_rest(self) -> None:
        for _ in self._counted():
            pass
