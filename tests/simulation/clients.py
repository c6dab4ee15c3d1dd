"""Clients of any protocol: honest ones, which hold what is not acknowledged and send it again, and hostile ones."""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from abc import ABC, abstractmethod
from collections import Counter
from dataclasses import dataclass
from typing import Any

from headrace_common.session.client import Answer

from tests.simulation.kafka import CURSED
from tests.simulation.loop import replaced
from tests.simulation.network import ClientEnd, Line
from tests.simulation.oracle import BROKEN, Event, Oracle
from tests.simulation.protocols import INSTANT, ZEROS, Spoken, Unasking, bomb
from tests.simulation.scenario import KEPT, ClientPlan

CONNECT_TIME = 20.0
ANSWER_TIME = 400.0
"""Seconds that an honest client waits for anything before it believes the connection dead: longer than any deadline of ours,
so that it is the receiver that has to end what cannot go on."""

END_TIME = 20.0
"""Seconds in which the receiver closes a connection whose client has ended its side and has heard of all frames."""

FEW = 15
"""Clients of one plan from which on they are a crowd, whose plain windows would be many small frames."""
OTHERS = 1 / 3
"""Chance that a client speaks another version or form than most, where there is one."""

OVERSIZED = 150_000
"""Random bytes in an event that Kafka finds too large, in hexadecimal."""

LONGEST_PAUSE = 2.0
LOOK = 0.5
"""Seconds between two looks of a client that is told nothing, and at most before it comes again."""


@dataclass
class Sent:
    """A frame. `sequence`: its events, in order; `faulty`, `cursed`: one of them goes to quarantine. `covered`: how many of its
    first events were acknowledged before it was as a whole.
    """

    number: int
    data: bytes
    documents: list[bytes]
    mark: str
    sequence: list[Event]
    faulty: bool = False
    cursed: bool = False
    acknowledged: bool = False
    covered: int = 0
    broken: bytes = b""
    """The event that cannot be understood."""

    @property
    def events(self) -> Counter[Event]:
        """How often it has each."""
        return Counter(self.sequence)


class Client(ABC):
    """What all have in common: a name, and connections that behave as planned."""

    port: int | None = None
    """Where it connects; None: its receiver has one port."""

    def __init__(self, world: Any, name: str, plan: ClientPlan, index: int) -> None:
        self.world = world
        self.spoken: Spoken = world.spoken
        self.oracle: Oracle = world.oracle
        self.name = name
        self.plan = plan
        self.chance = random.Random(f"{world.scenario.seed}/{plan.seed}/{index}")
        self.honest = plan.kind in KEPT
        self.number = index
        self.connections: list[ClientEnd] = []
        self.done = False

    @abstractmethod
    async def run(self) -> None:
        """Does what is planned."""

    def line(self) -> Line:
        chance, plan = self.chance, self.plan
        line = Line()
        if plan.rough:
            line.latency = (0.0005, chance.choice((0.01, 0.2)))
            line.piece = chance.choice((7, 100, 1500, 1 << 16)) if plan.padding < 1000 else 4096
            line.buffer = chance.choice((2048, 1 << 16))
        if self.world.loop.now < self.world.scenario.faults_end and chance.random() < plan.cut:
            line.cut_after = chance.randint(0, 1500)
            line.vanishes = chance.random() < 0.2
        return line

    async def connect(self) -> ClientEnd:
        connecting = self.world.network.connect(self.line(), self, self.port)
        try:
            end: ClientEnd = await asyncio.wait_for(connecting, CONNECT_TIME)
        except TimeoutError:
            raise ConnectionResetError from None
        self.connections.append(end)
        return end

    async def rest(self) -> None:
        if self.plan.pause:
            await asyncio.sleep(self.chance.uniform(0, self.plan.pause))


class Honest(Client):
    """Sends its frames, keeps them until they are acknowledged, and sends the rest again on the next connection."""

    answer_time = ANSWER_TIME
    once = False
    """It never sends the events of a frame in another: it could not say which of the two is meant."""

    def __init__(self, world: Any, name: str, plan: ClientPlan, index: int) -> None:
        super().__init__(world, name, plan, index)
        self._alike = random.Random(f"alike/{world.scenario.seed}/{plan.seed}/{index}")
        self._odd = random.Random(f"odd/{world.scenario.seed}/{plan.seed}/{index}")
        self.speaker = self._client = self._speaks()
        self.frames: list[Sent] = []
        self._progress = asyncio.Event()

    def _speaks(self) -> Any:
        chance = random.Random(f"others/{self.world.scenario.seed}/{self.plan.seed}/{self.number}")
        may_differ = self.plan.count < FEW and not (self.plan.rough and self.plan.padding < 1000)  # see `FEW`; `line`
        if self.spoken.others and may_differ and chance.random() < OTHERS:
            return chance.choice(self.spoken.others)()
        if (hashing := self.spoken.hashing) is None or not self._is_alike():
            return self.spoken.client(self.plan.compressed)
        self.once = True
        return hashing(self.plan.compressed)

    def _is_alike(self) -> bool:
        return self._alike.random() < self.plan.alike

    def _make(self) -> Sent:
        chance, plan, number = self.chance, self.plan, len(self.frames)
        text = "message" if plan.alike else "text"  # of a message, Lumberjack reads no other field
        values: list[dict[str, Any]] = []
        for n in range(plan.events):
            made = {"mark": f"{self.name}.{number}.", "n": n, text: f"line {n} – ü" + self._padding()}
            values.append(values[-1] if n and self._is_alike() else made)
        # If a chunk is named by its content, its rejects have the same ids from each client.
        has_own_ids = not (self.once and self.spoken.hashing)
        faulty = chance.random() < plan.faulty and bool(self._client.broken({})) and has_own_ids
        cursed = chance.random() < plan.cursed
        alone = all(values.count(value) == 1 for value in values) if plan.oversized else False
        if alone and self._odd.random() < plan.oversized:
            place, cursed = self._odd.randrange(len(values)), True
            values[place] = {**values[place], text: CURSED.decode() + self._odd.randbytes(OVERSIZED).hex()}
        elif cursed:
            values[chance.randrange(len(values))][text] = CURSED.decode()
        elif self._is_alike() and (others := self._others()):
            values = self._alike.choice(others)
        else:
            self.world.sound.append((plan, values))
        broken = faulty + (faulty and not self.spoken.messages and self._is_alike())
        documents = self._documents(values, broken)
        mark, middle = values[0]["mark"], len(values) // 2
        sequence = [(self.name, mark, value["n"]) for value in values]
        sequence[middle:middle] = [(self.name, mark, BROKEN)] * broken
        frame = Sent(number, self._client.payload(documents), documents, mark, sequence, faulty, cursed)
        if broken:
            frame.broken = self.world.spoken.quarantined(self._client, documents[middle])
        self.frames.append(frame)
        self.oracle.will_send(self, frame, values)
        return frame

    def _documents(self, values: list[dict[str, Any]], broken: int) -> list[bytes]:
        """These events, and in their middle so many equal ones that cannot be understood. If it says some alike, all have one
        time, and equal ones the same bytes.
        """
        with replaced((time, "time_ns", lambda: INSTANT)) if self.plan.alike else contextlib.nullcontext():
            documents = [self._client.document(value) for value in values]
            middle = len(documents) // 2
            documents[middle:middle] = [self._client.broken(values[0])] * broken if broken else []
        return documents

    def _others(self) -> list[list[dict[str, Any]]]:
        """The events of frames that it may send in one of its own: its line may be too slow for larger ones."""
        mine = {frame.mark for frame in self.frames} if self.once else set()
        return [
            values
            for other, values in self.world.sound
            if other.padding <= self.plan.padding and values[0]["mark"] not in mine
        ]

    def _padding(self) -> str:
        size = self.chance.randint(0, self.plan.padding) if self.plan.padding else 0
        return self.chance.randbytes(size // 2).hex() if self.plan.dense else "x" * size

    @property
    def waiting(self) -> list[Sent]:
        return [frame for frame in self.frames if not frame.acknowledged]

    async def run(self) -> None:
        await asyncio.sleep(self.plan.start)
        pause = 0.05
        while len(self.frames) < self.plan.frames or self.waiting:
            try:
                end = await self.connect()
            except (OSError, TimeoutError):
                await asyncio.sleep(self.chance.uniform(pause / 2, pause))
                pause = min(2 * pause, LONGEST_PAUSE)
                continue
            before = len(self.waiting), len(self.frames)
            await self._converse(end)
            if (len(self.waiting), len(self.frames)) != before:
                pause = 0.05
            else:
                await asyncio.sleep(self.chance.uniform(pause / 2, pause))
                pause = min(2 * pause, LONGEST_PAUSE)
        self.done = True

    async def _converse(self, end: ClientEnd) -> None:
        """One connection, until all is acknowledged or it ends."""
        order: list[Sent] = []
        talk = asyncio.create_task(self._talk(end, order))
        try:
            while len(self.frames) < self.plan.frames or self.waiting:
                data, version = await asyncio.wait_for(end.read(), self.answer_time)
                if not data:
                    self.oracle.closed(self, end.address, version, order)
                    break
                for answer in self._receive(data):
                    frame = self.frames[answer.frame]
                    if answer.whole:
                        self.oracle.acknowledged(self, frame, version, order)
                        frame.acknowledged = True
                        self._progress.set()
                    else:
                        self.oracle.partly_acknowledged(self, frame, answer.count, version, order)
                if self.plan.slow:
                    await asyncio.sleep(self.chance.uniform(0, self.plan.slow))
            if self.plan.finishes and talk.done():
                await self._sees_end(end)
        except TimeoutError:
            self.world.tell(f"{self.name} hears nothing for {self.answer_time:g} s")
        except OSError:
            pass
        finally:
            talk.cancel()
            await asyncio.wait([talk])
            end.close()
        if not talk.cancelled() and (error := talk.exception()) is not None and not isinstance(error, OSError):
            raise error

    def _receive(self, data: bytes) -> list[Answer]:
        """What is acknowledged. Raises OSError: it does not go on with this connection."""
        return [each for each in self._client.receive(data) if isinstance(each, Answer)]

    async def _sees_end(self, end: ClientEnd) -> None:
        """All is acknowledged, and it has said that it sends no more."""
        try:
            async with asyncio.timeout(END_TIME):
                while (await end.read())[0]:
                    pass
        except TimeoutError:
            self.oracle.fails(f"{self.name} has sent all and said so, and its connection stays open")

    async def _talk(self, end: ClientEnd, order: list[Sent]) -> None:
        if greeting := self._client.again():
            await end.send(greeting)
        for frame in self.waiting:
            self._client.repeat(frame.number)
        order += self.waiting
        if (shaken := getattr(self._client, "shaken", None)) is not None:
            await shaken.wait()
        if under_way := self.waiting:
            for frame in under_way:
                if frame.covered and not self.spoken.messages:  # each event of these is a message of its own
                    del frame.documents[: frame.covered], frame.sequence[: frame.covered]
                    frame.data, frame.covered = self._client.rest(frame.number, frame.documents), 0
            await end.send(b"".join(frame.data for frame in under_way))
        while len(self.frames) < self.plan.frames:
            while len(self.waiting) >= self.plan.window:
                self._progress.clear()
                await self._progress.wait()
            await self.rest()
            order.append(frame := self._make())
            await end.send(frame.data)
            if self.plan.restarts and self.chance.random() < self.plan.restarts:
                end.abort()
        if self.plan.finishes:
            end.write_eof()


class Unanswered(Honest):
    """Sends each frame once, and is told nothing of it."""

    once = True

    def __init__(self, world: Any, name: str, plan: ClientPlan, index: int) -> None:
        super().__init__(world, name, plan, index)
        self._carried: dict[int, ClientEnd] = {}

    async def run(self) -> None:
        await asyncio.sleep(self.plan.start)
        while len(self.frames) < self.plan.frames:
            try:
                end = await self.connect()
                await self._begin(end)
                await self._push(end)
            except (OSError, TimeoutError):
                await asyncio.sleep(self.chance.uniform(0.05, LOOK))
            for end in self.connections[-1:]:
                end.close()
        while self._misses():  # noqa: ASYNC110  (virtual time)
            await asyncio.sleep(LOOK)
        self.done = True

    async def _begin(self, end: ClientEnd) -> None:
        """Says on a new connection what comes before frames."""

    async def _push(self, end: ClientEnd) -> None:
        """Until all is sent, or the receiver has ended its side: the client then leaves at once, in the midst of a frame too."""
        both = asyncio.create_task(self._sends(end)), asyncio.create_task(hears_end(end))
        await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        for task in both:
            task.cancel()
        await asyncio.wait(both)

    async def _sends(self, end: ClientEnd) -> None:
        with contextlib.suppress(OSError):
            while len(self.frames) < self.plan.frames:
                frame = self._make()
                await end.send(frame.data)
                self._carried[frame.number] = end
                await self.rest()

    def _misses(self) -> bool:
        """Whether something is not stored that must not be lost."""
        sent = [frame for frame in self.frames if frame.number in self._carried]
        missing = [frame for frame in sent if not self._may_be_lost(frame, self._carried[frame.number])]
        missing = [frame for frame in missing if not self.oracle.keeps(frame.events)]
        for frame in missing:
            receiver = self._carried[frame.number].receiver
            if receiver is not None and receiver.ended.is_set():
                self.oracle.fails(f"{frame.mark} of {self.name} had come, and a receiver that stopped has lost it")
                return False
        return bool(missing)

    def _may_be_lost(self, frame: Sent, end: ClientEnd) -> bool:
        raise NotImplementedError


class Teller(Unanswered):
    """Asks Forward for no acknowledgement."""

    def __init__(self, world: Any, name: str, plan: ClientPlan, index: int) -> None:
        super().__init__(world, name, plan, index)
        self._sent: dict[int, float] = {}  # when

    def _speaks(self) -> Unasking:
        return Unasking()

    def _make(self) -> Sent:
        frame = super()._make()
        self._sent[frame.number] = self.world.loop.now
        return frame

    def _may_be_lost(self, frame: Sent, end: ClientEnd) -> bool:
        """With its connection or its process, behind what was given up, and what is sent when the process is told to stop."""
        receiver = end.receiver
        if receiver is None or receiver.dead or end.broken or end.address in self.world.given_up:
            return True
        stopped = receiver.stopped
        return stopped is not None and (not self.world.scenario.undisturbed or self._sent[frame.number] >= stopped)


async def reads(end: ClientEnd) -> bytes:
    """Some bytes. Raises OSError at the end."""
    data, _ = await end.read()
    if not data:
        raise ConnectionResetError
    return data


async def hears_end(end: ClientEnd) -> None:
    """Returns when the other side has ended, or the connection is gone."""
    with contextlib.suppress(OSError):
        while True:
            await reads(end)


class Hostile(Client):
    """What its plan's kind names, again and again. Nobody promises it anything; what it sends belongs to nobody else."""

    async def run(self) -> None:
        await asyncio.sleep(self.plan.start)
        for _ in range(self.plan.frames):
            try:
                end = await self.connect()
                await asyncio.wait_for(getattr(self, self.plan.kind)(end), 60.0)
            except (OSError, TimeoutError):
                pass
            for end in self.connections[-1:]:
                if self.chance.random() < 0.5:
                    end.close()
                else:
                    end.abort()
            await self.rest()
        self.done = True

    def frame(self) -> bytes:
        client = self.spoken.client(False)
        return client.again() + client.frame([{"mark": f"{self.name}.", "n": n, "text": "h" * 200} for n in range(5)])

    async def garbage(self, end: ClientEnd) -> None:
        await end.send(self.chance.choice((self.spoken.dialect.malformed, self.chance.randbytes(200), b"\0" * 64)))
        await self.silent(end)

    async def half(self, end: ClientEnd) -> None:
        """Part of a frame, and then nothing."""
        data = self.frame()
        await end.send(data[: self.chance.randrange(1, len(data))])
        await self.silent(end)

    async def truncated(self, end: ClientEnd) -> None:
        """Part of a frame, and the end."""
        data = self.frame() + self.frame()
        await end.send(data[: self.chance.randrange(1, len(data))])
        end.write_eof()
        await self.silent(end)

    async def deaf(self, end: ClientEnd) -> None:
        """Sends, and never reads."""
        for _ in range(200):
            await end.send(self.frame())

    async def bomb(self, end: ClientEnd) -> None:
        for _ in range(self.chance.randint(1, 3)):
            await end.send(bomb(self.world.scenario.protocol, self.chance.choice((40_000, ZEROS, 4 * ZEROS))))
        await self.silent(end)

    async def silent(self, end: ClientEnd) -> None:
        """Hears what is said, until the end."""
        while (await end.read())[0]:
            pass

    async def leaver(self, end: ClientEnd) -> None:
        """Sends a frame and is gone."""
        await end.send(self.frame())
        await asyncio.sleep(self.chance.uniform(0, 0.02))
