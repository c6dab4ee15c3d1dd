"""What is promised of each frame, whatever its parts are and whatever Kafka says: a pump, its delivery and its producer, over a
broker that knows what it has stored.

A history is data: frames that are sent, answers that the next batches get, time that passes. `Promises` judges each step of it.
"""

from __future__ import annotations

import asyncio
import gc
import hashlib
import itertools
import weakref
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

import pytest
from aiokafka import errors
from headrace_common.fairness.scheduler import TIME_SLICE, TOLD
from headrace_common.kafka.producer import LOST_US, POISON
from headrace_common.operations.errors import DeliveryError
from headrace_common.operations.settings import MIB
from headrace_common.publishing.delivery import REFUSALS_PER_BATCH
from headrace_common.publishing.in_flight import NO_DEADLINE, DeliveryListener
from headrace_common.publishing.rejects import refusal
from headrace_common.record.contract import QUARANTINE_HEADERS, REPUBLISHED, Reason
from headrace_common.record.encoding import decode, field
from headrace_common.record.event import Part, Reject
from headrace_common.session.inflate import SLICE
from headrace_common.session.interface import Ticket
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.common.kafkaless import ENVELOPE, FakeFrame, Heard, Kafka, Made, Stage, event
from tests.common.slowly import SlowLoop, slow_loop, slowly
from tests.contract.waiting import until
from tests.native import CORES, using
from tests.simulation.kafka import CURSED, Request, Stored
from tests.tiers import examples

LOOP = SlowLoop

DEADLINE: Final = 6.0
BATCH: Final = 4000
TAKES: Final = 8000
"""Bytes of the largest batch that Kafka takes at first."""

EVENTS: Final = {"e": 10, "E": 1500, "p": 20, "l": 12_000}
"""Kinds of events, by the bytes of their values: two that Kafka takes, one that it refuses for its content, and one that is too
large for it.
"""
REJECTS: Final = {"r": 3, "R": 9000}


PAUSES: Final[dict[str, Made]] = {".": 0, ",": (2 * TIME_SLICE, 0), "g": SLICE // 2, "G": 4 * MIB}
BROKEN: Final = "!"


class Send(NamedTuple):
    """A frame of a connection. `parts`: a letter for each; `run`: they are made at once."""

    parts: str
    connection: int = 0
    kept: bool = False
    small: bool = False
    run: bool = False


class Say(NamedTuple):
    """Kafka says this to the next batches of a topic. No times: it goes on by its own rules."""

    answer: str
    times: int = 1
    topic: str = "events"


class Wait(NamedTuple):
    """Time passes. `still`: the process stands still meanwhile."""

    seconds: float
    still: bool = False


class Take(NamedTuple):
    """The topics are made to take batches of so many bytes."""

    most: int


Step = Send | Say | Wait | Take


UNSURE: Final = {kind.__name__ for kind in POISON}
OFTEN: Final = [
    "timed out", "stored, not replicated", "stored, and unknown", "lost request", "lost answer", "late answer", "UnknownError",
    "NotLeaderForPartitionError", "TopicAuthorizationFailedError", "InvalidTimestampError",
    "InvalidRecordError", *(kind.__name__ for kind in LOST_US),
]  # fmt: skip


@dataclass
class Expected:
    """A part as Kafka must have it once it is reported. `value`: of a reject, what is kept."""

    kind: str
    id: bytes
    value: bytes


class PlannedFrame(FakeFrame):
    """A frame, and what is heard of it."""

    def __init__(self, send: Send, ticket: Ticket) -> None:
        given: list[Made | Exception] = []
        small = send.small and len(send.parts) < 100 and not set(send.parts) & {*PAUSES, BROKEN}
        super().__init__(given, ticket, small=small, at_once=send.run)
        self.kept = send.kept
        self.expected: list[Expected] = []
        self.heard, self.deadline = 0, NO_DEADLINE
        self.ended_at: float | None = None
        self.fate = ""
        for index, kind in enumerate(send.parts):
            name = b"d.%016x%016x" % (ticket, index)
            if kind in PAUSES:
                given.append(PAUSES[kind])
            elif kind == BROKEN:
                given.append(ZeroDivisionError())
                self.expected.append(Expected("!", b"u.%032x" % ticket, b"all of it"))
                break
            else:
                size = EVENTS.get(kind) or REJECTS[kind]
                value = kind.encode() + CURSED * (kind == "p") + hashlib.shake_256(name).digest(size)
                self.expected.append(Expected(kind, name, value))
                given.append(
                    ENVELOPE.event(name, b"2023-11-14T22:13:20Z", value)
                    if kind in EVENTS
                    else ENVELOPE.reject(Reason.BAD_RECORD, "bad", value, name)
                )
        self.made = [part for part in given if isinstance(part, bytes | Reject)] if small and send.run else []


class Judge(Kafka):
    """Knows what was promised."""

    def __init__(self) -> None:
        super().__init__()
        self.max_message_bytes = TAKES
        self.on_store = self._look
        self.unsure: set[bytes] = set()
        """Ids of events that Kafka has refused."""
        self.values: dict[str, dict[bytes, dict[bytes, bytes]]] = {
            "events": defaultdict(dict),
            "quarantine": defaultdict(dict),
        }
        """By topic, id and part."""
        self.wrong: list[str] = []
        """What was promised and is not so: raised where it is seen, it would only end a pump or a request."""

    def claim(self, holds: bool, otherwise: str) -> None:
        if not holds:
            self.wrong.append(otherwise)

    def said(self, batch: Request) -> Exception | str | None:
        topic, headers = batch.where.topic, [dict(record.headers) for record in batch.records]
        if self.says[topic] and self.says[topic][0] in UNSURE:
            self.unsure.update(each.get("ce_id") or each["id"] for each in headers)
        return super().said(batch)

    def _look(self, stored: Stored) -> None:
        headers, value = stored.headers, stored.value or b""
        name, part = headers.get("ce_id") or headers["id"], headers.get("part", b"")
        there = self.values[stored.topic][name]
        marked = headers.get("ce_attributes", headers.get("attributes", b"")).endswith(REPUBLISHED)
        self.claim(part not in there or marked, f"{name!r} is there twice, and the lake would not know")
        self.claim(there.get(part, value) == value, f"{name!r} is there in two ways")
        self.claim(headers["ce_source"] == ENVELOPE.source.encode(), f"{name!r} is another's")
        self.claim(not part or tuple(headers) == QUARANTINE_HEADERS, "a reject has other headers")
        there[part] = value

    def has(self, part: Expected) -> bool:
        """Whether a part is stored where it belongs."""
        pieces = self.values["quarantine"].get(part.id, {})
        count = {int(name.partition(b"/")[2]) for name in pieces}
        found = [
            b"".join(pieces.get(b"%d/%d" % (number, most), b"?") for number in range(1, most + 1)) for most in count
        ]
        record = field(part.value)  # its beginning
        whole = any(each.startswith(record) if part.kind in EVENTS else each == part.value for each in found)
        if part.kind in "eEl":
            refused = whole and (part.kind == "l" or part.id in self.unsure)
            return refused or self.values["events"].get(part.id) == {b"": part.value}
        return whole and part.id not in self.values["events"]


class Promises(DeliveryListener):
    """One connection: what it hears must be so."""

    def __init__(self, kafka: Judge) -> None:
        self.kafka = kafka
        self.frames: dict[Ticket, PlannedFrame] = {}

    def stored(self, ticket: Ticket, stored: int, whole: bool) -> None:
        frame = self.frames[ticket]
        self.kafka.claim(frame.heard < stored or whole, "nothing more is reported")
        for part in frame.expected[frame.heard : stored]:
            self.kafka.claim(self.kafka.has(part), f"{part.kind} of frame {ticket} is reported, and not stored")
        self.kafka.claim(stored <= len(frame.expected), f"more parts are reported than frame {ticket} has")
        self.kafka.claim(not whole or stored == len(frame.expected), f"a part of frame {ticket} counts as all")
        frame.heard = stored
        if whole:
            self._ends(frame, "stored")

    def abandoned(self, ticket: Ticket, error: DeliveryError) -> None:
        self._ends(self.frames[ticket], "abandoned")

    def _ends(self, frame: PlannedFrame, fate: str) -> None:
        self.kafka.claim(not frame.fate, f"frame {frame.ticket} is {fate} after it was {frame.fate}")
        frame.fate, frame.ended_at = fate, slow_loop().now


async def play(loop: SlowLoop, *history: Step, answered: float = 1.0) -> tuple[Judge, list[PlannedFrame]]:
    """Plays a history to its end, after which Kafka stores all, and judges it. The third connection has the second pump."""
    kafka, frames, stood_still = Judge(), list[PlannedFrame](), 0.0
    kafka.timeout = answered
    connections = [Promises(kafka) for _ in range(3)]
    async with Stage(kafka, DEADLINE) as stage:
        for pump in stage.pumps:
            pump._batch_bytes = BATCH
        for step in history:
            if isinstance(step, Send):
                frames.append(frame := PlannedFrame(step, len(frames)))
                frame.deadline = NO_DEADLINE if step.kept else loop.now + DEADLINE
                connections[step.connection].frames[frame.ticket] = frame
                stage.pumps[step.connection // 2].publish(frame, connections[step.connection])
            elif isinstance(step, Take):
                kafka.max_message_bytes = step.most
            elif isinstance(step, Say) and not step.times:
                kafka.says.clear()
            elif isinstance(step, Say):
                kafka.says[step.topic].extend([step.answer] * step.times)
            elif step.still:
                loop.work(step.seconds)
                stood_still += step.seconds
            else:
                await asyncio.sleep(step.seconds)
                if step.seconds >= 1:
                    kafka.open.set()
        kafka.open.set()
        await asyncio.sleep(12)
        kafka.says.clear()
        kafka.open.set()
        await stage.idle()
        assert not kafka.wrong, kafka.wrong
        assert not stage.ends
        assert stage.growth.used == 0
        assert not any(pump.waiting() or pump._queue or pump.oldest() for pump in stage.pumps)
        for frame in frames:
            assert frame.ended_at is not None
            assert frame.ended_at <= frame.deadline + 2 + stood_still, "a client hears at its deadline"
    return kafka, frames


SENDS = st.builds(
    lambda begin, parts, *others: Send(begin + parts, *others),
    st.text(st.sampled_from("gG.,"), max_size=2),  # a frame grows before its first part
    st.text(st.sampled_from("eeeeeeEEprRl.,!"), max_size=8),
    st.integers(0, 2),
    st.sampled_from([False, False, True]),
    st.booleans(),
    st.booleans(),
)
SAYS = st.builds(
    Say, st.sampled_from(OFTEN), st.sampled_from([1, 1, 2, 5, 30]), st.sampled_from(["events", "events", "quarantine"])
)
TAKES_OTHER = st.builds(Take, st.sampled_from([2000, TAKES, 1 << 20]))
WAITS = st.builds(Wait, st.sampled_from([0, 0.001, 0.05, 0.3, 2, 8]), st.sampled_from([False, False, False, True]))


@settings(max_examples=examples(1000), deadline=None)
@given(st.lists(st.one_of(SENDS, SENDS, SAYS, WAITS, TAKES_OTHER), max_size=10), st.sampled_from(CORES))
def test_any_history(history: list[Step], core: str) -> None:
    with using(core):
        slowly(lambda loop: play(loop, *history))


HISTORIES: Final[dict[str, list[Step]]] = {
    "an empty frame, and one that ends with a full batch": [Send(""), Send("EE"), Send("EEE", 1)],
    "one batch in doubt is given up, and another follows": [Say("timed out", 1000), Send("e"), Wait(8), Say("", 0), Send("e")],
    "the topic takes less than it did": [Take(2000), Send("pEEe", run=True), Send("eEEp", 1)],
    "a second quarantine batch fails": [Say("stored", 1, "quarantine"), Say("lost request", 1, "quarantine"), Send("RR")],
    "quarantine refuses a record": [Say("InvalidRecordError", 2, "quarantine"), Send("er"), Send("e")],
    "a partition's answer is not another's": [Send("p"), Send("e", 2), Send("e"), Send("p", 2)],
    "frames that need several batches": [Send("EEEEEEE"), Send("EReE"), Send("e", 1)],
    "a full batch, and frames that are made already": [Send("EE", small=True, run=True), Send("EE", 1, small=True, run=True)],
    "a frame that waits for memory": [Send("GGGe"), Send("Ge"), Send("ge", 1), Wait(0), Send("GGe", 2)],
}  # fmt: skip


@pytest.mark.parametrize("pause", [0, 0.05])
def test_a_made_frame_overtakes_none_of_its_connection(pause: float) -> None:
    """Not one that waits for a slice, nor one that waits for the memory that a frame of another partition has."""
    made = Send("e", small=True, run=True)
    history: list[Step] = [Say("late answer"), Send("GGe", 2), Wait(0.05), Send("GGe"), Wait(pause), made, Wait(1)]

    async def run(loop: SlowLoop) -> None:
        kafka, frames = await play(loop, *history)
        stored = [each.headers["ce_id"] for each in kafka.log]
        assert stored.index(frames[1].expected[0].id) < stored.index(frames[2].expected[0].id)

    slowly(run)


@pytest.mark.parametrize("core", CORES)
@pytest.mark.parametrize("name", HISTORIES)
def test_a_history(name: str, core: str) -> None:
    with using(core):
        slowly(lambda loop: play(loop, *HISTORIES[name]))


SAID: Final = {*errors.kafka_errors.values()} - {errors.NoError, errors.DuplicateSequenceNumber}
"""All that may be said of a batch but that it is stored."""


@pytest.mark.parametrize("error", sorted(kind.__name__ for kind in SAID))
def test_no_stored_batch_is_doubled_unseen_whatever_is_said(error: str) -> None:
    slowly(lambda loop: play(loop, Say("timed out"), Say(error, 2), Send("eeee"), Wait(1), Send("e")))


def fates(*history: Step, answered: float = 1.0) -> list[str]:
    """What becomes of the frames of a history."""
    return [frame.fate for frame in slowly(lambda loop: play(loop, *history, answered=answered))[1]]


@pytest.mark.parametrize("answer", ["TopicAuthorizationFailedError", "InvalidTimestampError"])
@pytest.mark.parametrize(
    ("topic", "expected"),
    [("events", ["abandoned", "abandoned", "stored"]), ("quarantine", ["abandoned", "stored", "stored"])],
)
def test_what_is_refused_for_good_is_given_up(answer: str, topic: str, expected: list[str]) -> None:
    """Events do not wait for rejects that quarantine refuses."""
    sends = Send("er"), Send("e", 1), Wait(0.3), Send("er", 1, kept=True)
    assert fates(Say(answer, 1, topic), *sends) == expected


@pytest.mark.parametrize("say", [Take(TAKES), Say("UnknownError", 1000)], ids=["topic", "broker"])
def test_who_takes_nothing_is_not_taken_for_bad_records(say: Step) -> None:
    parts = "p" * 4 * REFUSALS_PER_BATCH if isinstance(say, Take) else "eee"
    kafka, (frame,) = slowly(lambda loop: play(loop, say, Send(parts), Wait(9)))
    assert frame.fate == "abandoned"
    assert not kafka.values["quarantine"]


@pytest.mark.parametrize("answer", ["late answer", "stored", "TopicAuthorizationFailedError"])
async def test_many_at_once_are_told_in_several_turns(answer: str) -> None:
    """That pass their deadline, or are of one cycle. Ten thousand clients held the loop until all were told."""
    async with Stage(Kafka(), DEADLINE) as stage:
        listener, told = Heard(0.001), [0]
        stage.kafka.says["events"].extend([answer] * 10)
        for number in range(100):
            stage.pumps[0].publish(FakeFrame([event(number)], number), listener)
        while told[-1] < 100:
            await asyncio.sleep(0)
            slow_loop().work(0.001)
            told.append(listener.count())
        assert max(after - before for before, after in itertools.pairwise(told)) <= TOLD
        assert stage.pumps[0].oldest() is None


# What a frame holds


async def test_a_large_frame_that_waits_holds_no_sources() -> None:
    async with Stage(Kafka()) as stage:
        stage.kafka.open.clear()
        frame = FakeFrame([event(0), event(1)])
        held = weakref.ref(frame)
        stage.pumps[0].publish(frame, Heard())
        del frame
        await until(lambda: stage.kafka.sent, "a batch is sent")
        gc.collect()
        assert held() is None


async def test_many_rejects_with_large_attributes_are_not_held_at_once() -> None:
    """A hundred thousand bad entries of a byte each, with a message's option of 16 KiB each, are a gigabyte."""
    kafka, held = Kafka(), list[int]()

    def parts() -> Iterator[Part]:
        for number in range(500):
            held.append(number - sum(batch.count for batch in kafka.sent))
            yield ENVELOPE.reject(Reason.BAD_RECORD, "bad", b"x", b"d.%032x" % number, b"y" * 16_000)

    async with Stage(kafka) as stage:
        stage.pumps[0]._batch_bytes = MIB
        frame, listener = FakeFrame([]), Heard()
        frame.runs = parts  # type: ignore[method-assign]
        stage.pumps[0].publish(frame, listener)
        await stage.idle()
    assert listener.whole
    assert 1 < max(held) < 200


def test_a_refused_record_is_the_content() -> None:
    """Its attributes may be as long as an event: no quarantine record could hold them, and the client sent it for ever."""
    refused = event(2, attributes=b'{"chunk":"%b"}' % (b"c" * (1 << 20)))
    made = refusal(refused)
    assert (made.raw, made.id, made.attributes) == (refused, dict(decode(refused)[1])["ce_id"], b"{}")
