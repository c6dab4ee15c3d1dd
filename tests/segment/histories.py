"""Random histories of writers, replicas and a log, and what must be true at their end.

Several replicas append to one log, read it at their own pace or hear where their own records stand, and answer their clients from
it alone. Producers are cut off; what
they had under way lands late, in any order, or never. Clients go on sending on connections that nobody answers any more, and come
back with other bytes than they had before.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from headrace_common.connection.backend import Caller
from headrace_common.session.interface import Peer, Ticket
from headrace_segment.questions import AppendBlock, BlockStored, OpenSession, SessionLost, SessionOpened
from headrace_segment.serving import ServedSessions
from headrace_segment.store.early import fold_early
from headrace_segment.store.fold import Fold
from headrace_segment.store.outcomes import Appended, Outcome
from headrace_segment.store.records import Block, Numbering, decode
from typing_extensions import override

SEGMENT = "s"
PEER = Peer("192.0.2.7", 1, "192.0.2.7")
IN_FLIGHT = 3


@dataclass(eq=False)
class Client:
    """One life of a writer: above the first level that it hears, it has bytes of its own, and they never change."""

    writer: bytes
    stream: random.Random
    base: int | None = None
    data: bytearray = field(default_factory=bytearray)
    acknowledged: int = 0
    stored: int = 0
    """All that it was told is stored, by whatever words."""

    def bytes_between(self, start: int, end: int) -> bytes:
        assert self.base is not None
        while len(self.data) < end - self.base:
            self.data.append(self.stream.randrange(256))
        return bytes(self.data[start - self.base : end - self.base])

    def hears(self, level: int) -> None:
        if self.base is None:
            self.base = self.stored = level
        self.stored = max(self.stored, level)


Early = Callable[[Fold, int, Sequence[tuple[bytes, bytes]], int], list[Outcome] | None]


class Line(Caller):
    """A connection of a client to a replica. A `deaf` client hears nothing any more, though the replica goes on."""

    def __init__(self, client: Client) -> None:
        self.peer = PEER
        self.client = client
        self.session: bytes | None = None
        self.sent = 0
        self.waiting = 0
        self.tickets = itertools.count()
        self.deaf = self.over = False

    @override
    def answered(self, ticket: Ticket, answer: object) -> None:
        self.waiting -= 1
        if isinstance(answer, SessionOpened):
            self.session, self.sent = answer.session, answer.level
            self.over = self.over or self.deaf  # nobody is there any more to begin with a block
        elif not isinstance(answer, BlockStored):
            self.over = True
        if isinstance(answer, SessionOpened | BlockStored) and not self.deaf and not self.over:
            self.client.hears(answer.level)
            self.client.acknowledged += 1

    @override
    def tell(self, word: object) -> None:
        assert isinstance(word, SessionLost)
        self.over = self.over or word.session == self.session

    @override
    def end(self, why: str) -> None:
        self.over = True


@dataclass
class Replica:
    """It appends, reads what is appended, and answers from that."""

    fold: Fold
    serving: ServedSessions
    lines: list[Line] = field(default_factory=list)
    under_way: list[bytes] = field(default_factory=list)
    stored: list[tuple[int, list[bytes]]] = field(default_factory=list)
    """Batches that have landed, each from an offset on, and Kafka's answer is on its way."""
    slow: bool = False


class World:
    """All of it. `fold`: what a replica takes for the rules; `resends`: whether a producer sends again what is in doubt; `early`:
    how a replica folds its own records before it reads them.
    """

    def __init__(self, seed: int, fold: Callable[[], Fold], *, resends: bool, early: Early) -> None:
        self.chance = random.Random(seed)
        self.fold = fold
        self._resends = resends
        self._early = early
        self.folded_early = 0
        self._ids = itertools.count(1)
        self.log: list[bytes] = []
        self.times: list[int] = []
        self.late: list[bytes] = []
        self.replicas = [self._replica() for _ in range(2 + seed % 2)]
        self.writers = 1 + seed // 2 % 2
        self.clients: list[Client] = []
        self.current: dict[bytes, Client] = {}

    def _replica(self) -> Replica:
        return Replica(self.fold(), ServedSessions(lambda: next(self._ids).to_bytes(16, "big"), create=True))

    @property
    def acknowledged(self) -> int:
        return sum(client.acknowledged for client in self.clients)

    def store(self, *batch: bytes) -> int:
        """Kafka stores a batch, whose records all have the same time. Returns the first one's offset."""
        first = len(self.log)
        self.log += batch
        self.times += [first] * len(batch)
        return first

    # What may happen

    def arrive(self) -> None:
        """A writer comes, or comes back with other bytes."""
        writer = bytes([self.chance.randrange(self.writers)]) * 16
        client = Client(writer, random.Random(self.chance.random()))
        for line in self.lines():
            line.deaf = line.deaf or line.client.writer == writer
        self.clients.append(client)
        self.current[writer] = client

    def connect(self) -> None:
        """A client that has no connection, or gives up on it, sets its append up: anywhere."""
        client = self.chance.choice(list(self.current.values()))
        if any(each.client is client and not each.deaf for each in self.lines()) and self.chance.random() < 0.8:
            return
        for line in self.lines():
            line.deaf = line.deaf or line.client is client
        replica = self.chance.choice(self.replicas)
        line = Line(client)
        replica.lines.append(line)
        line.waiting += 1
        question = OpenSession(next(line.tickets), SEGMENT, client.writer, Numbering.BYTES)
        replica.under_way.append(replica.serving.open(question, line, 0).encode())

    def send(self) -> None:
        """A block on any connection, also on one that nobody listens to: it may have been on its way for long."""
        replica = self.chance.choice(self.replicas)
        ready = [
            each for each in replica.lines if each.session is not None and each.waiting < IN_FLIGHT and not each.over
        ]
        if not ready or (line := self.chance.choice(ready)).client.base is None:
            return
        assert line.session is not None
        before, line.sent = line.sent, line.sent + self.chance.randint(1, 5)
        data = line.client.bytes_between(before, line.sent)
        line.waiting += 1
        question = AppendBlock(
            next(line.tickets), SEGMENT, line.client.writer, line.session, before, line.sent, 1, data
        )
        record = replica.serving.append(question, line, 0)
        if record is not None:
            replica.under_way.append(record.encode())

    def land(self) -> None:
        """Kafka stores the next records of a producer, one batch."""
        replica = self.chance.choice(self.replicas)
        if replica.under_way and (not replica.slow or self.chance.random() < 0.05):
            count = self.chance.choice([1, 1, 2, 3])
            batch, replica.under_way = replica.under_way[:count], replica.under_way[count:]
            replica.stored.append((self.store(*batch), batch))

    def answer(self) -> None:
        """A producer hears where its oldest batch stands."""
        replica = self.chance.choice(self.replicas)
        if replica.stored:
            first, batch = replica.stored.pop(0)
            outcomes = self._early(replica.fold, first, [(SEGMENT.encode(), value) for value in batch], first)
            self.folded_early += len(outcomes or ())
            self.told(replica, outcomes or [])

    def change_pace(self) -> None:
        """A replica hears from Kafka hardly ever for a while."""
        replica = self.chance.choice(self.replicas)
        replica.slow = not replica.slow

    def land_late(self) -> None:
        """Kafka stores a record of a producer that was cut off."""
        if self.late:
            self.store(self.late.pop(self.chance.randrange(len(self.late))))

    def read(self) -> None:
        """A replica reads on."""
        replica = self.chance.choice(self.replicas)
        for _ in range(self.chance.randint(1, 6)):
            if replica.fold.next_offset < len(self.log):
                self.read_one(replica)

    def cut_off(self) -> None:
        """A producer fails: every session on it ends. What was under way lands some time, or never."""
        replica = self.chance.choice(self.replicas)
        doubtful, replica.under_way = replica.under_way, []
        if self.chance.random() < 0.5:  # its answers do not come any more
            replica.stored.clear()
        self.late += [each for each in doubtful if self.chance.random() < 0.7]
        if self._resends:  # at once, and it is not known of any that it will not land
            self.late += [each for each in doubtful if each not in self.late]
            replica.under_way = list(doubtful)
        else:
            replica.serving.producer_lost()
            replica.lines.clear()

    def kill(self) -> None:
        """A replica dies and comes back with what the log tells it."""
        at = self.chance.randrange(len(self.replicas))
        self.late += [each for each in self.replicas[at].under_way if self.chance.random() < 0.7]
        self.replicas[at] = self._replica()

    # How a replica answers

    def lines(self) -> list[Line]:
        return [line for replica in self.replicas for line in replica.lines]

    def read_one(self, replica: Replica) -> None:
        at = replica.fold.next_offset
        self.told(replica, [replica.fold.apply(at, SEGMENT.encode(), self.log[at], self.times[at])])

    @staticmethod
    def told(replica: Replica, outcomes: list[Outcome]) -> None:
        for outcome in outcomes:
            replica.serving.read_back(outcome)
        for line in [line for line in replica.lines if line.over]:
            replica.lines.remove(line)
            replica.serving.ended(line)


def live(
    seed: int,
    fold: Callable[[], Fold] = Fold,
    *,
    resends: bool = False,
    early: Early = fold_early,
    length: int = 400,
) -> World:
    """A history. In its end all that lands has landed, and all have read it."""
    world = World(seed, fold, resends=resends, early=early)
    weights = {
        world.arrive: 4,
        world.connect: 16,
        world.send: 40,
        world.land: 40,
        world.answer: 40,
        world.land_late: 20,
        world.read: 60,
        world.cut_off: 8,
        world.kill: 1,
        world.change_pace: 10,
    }
    world.arrive()
    for action in world.chance.choices(list(weights), list(weights.values()), k=length):
        action()
    for replica in world.replicas:
        world.store(*replica.under_way)
        replica.under_way = []
    for replica in world.replicas:
        while replica.fold.next_offset < len(world.log):
            world.read_one(replica)
    return world


def violations(world: World) -> list[str]:
    """What was promised and is not so. Judges by the log's accepted bytes of each writer alone."""
    found = []
    fold = world.fold()
    stored: dict[bytes, bytearray] = {}
    for at, value in enumerate(world.log):
        outcome = fold.apply(at, SEGMENT.encode(), value, at)
        record = decode(value)
        if isinstance(outcome, Appended) and isinstance(record, Block):
            stored.setdefault(record.writer, bytearray()).extend(record.data)
    for client in world.clients:
        if client.base is None:
            continue
        there = bytes(stored.get(client.writer, b""))
        if there[client.base : client.stored] != client.bytes_between(client.base, client.stored):
            found.append(f"writer {client.writer[0]}: bytes {client.base} to {client.stored} are not what it sent")
    if any(fold.segments.keys() != replica.fold.segments.keys() for replica in world.replicas):
        found.append("replicas do not agree")
    return found
