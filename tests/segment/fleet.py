"""Clients that speak real bytes to several replicas over connections that break, with a log and an events topic in memory."""

from __future__ import annotations

import itertools
import random
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from headrace_common.connection.backend import Caller
from headrace_common.operations.errors import ProtocolError
from headrace_common.session.interface import Pause, Ticket
from headrace_segment.events import BlockFrame, ByteRun, EventRun, Run
from headrace_segment.questions import AppendBlock, ChangeQuestion, OpenSession
from headrace_segment.serving import ServedSessions
from headrace_segment.session.dialects import SegmentSession
from headrace_segment.store import records
from headrace_segment.store.fold import Fold
from headrace_segment.wire import messages as today
from headrace_segment.wire.original import MESSAGES, AppendSetup, DataAppended
from headrace_segment.wire.today import NO_LEVEL
from typing_extensions import override

from tests.driving import NOW_MS, PEER
from tests.segment import speaking_today
from tests.segment.instant import LIMITS, read_replies
from tests.segment.speaking import block, block_inside, event, events, keep_alive, over_the_end, setup

BLOCKS_UNDER_WAY = 8


class Connection(Caller):
    """A client's connection, the session at its other end, and the bytes between them."""

    def __init__(self, replica: Replica, client: Client) -> None:
        self.peer = PEER
        self.replica = replica
        self.client: Client | None = client
        self.session = SegmentSession(PEER, LIMITS)
        self.inbox = bytearray()
        self.closed = False

    def take(self, word: Callable[[], None]) -> None:
        """What a driver does."""
        if self.closed:
            return
        try:
            word()
        except ProtocolError:
            self.pump()
            self.close()
            return
        self.pump()

    def pump(self) -> None:
        for frame in self.session.frames():
            self.replica.frames.append((self, frame))
        for question in self.session.questions():
            self.replica.ask(question, self)
        out = self.session.outgoing()
        if self.client is not None:
            self.client.hear(out)

    def arrive(self, size: int) -> None:
        """Some bytes more."""
        piece = bytes(self.inbox[:size])
        del self.inbox[:size]
        self.take(lambda: self.session.receive(piece, NOW_MS))
        while not self.closed and self.session.status().busy:
            self.take(lambda: self.session.receive(b"", NOW_MS))

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            self.replica.serving.ended(self)
            self.hang_up()

    def hang_up(self) -> None:
        """The client is gone; what it has sent may still arrive."""
        if self.client is not None:
            self.client.connection = None
            self.client = None

    @override
    def answered(self, ticket: Ticket, answer: object) -> None:
        self.take(lambda: self.session.answered(ticket, answer))

    @override
    def tell(self, word: object) -> None:
        self.take(lambda: self.session.told(word))

    @override
    def end(self, why: str) -> None:
        self.hang_up()


class Client:
    """A writer with so many events, which it sends until they are stored. `ends`: its levels before and behind them."""

    first = 0

    def __init__(self, writer: bytes, segment: str, data: Sequence[bytes], chance: random.Random) -> None:
        self.writer, self.segment, self.data = writer, segment, data
        self.chance = chance
        self.ends = self.levels()
        self.connection: Connection | None = None
        self.acknowledged = self.first
        self.next: int | None = None  # the event to send next; None: the level is not known
        self.under_way: deque[int] = deque()

    def levels(self) -> list[int]:
        return list(itertools.accumulate((8 + len(each) for each in self.data), initial=0))

    def names(self) -> list[bytes]:
        """By which its events are known."""
        return [end.to_bytes(8, "big") for end in self.ends[1:]]

    def run(self, asked: AppendBlock) -> Run:
        """What the service took for a block of this client."""
        return ByteRun.of(asked.segment, asked.writer, asked.before, asked.data, asked.events)

    @property
    def done(self) -> bool:
        return self.acknowledged == self.ends[-1]

    def connect(self, replica: Replica) -> None:
        self.connection = Connection(replica, self)
        replica.connections.append(self.connection)
        self.next = None
        self.under_way.clear()
        self.connection.inbox += self.greeting()

    def greeting(self) -> bytes:
        return setup(self.segment, self.writer)

    def replies(self, said: bytes) -> list[Any]:
        return read_replies(said, MESSAGES)

    def hear(self, said: bytes) -> None:
        for reply in self.replies(said):
            if isinstance(reply, AppendSetup | today.AppendSetup):
                self.next = self.ends.index(reply.level)
            if isinstance(reply, today.DataAppended):
                assert reply.previous == self.acknowledged, "what the Java client checks"
            if isinstance(reply, AppendSetup | DataAppended | today.AppendSetup | today.DataAppended):
                assert reply.level in self.ends
                assert reply.level >= self.acknowledged, "a level goes back"
                self.acknowledged = reply.level
                while self.under_way and self.under_way[0] <= reply.level:
                    self.under_way.popleft()

    def send(self) -> None:
        if self.connection is None or self.next is None or len(self.under_way) >= BLOCKS_UNDER_WAY:
            return
        behind = min(len(self.data), self.next + self.chance.randint(1, 3))
        if self.next < behind or self.chance.random() < 0.1:
            said = self.blocks(self.next, behind)
            self.connection.inbox += said + keep_alive(b"alive"[: 5 * (self.first == 0)])
            self.next = behind
            self.under_way.append(self.ends[behind])

    def blocks(self, first: int, behind: int) -> bytes:
        if self.chance.random() < 0.1 and first:
            first -= 1  # some of it again
        some = self.data[first:behind]
        if not some:
            return b""
        shape: Any = self.chance.choice([block, block_inside, over_the_end])
        if shape is over_the_end:
            at = self.chance.randint(0, 8 + len(some[-1]))
            return over_the_end(self.ends[first], events(*some[:-1]), event(some[-1]), at, self.writer)
        return bytes(shape(self.ends[first], events(*some), self.writer))


class ClientOfToday(Client):
    """It speaks today's dialect: it numbers its events from 1, and creates its segment wherever it connects."""

    first = NO_LEVEL

    def levels(self) -> list[int]:
        return [NO_LEVEL, *range(1, len(self.data) + 1)]

    def run(self, asked: AppendBlock) -> Run:
        place = self.ends.index(asked.before)
        return EventRun(asked.segment, asked.writer, asked.before, asked.after, asked.data, asked.events, place)

    def names(self) -> list[bytes]:
        return [place.to_bytes(8, "big") for place in range(1, len(self.data) + 1)]

    def greeting(self) -> bytes:
        begin = speaking_today.HELLO + speaking_today.create(self.segment)
        return begin + speaking_today.setup(self.segment, self.writer)

    def replies(self, said: bytes) -> list[Any]:
        return read_replies(said, today.MESSAGES)

    def blocks(self, first: int, behind: int) -> bytes:
        some = self.data[first:behind]
        if not some:
            return b""
        if self.chance.random() < 0.5:
            return speaking_today.append(self.ends[behind], *some, writer=self.writer, pad=self.chance.randint(0, 9))
        at = self.chance.randint(0, 8 + len(some[-1]))
        return speaking_today.append_over_the_end(self.ends[behind], *some, at=at, writer=self.writer)


class ClientThatSkips(ClientOfToday):
    """Its event numbers rise by more than one, also within a block."""

    def levels(self) -> list[int]:
        gaps = random.Random(self.segment)
        return [NO_LEVEL, *itertools.accumulate(gaps.choice((1, 1, 2, 9)) for _ in self.data)]


class Replica:
    def __init__(self, fleet: Fleet) -> None:
        self.fleet = fleet
        self.fold = Fold()
        self.serving = ServedSessions(lambda: next(fleet.ids).to_bytes(16, "big"), create=True)
        self.connections: list[Connection] = []
        self.frames: deque[tuple[Connection, Any]] = deque()
        self.under_way: deque[tuple[str, bytes]] = deque()

    def ask(self, question: Any, caller: Connection) -> None:
        if isinstance(question, AppendBlock):
            run = self.fleet.of[question.writer].run(question)
            assert len(rows(run)) == run.count
            assert set(rows(run)) <= set(self.fleet.topic), "a block before its events"
        serving = self.serving
        if isinstance(question, ChangeQuestion):
            record: Any = serving.change(question, caller, 0)
        else:
            serve: Any = serving.open if isinstance(question, OpenSession) else serving.append
            record = serve(question, caller, 0)
        if record is not None:
            self.under_way.append((question.segment, record.encode()))

    def read(self) -> None:
        if self.fold.next_offset < len(self.fleet.log):
            at = self.fold.next_offset
            name, value = self.fleet.log[at]
            self.serving.read_back(self.fold.apply(at, name.encode(), value, at))


class Fleet:
    """`log` and `topic` are what Kafka has."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.ids = itertools.count(1)
        self.log: list[tuple[str, bytes]] = []
        self.topic: list[tuple[str, bytes, bytes, bytes]] = []
        self.late: list[tuple[str, bytes]] = []
        self.replicas = [Replica(self) for _ in range(2)]
        self.clients = [
            (Client, ClientOfToday, ClientThatSkips)[(seed + number) % 3](
                bytes([number]) * 16,
                f"s{number % 2}",
                [self.chance.randbytes(self.chance.randint(0, 9)) for _ in range(150)],
                self.chance,
            )
            for number in range(3)
        ]
        self.of = {client.writer: client for client in self.clients}

    def calm(self) -> None:
        """One thing that goes well."""
        replica = self.chance.choice(self.replicas)
        client = self.chance.choice(self.clients)
        what = self.chance.randrange(6)
        if what == 0 and client.connection is None:
            client.connect(replica)
        elif what == 1:
            client.send()
        elif what == 2 and replica.connections:
            connection = self.chance.choice(replica.connections)
            connection.arrive(self.chance.randint(1, 400))
        elif what == 3 and replica.frames:
            self.store(*replica.frames.popleft())
        elif what == 4 and replica.under_way:
            self.log.append(replica.under_way.popleft())
        elif what == 5:
            replica.read()

    def bad(self) -> None:
        """One thing that does not."""
        at = self.chance.randrange(len(self.replicas))
        replica = self.replicas[at]
        what = self.chance.randrange(9)
        if what == 0 and replica.connections:
            self.chance.choice(replica.connections).hang_up()
        elif what == 1 and replica.connections:
            self.chance.choice(replica.connections).close()
        elif what == 2:
            self.doubt(replica)
            replica.serving.producer_lost()
        elif what == 3:
            self.doubt(replica)
            for connection in replica.connections:
                connection.hang_up()
            self.replicas[at] = Replica(self)
        elif what >= 6 and self.late:
            self.log.append(self.late.pop(self.chance.randrange(len(self.late))))
        elif what == 4 and replica.frames:
            connection, frame = replica.frames.popleft()
            if self.chance.random() < 0.5:
                self.publish(frame)
            connection.session.abandon(frame.ticket)
            connection.close()

    def doubt(self, replica: Replica) -> None:
        self.late += [each for each in replica.under_way if self.chance.random() < 0.5]
        replica.under_way.clear()

    def publish(self, frame: BlockFrame) -> None:
        self.topic += rows(frame.run)

    def store(self, connection: Connection, frame: BlockFrame) -> None:
        self.publish(frame)
        connection.take(lambda: connection.session.stored(frame.ticket, 1, True))


def rows(run: Run) -> list[tuple[str, bytes, bytes, bytes]]:
    """What an id is made of, of each event."""
    found = []
    for each in run.events():
        assert not isinstance(each, Pause)
        _, name, data = each
        assert name is not None
        found.append((run.segment, run.writer, name, data))
    return found


def run(seed: int, troubles: int = 120) -> Fleet:
    """Trouble for a while, then none until every client is done."""
    fleet = Fleet(seed)
    for _ in range(troubles):
        for _ in range(fleet.chance.randint(1, 150)):
            fleet.calm()
        fleet.bad()
    for _ in range(200_000):
        if all(client.done for client in fleet.clients):
            break
        fleet.calm()
    fleet.log += fleet.late
    for replica in fleet.replicas:
        while replica.fold.next_offset < len(fleet.log):
            replica.read()
    return fleet


def stored(fleet: Fleet) -> tuple[dict[str, bytes], dict[bytes, bytes]]:
    """What the log holds, by segment and by writer."""
    fold = Fold()
    segments: dict[str, bytes] = {}
    writers: dict[bytes, bytes] = {}
    for at, (name, value) in enumerate(fleet.log):
        outcome = fold.apply(at, name.encode(), value, at)
        record = records.decode(value)
        if isinstance(record, records.Block) and not hasattr(outcome, "why"):
            segments[name] = segments.get(name, b"") + record.data
            writers[record.writer] = writers.get(record.writer, b"") + record.data
    return segments, writers
