# ruff: noqa: E501
"""The product with one guard, decision, budget or ledger rule removed or reversed: seeds must tell each from the real one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Protocol


class Change(Protocol):
    """`old` occurs once in `module`, and becomes `new`."""

    @property
    def module(self) -> str: ...
    @property
    def old(self) -> str: ...
    @property
    def new(self) -> str: ...


@dataclass(frozen=True)
class Also:
    """A second change of a mutant: a guard that would hide the first."""

    module: str
    old: str
    new: str


@dataclass(frozen=True)
class Mutant:
    """A `Change`. `protocol`: whose seeds must find it. `seed`: the first that did when it was last hunted."""

    name: str
    module: str
    old: str
    new: str
    protocol: str = "forward"
    also: tuple[Also, ...] = ()

    @property
    def seed(self) -> int:
        return SEEDS[self.name]


_EVENTS: Final = "headrace_logjam.events"
_PUMP: Final = "headrace_common.publishing.pump"
_QUEUE: Final = "headrace_common.publishing.in_flight"
_DELIVERY: Final = "headrace_common.publishing.delivery"
_REJECTS: Final = "headrace_common.publishing.rejects"
_BATCH: Final = "headrace_common.publishing.batch"
_DRIVER: Final = "headrace_common.connection.driver"
_TCP: Final = "headrace_common.connection.tcp"
_SECURED: Final = "headrace_common.listening.secured"
_BUDGET: Final = "headrace_common.fairness.budget"
_SCHEDULER: Final = "headrace_common.fairness.scheduler"
_LEDGER: Final = "headrace_common.session.ledger"
_FLOW: Final = "headrace_common.connection.flow"
_STATE: Final = "headrace_common.connection.receiver_state"
_PRODUCER: Final = "headrace_common.kafka.producer"
_FORWARD: Final = "headrace_forward.session"
_ENTRIES: Final = "headrace_forward.entries.builder"
_CHUNKS: Final = "headrace_forward.entries.ids"
_LUMBERJACK: Final = "headrace_lumberjack.session"
_IDENTITY: Final = "headrace_lumberjack.identity"
_COURIER: Final = "headrace_courier.session"
_PAYLOADS: Final = "headrace_courier.events"
_CONSUMER: Final = "headrace_logjam.devices.consumer"
_ENDPOINTS: Final = "headrace_logjam.devices.endpoints"
_GAPS: Final = "headrace_logjam.devices.gaps"
_SUBSCRIPTION: Final = "headrace_logjam.devices.subscription"
_PRODUCERS: Final = "headrace_logjam.session"
_DOORS: Final = "headrace_logjam.peers.doors"

_FOLD: Final = "headrace_segment.store.fold"
_SERVING: Final = "headrace_segment.serving"
_EARLY: Final = "headrace_segment.store.early"
_WRITERS: Final = "headrace_segment.session.writers"
_BLOCKS: Final = "headrace_segment.events"

_GOES_ON: Final = Also(
    _TCP,
    "        elif end is End.UNSETTLED:\n            self._drain()",
    "        elif end is End.UNSETTLED:\n            self._flush()",
)
"""The connection's own guard: with it, the session's is never asked."""

MUTANTS: Final = (
    Mutant("a failed batch counts as stored", _PUMP, "            except DeliveryError as failure:\n                return failure\n            self._metrics.events_stored", "            except DeliveryError:\n                refused = []\n            self._metrics.events_stored"),
    Mutant("rejects are not stored", _PUMP, "        if not cycle.rejects:\n            return None", "        if cycle.rejects:\n            cycle.rejects = []\n            await self._report(cycle)\n            return None\n        if not cycle.rejects:\n            return None"),
    Mutant("frames are reported before their rejects are stored", _PUMP, "if frame not in unsent]", "]"),
    Mutant("an abandoned frame is reported", _PUMP, "            if frame.abandoned:\n                continue\n            if frame.exhausted:", "            if frame.exhausted:"),
    Mutant("refused records are forgotten", _PUMP, "            for record, owner in refused:\n                cycle.rejects.append((owner, refusal(record)))\n", ""),
    Mutant("no deadline of a frame is watched", _PUMP, "            pending.watch(frame.deadline)\n", "            pass\n"),
    Mutant("acknowledged events are counted by frames", _DRIVER, "metrics.events_acknowledged.inc(stored)", "metrics.events_acknowledged.inc(1)"),
    Mutant("an event in quarantine is counted twice", _REJECTS, "metrics.events_quarantined.labels(reject.reason.value).inc()", "metrics.events_quarantined.labels(reject.reason.value).inc(2)"),
    Mutant("a stored frame stays pending", _PUMP, "                del self._pending[frame]\n            frame.listener", "            frame.listener"),
    Mutant("the growth's reservation is kept", _PUMP, "        frame.abandoned = True\n        frame.shrink(0)\n", "        frame.abandoned = True\n"),
    Mutant("a whole frame keeps its reservation", _PUMP, "                if frame.reserved:\n                    frame.shrink(0)\n", ""),
    Mutant("another conversation hears a report", _PUMP, "            frame.listener.stored(", "            next(iter(self._pending), frame).listener.stored("),
    Mutant("a part of a frame counts as all", _PUMP, "frame.built, frame.exhausted)", "frame.built, True)"),
    Mutant("the next frame of a connection is forgotten", _QUEUE, "        self._lead(queue.popleft())\n", "        queue.popleft()\n"),
    Mutant("a connection's frames lose their order", _QUEUE, "        queue.append(in_flight)", "        queue.appendleft(in_flight)"),
    Mutant("events that did not fit are dropped", _PUMP, "                frame.made = made[added:]\n                return Step.FULL", "                return Step.FULL"),
    Mutant("an odd answer counts as stored", _DELIVERY, "                answer.result()\n", ""),
    Mutant("a broken producer is kept", _DELIVERY, "                self._source.discard(producer, error)\n", ""),
    Mutant("what is in doubt is not marked", _BATCH, "map(republished, self.records)", "self.records"),
    Mutant("refused records are not searched for", _DELIVERY, "            return await self._search(batch, deadline)", "            return list(zip(batch.records, batch.owners, strict=True))"),
    Mutant("half of a batch is not sent", _DELIVERY, "                for half in batch.halves():\n                    if", "                for half in [*batch.halves()][:1]:\n                    if"),
    Mutant("a start that failed is not tried again", _PRODUCER, "            self._starting = None\n\n    def _unusable", "            pass\n\n    def _unusable"),
    Mutant("a stored frame is not released", _DRIVER, "            receiver.budget.release(self, size)\n", ""),
    Mutant("an abandoned frame is not released", _DRIVER, "        self._receiver.budget.release(self, self.under_way.pop(ticket)[0])", "        self.under_way.pop(ticket)"),
    Mutant("a connection that ends keeps its unfinished bytes", _BUDGET, "        self._digested(reader)\n        self.hold(reader, 0)", "        self._digested(reader)"),
    Mutant("a connection goes on after a frame was abandoned", _TCP, "        elif end is End.UNSETTLED:\n            self._drain()", "        elif end is End.UNSETTLED:\n            pass"),
    Mutant("bytes that wait are forgotten", _FLOW, "        self.unseen += data[but:]\n", ""),
    Mutant("only one acknowledgement is written", _FLOW, "                self._loop.call_soon(self._flush_again)", "                pass"),
    Mutant("a client that left stays counted", _STATE, "        self.admitted -= 1\n", ""),
    Mutant("a part of the ledger is acknowledged", _LEDGER, "            if not oldest.whole:\n                return None\n", ""),
    Mutant("the ledger loses its order", _LEDGER, "            self.entries.popitem(last=False)\n            return oldest", "            self.entries.popitem(last=True)\n            return oldest"),
    Mutant("an abandoned frame is not counted", _DRIVER, "        self._receiver.metrics.frames_abandoned.inc()\n        self._receiver.budget.release(self, self.under_way.pop(ticket)[0])", "        self._receiver.budget.release(self, 0 * self.under_way.pop(ticket)[0])"),
    Mutant("a Forward message is answered when it arrives", _FORWARD, "        return self._pending.add(reply)", "        self._handshake_replies.append(reply or b\"\")\n        return self._pending.add(None)"),
    Mutant("who asks for no acknowledgement is not heard out", _FORWARD, "        self._unacknowledgeable |= reply is None\n", ""),
    Mutant("a Forward message without a chunk is forgotten", _FORWARD, "        reply = None if asked.reply is None else acknowledgement(asked.reply)\n", "        if asked.reply is None:\n            return\n        reply = acknowledgement(asked.reply)\n"),
    Mutant("a window is acknowledged before all of it is stored", _LUMBERJACK, "            if oldest.missing or stored < oldest.events:", "            if oldest.missing:", "lumberjack"),
    Mutant("a payload is acknowledged before it is stored", _COURIER, "            if self._pending.pop_whole() is not None:", "            if self._pending.entries.popitem(last=False):", "courier"),
    Mutant("no leader's deadline", _DELIVERY, "            if self._clock() >= deadline:\n                raise DeliveryError(\"its partition has no leader\", DeliveryPolicy.RETRY)\n", ""),
    Mutant("a parked frame is never continued", _PUMP, "            self._queue.back(frame)\n", ""),
    Mutant("who waits for the budget is never asked again", _BUDGET, "        if any(self._to_ask.values()) and not self._waking:", "        if False:"),
    Mutant("a pause in reading never ends", _FLOW, "            self.transport.resume_reading()\n", ""),
    Mutant("a drain does not wait for frames", _TCP, "        if self._life.phase == SETTLING and not self.driver.outstanding:", "        if self._life.phase == SETTLING:"),
    Mutant("the end of input is not handed on", _TCP, "        elif self._life.phase <= LINGERING and not self.incoming.is_behind():\n            self._input_ends()\n        return", "        return"),
    Mutant("who has finished sending by TLS is cut off", _SECURED, "                if not connection.eof_received():\n                    self.close()", "                connection.eof_received()\n                self.close()"),
    Mutant("an abandoned window is acknowledged", _LUMBERJACK, "        self._ended = True\n\n    @override\n    def outgoing", "        self.stored(ticket, self._units.entries[ticket].note.count, True)\n\n    @override\n    def outgoing", "lumberjack", (_GOES_ON,)),
    Mutant("an abandoned payload is acknowledged", _COURIER, "        self._abandoned = True\n", "        self.stored(ticket, 0, True)\n", "courier", (_GOES_ON,)),
    Mutant("a block of a session that has ended counts", _FOLD, "        if writer is None or writer.session != record.session:\n            return Refusal.SESSION\n        if record.after", "        if writer is None:\n            return Refusal.SESSION\n        if record.after", "segment"),
    Mutant("a block is acknowledged before it is stored", _SERVING, "        served.asked.append(_Asked(question.ticket, now, question.after))\n", "        caller.answered(question.ticket, Appended(question.segment, question.writer, question.session, question.after, 0))\n", "segment"),
    Mutant("of blocks that go together the first alone is stored", _WRITERS, 'b"".join(run.data for run in runs)', "first.data", "segment"),
    Mutant("own records are folded over others'", _EARLY, "    if fold.next_offset != first:\n        return None\n", "    if fold.next_offset > first:\n        return None\n    fold.next_offset = first\n", "segment"),
    Mutant("a device that is heard first is handed out at once", _CONSUMER, "                    self._unwritten = True\n", "", "logjam"),
    Mutant("the topics are not looked at after a kill", _ENDPOINTS, "            held = await self._held()", "            pass", "logjam"),
    Mutant("a position does not wait for what is read before it", _CONSUMER, "            left = {each for each in gathered if not each.stored}", "            left = set()", "logjam"),
    Mutant("what a consumer found stored is not where it stands", _CONSUMER, "            self._positions |= stands\n", "            pass\n", "logjam"),
    Mutant("holes found at a start are not marked", _CONSUMER, "                gathered.items.append(gap)\n        else:", "                pass\n        else:", "logjam"),
    Mutant("a restart of a device is a gap like others", _GAPS, "        if sequence > 1:\n            gaps.append(known.gap(1, sequence, told))", "        if sequence > 1 and wrapped:\n            gaps.append(known.gap(1, sequence, told))", "logjam"),
    Mutant("a refused message has no marker", _CONSUMER, "        self._unmarked = merged(self._unmarked + messages)", "        self._unmarked = merged(self._unmarked)", "logjam"),
    Mutant("a producer is answered when its message arrives", _PRODUCERS, "        self._questions.setdefault(route, deque()).append(question)\n        return question", "        self._questions.setdefault(route, deque()).append(question)\n        question.answer = ACCEPTED\n        self._due.append(route)\n        return question", "producers"),
    Mutant("a message that is no event is accepted", _PRODUCERS, "REFUSED if index in refused else ACCEPTED", "ACCEPTED", "producers"),
    Mutant("what was sent behind a late message is answered", _PRODUCERS, "for other in self._questions.pop(question.route, ()):", "for other in [self._questions[question.route].popleft()]:", "producers"),
    Mutant("the last message is answered first", _PRODUCERS, "(answer := questions[0].answer) is not None:\n                question = questions.popleft()", "(answer := questions[-1].answer) is not None:\n                question = questions.pop()", "producers"),
    Mutant("what nobody waits for has a deadline", _EVENTS, "KeepUntil.DEADLINE if answered else KeepUntil.STORED", "KeepUntil.DEADLINE", "producers"),
    Mutant("what nobody waits for is given up when Kafka refuses it", _PUMP, "keeps = error.policy is DeliveryPolicy.CLOCK or cycle.batch is not None", "keeps = False", "producers"),
    Mutant("clients are cut off and not made to leave", _DOORS, "guest.descriptor.shut(socket.SHUT_WR)", "guest.descriptor.shut()", "producers"),
    Mutant("who holds too much stays", _DOORS, "        if self._may_hold.excessive(guest, empty=empty):", "        if False:", "producers"),
    Mutant("a client that has gone keeps its place", _DOORS, "failed)\n        self._free(guest, \"peer\")", "failed)", "producers"),
    Mutant("small frames wait for long ones", _QUEUE, "return self._scheduler.small.used <= self._scheduler.counted(self._heap[0].used)", "return False", "lumberjack"),
    Mutant("who was left behind comes before small frames", _SCHEDULER, "return max(used, self._least())", "return used"),
    Mutant("long work gives small frames no credit", _SCHEDULER, "small.used = max(least, small.used - spent)", "pass"),
    Mutant("equal events of a message share an id", _ENTRIES, "b\"%b%08x\" % (ids.prefix, index)", "b\"%b%08x\" % (ids.prefix, 0)"),
    Mutant("a hash of the content names a message", _CHUNKS, "return abs(int.from_bytes(decoded[:8], \"little\") - now) > NEAR", "return False"),
    Mutant("equal events of a payload share an id", _PAYLOADS, "_LEFT_AND_LENGTH(4, left, size)", "_LEFT_AND_LENGTH(4, 0, size)", "courier"),
    Mutant("equal lines of a file share an id", _IDENTITY, "place = b\"%d\" % offset", "place = b\"\"", "lumberjack"),
    Mutant("equal events of a writer share an id", _BLOCKS, "id_behind(begin, named, data)", "id_behind(begin, b\"\", data)", "segment"),
    Mutant("equal messages of a device share an id", _SUBSCRIPTION, "deterministic_id(PROTOCOL, *message.frames, *(", "deterministic_id(PROTOCOL, *message.frames[:3], *(", "logjam"),
    Mutant("devices without a number share ids", _SUBSCRIPTION, "numbered = message.meta is None or message.meta.device", "numbered = True", "logjam"),
)  # fmt: skip

SEEDS: Final[dict[str, int]] = {
    "a failed batch counts as stored": 11,
    "rejects are not stored": 1,
    "frames are reported before their rejects are stored": 1,
    "an abandoned frame is reported": 0,
    "acknowledged events are counted by frames": 0,
    "an event in quarantine is counted twice": 1,
    "refused records are forgotten": 1,
    "no deadline of a frame is watched": 0,
    "a stored frame stays pending": 0,
    "the growth's reservation is kept": 86,
    "a whole frame keeps its reservation": 3,
    "another conversation hears a report": 0,
    "a part of a frame counts as all": 14,
    "the next frame of a connection is forgotten": 2,
    "a connection's frames lose their order": 3,
    "events that did not fit are dropped": 106,
    "an odd answer counts as stored": 1,
    "a broken producer is kept": 1,
    "what is in doubt is not marked": 495,
    "refused records are not searched for": 1,
    "half of a batch is not sent": 1,
    "a start that failed is not tried again": 1,
    "a stored frame is not released": 0,
    "an abandoned frame is not released": 0,
    "a connection that ends keeps its unfinished bytes": 0,
    "a connection goes on after a frame was abandoned": 15,
    "bytes that wait are forgotten": 50,
    "only one acknowledgement is written": 3,
    "a client that left stays counted": 0,
    "a part of the ledger is acknowledged": 0,
    "the ledger loses its order": 2,
    "an abandoned frame is not counted": 0,
    "a Forward message is answered when it arrives": 0,
    "who asks for no acknowledgement is not heard out": 89,
    "a Forward message without a chunk is forgotten": 9,
    "a window is acknowledged before all of it is stored": 0,
    "a payload is acknowledged before it is stored": 0,
    "no leader's deadline": 11,
    "a parked frame is never continued": 3,
    "who waits for the budget is never asked again": 3,
    "a pause in reading never ends": 3,
    "a drain does not wait for frames": 3,
    "the end of input is not handed on": 3,
    "who has finished sending by TLS is cut off": 243,
    "an abandoned window is acknowledged": 11,
    "an abandoned payload is acknowledged": 9,
    "a block of a session that has ended counts": 8,
    "a block is acknowledged before it is stored": 16,
    "of blocks that go together the first alone is stored": 1,
    "own records are folded over others'": 4,
    "a device that is heard first is handed out at once": 29,
    "the topics are not looked at after a kill": 5,
    "a position does not wait for what is read before it": 7,
    "what a consumer found stored is not where it stands": 149,
    "holes found at a start are not marked": 5,
    "a restart of a device is a gap like others": 1,
    "a refused message has no marker": 34,
    "a producer is answered when its message arrives": 0,
    "a message that is no event is accepted": 0,
    "what was sent behind a late message is answered": 353,
    "the last message is answered first": 0,
    "what nobody waits for has a deadline": 20,
    "what nobody waits for is given up when Kafka refuses it": 97,
    "clients are cut off and not made to leave": 327,
    "who holds too much stays": 64,
    "a client that has gone keeps its place": 0,
    "small frames wait for long ones": 5,
    "who was left behind comes before small frames": 197,
    "long work gives small frames no credit": 197,
    "equal events of a message share an id": 5,
    "a hash of the content names a message": 5,
    "equal events of a payload share an id": 0,
    "equal lines of a file share an id": 2,
    "equal events of a writer share an id": 1,
    "equal messages of a device share an id": 5,
    "devices without a number share ids": 257,
}
"""`python -m tests.simulation.mutants` says them again."""
