"""What must be true of a run, all of it here. Each sentence that a run breaks is a failure."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any, cast

import orjson
from headrace_common.fairness.scheduler import TIME_SLICE
from headrace_common.publishing.delivery import SILENCE_TIME
from headrace_common.record.contract import REPUBLISHED, Reason
from headrace_logjam.peers.holding import OTHER
from headrace_logjam.sockets import ProducerSocket

from tests.simulation.kafka import CURSED, Request, Stored
from tests.simulation.loop import EPOCH, OWNER

if TYPE_CHECKING:
    from tests.simulation.clients import Client, Sent
    from tests.simulation.world import Life, World


UNWANTED = SILENCE_TIME + 10
"""Seconds after its deadline beyond which no event may set out for Kafka."""

LOOKS = 4
"""Looks in a row, of which each may see a client that holds too much."""

LATE = 1.0
"""Seconds by which a deadline may be passed: everything else in the turn comes first."""


class Oracle:
    """Watches the log and the acknowledgements. `failures`: what was broken, in words."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.failures: list[str] = []
        self._meant: dict[tuple[str, int], dict[str, Any]] = {}
        self._frames: dict[str, tuple[Client, Sent]] = {}
        self._stored: dict[tuple[str, int], int] = {}  # the position in the log of the first copy
        self._refused: dict[tuple[str, int], int] = {}  # the same, in quarantine because Kafka refused it
        self._rejected: dict[str, list[tuple[str, bytes, int]]] = defaultdict(list)  # by mark: reason, bytes, position
        self._ids: dict[bytes, tuple[str, int]] = {}
        self._id_of: dict[tuple[str, int], bytes] = {}
        # Of each connection, by its address:
        self._last: dict[tuple[str, bytes], tuple[int, int]] = {}  # the application too, where messages have one
        self._partition: dict[tuple[str, bytes], int] = {}
        self._unmarked: set[tuple[str, str, int]] = set()
        self._newest: dict[tuple[str, bytes], int] = defaultdict(int)  # producer whose records a stream has
        self._there: dict[tuple[str, str, int], int] = {}  # the position of the first copy that it sent
        self._heard: dict[str, int] = defaultdict(int)  # events that went nowhere but to the topic of events
        self.acknowledgements = 0

    def fails(self, problem: str) -> None:
        if len(self.failures) < 20:
            self.failures.append(problem)
            self._world.tell(f"FAILURE {problem}")

    # Clients

    def will_send(self, client: Client, frame: Sent) -> None:
        """A client has made a frame."""
        self._frames[frame.mark] = client, frame
        for value in frame.values:
            self._meant[frame.mark, value["n"]] = value

    def acknowledged(self, client: Client, frame: Sent, version: int, order: list[Sent]) -> None:
        """It hears that all of a frame is stored. `version`: the length of the log when the receiver said so. `order`: what it
        has sent on this connection.
        """
        self.acknowledgements += 1
        name = f"frame {frame.mark}"
        self._world.tell(f"{client.name} hears that {name} is stored")
        if frame not in order:
            self.fails(f"{name} is acknowledged on a connection on which it was not sent")
            return
        before = order[: order.index(frame)]
        if not all(sent.acknowledged for sent in before):
            self.fails(f"{name} is acknowledged before one that was sent before it")
        if not frame.acknowledged and not frame.faulty and not frame.cursed:
            self._heard[client.connections[-1].address] += len(frame.values)
        for value in frame.values:
            cursed = frame.cursed and value["text"].encode() == CURSED
            refused = self._refused.get((frame.mark, value["n"]), version) < version
            if cursed and not refused:
                self.fails(f"{name} is acknowledged, and what Kafka refuses of it is not in quarantine")
            elif not refused and self._stored.get((frame.mark, value["n"]), version) >= version:
                self.fails(f"{name} is acknowledged, and its event {value['n']} is not stored")
        if frame.faulty:
            fault = self._world.spoken.dialect.fault
            found = [at for reason, _, at in self._rejected[frame.mark] if reason == fault]
            if not found or min(found) >= version:
                self.fails(f"{name} is acknowledged, and what cannot be understood of it is not in quarantine")

    def closed(self, client: Client, address: str, version: int, order: list[Sent]) -> None:
        """The receiver has ended its side of a connection, without a reset. `version`: the length of the log then."""
        if not self._world.scenario.undisturbed or self._world.spoken.messages:
            return  # it may have given a frame up
        for frame in order:
            if (
                frame.faulty
                or frame.cursed
                or not all(
                    self._there.get((address, frame.mark, value["n"]), version) < version for value in frame.values
                )
            ):
                return
            if not frame.acknowledged:
                self.fails(f"{client.name} is told the end, and not that {frame.mark} is stored")

    def keeps(self, frame: Sent) -> bool:
        """Whether all of a frame is stored, or in quarantine."""
        events = [(frame.mark, value["n"]) for value in frame.values]
        there = all(each in self._stored or each in self._refused for each in events)
        return there and (not frame.faulty or frame.mark in self._rejected)

    # Kafka

    def emptied(self) -> None:
        """The topics are deleted: what is stored again, and was there, is there once."""
        self._unmarked.clear()
        self._last.clear()

    def sends(self, request: Request) -> None:
        """A batch sets out. One that was ready before its process was held up may leave before the deadlines are seen."""
        if not cast("Any", OWNER.get()).settled():
            return
        age = EPOCH + self._world.loop.now - max(record.timestamp for record in request.records) / 1000
        if self._world.all_expire and age > self._world.settings.kafka.ack_deadline + UNWANTED:
            self.fails(f"a batch sets out {age:.0f} s after its last frame came, and nobody waits for it any more")

    def stored(self, record: Stored) -> None:
        """Kafka has stored a record; it is the last of the log."""
        at = len(self._world.broker.log) - 1
        quarantined = record.topic.endswith("quarantine")
        assert record.value is not None
        address = record.headers["ce_source"].decode().rpartition("/")[2]
        client = self._world.network.addresses.get(address)
        if client is None:
            self.fails(f"a record's source is {record.headers['ce_source']!r}, which never connected")
        elif not client.honest:
            return
        elif quarantined:
            self._quarantined(record, at, client)
        else:
            self._event(record, at, client, address)

    def _quarantined(self, record: Stored, at: int, client: Client) -> None:
        assert record.value is not None
        reason = record.headers["reason"].decode()
        if reason == Reason.REFUSED:
            key = self._sent(record.value, client)
            if key is not None:
                self._refused.setdefault(key, at)
                if CURSED not in record.value and record.value not in self._world.broker.doubted:
                    self.fails(f"{key} is in quarantine, and Kafka has not refused it")
            return
        for mark, (owner, frame) in self._frames.items():
            if owner is client and mark.encode() in record.value:
                self._rejected[mark].append((reason, record.value, at))
                if not frame.faulty:
                    self.fails(f"{mark} is sound and went to quarantine: {record.headers['reason']!r}")
                return
        self.fails(f"a record of {client.name} in quarantine that it never sent")

    def _event(self, record: Stored, at: int, client: Client, address: str) -> None:
        assert record.value is not None
        key = self._sent(record.value, client)
        if key is None:
            return
        if CURSED in record.value:
            self.fails(f"{key} is stored, and Kafka refuses it")
        self._stored.setdefault(key, at)
        self._there.setdefault((address, *key), at)
        event_id = record.headers["ce_id"]
        if event_id.startswith(b"d.") and self._id_of.setdefault(key, event_id) != event_id:
            self.fails(f"{key} has two ids")
        if self._world.spoken.messages and (b'"request_id"' in record.value) != event_id.startswith(b"d."):
            self.fails(f"{key} has the id {event_id!r}")
        if self._ids.setdefault(event_id, key) != key:
            self.fails(f"{key} has the id of {self._ids[event_id]}")
        self._in_order(record, key, self._frames[key[0]][1], address)

    def _sent(self, data: bytes, client: Client) -> tuple[str, int] | None:
        """Which event this is. None, and a failure, if the client has not sent just this."""
        try:
            value = self._world.spoken.dialect.value(orjson.loads(data))
            key = (value["mark"], value["n"])
        except (ValueError, KeyError, TypeError):
            self.fails(f"{client.name} never sent {data[:80]!r}")
            return None
        owner, _ = self._frames.get(key[0], (None, None))
        if owner is not client or self._meant.get(key) != value:
            self.fails(f"{key} is stored otherwise than {client.name} sent it")
            return None
        return key

    def _in_order(self, record: Stored, key: tuple[str, int], frame: Sent, address: str) -> None:
        """Kafka may store what a lost producer sent behind what its successor sends."""
        stream = address, record.headers["ce_subject"] if self._world.spoken.messages else b""
        growing = self._world.spoken.messages and self._world.scenario.of("partitions")
        if self._partition.setdefault(stream, record.partition) != record.partition and not growing:
            self.fails(f"the connection of {key} uses two partitions")
        again = record.headers.get("ce_attributes", b"").endswith(REPUBLISHED)
        once = (address, *key)
        first = once not in self._unmarked
        if not again:
            if not first:
                self.fails(f"{key} was sent once and stored twice, and none of the copies is marked")
            self._unmarked.add(once)
        self._newest[stream] = max(record.producer, self._newest[stream])
        place = (frame.number, key[1])
        if place > self._last.get(stream, (-1, -1)):
            self._last[stream] = place
        elif not again and first and record.producer >= self._newest[stream]:
            self.fails(f"{key} is stored behind what the connection sent after it")

    # Meanwhile

    def looks(self, life: Life) -> None:
        """At any time: no frame waits beyond its deadline, and no budget is exceeded."""
        settings = self._world.settings
        publisher = getattr(life.service, "_publisher", None)
        if publisher is None or all(task.done() for task in publisher._running):
            return  # its pumps have not begun, or have ended behind the connections: what was not stored waits no more
        oldest, now = publisher.oldest(), self._world.loop.now
        if self._world.all_expire and oldest is not None and now - oldest > settings.kafka.ack_deadline + LATE:
            self.fails(
                f"a frame waits for {now - oldest:.1f} s, KAFKA__ACK_DEADLINE is {settings.kafka.ack_deadline:g} s"
            )
        self._held(life)
        budget, limits = life.service._budget, settings.limits
        readers = len(life.service._receiver.connections)
        most = limits.process_budget // 2 + limits.frame_bytes + readers * 2 * self._world.largest_piece
        if (held := budget.partial_bytes + budget.pending) > most:
            self.fails(f"{held} bytes in flight of {readers} connections, the budget allows {most}")
        if budget.growth.used > limits.process_budget // 2 or budget.growth.used < 0:
            self.fails(
                f"frames have grown by {budget.growth.used} bytes, the budget allows {limits.process_budget // 2}"
            )
        if budget.pending < 0 or budget.partial_bytes < 0:
            self.fails(f"the budget counts {budget.pending} and {budget.partial_bytes} bytes")

    def passed_over(self, seconds: float) -> None:
        """The first small frame of a pump has waited while long frames of others took so long."""
        self.fails(f"a small frame waits for {seconds / TIME_SLICE:.0f} slices of long frames")

    def _held(self, life: Life) -> None:
        """No client may hold much more of a message that is not whole than a message may have, look after look."""
        most = self._world.settings.limits.frame_bytes + OTHER
        reading = all(each._read.reading for each in life.service._parts.listeners if isinstance(each, ProducerSocket))
        for engine in life.descriptors.values():
            if engine.partial <= most or not reading or engine.cut:
                engine.looks = 0
                continue
            engine.looks += 1
            if engine.looks == LOOKS:
                self.fails(f"a client holds {engine.partial} bytes of a message that is not whole, {most} are allowed")

    # The end

    def served(self, client: Client) -> None:
        """All of an honest client's frames are acknowledged."""
        scenario = self._world.scenario
        most = 1 + 2 * sum(fault.kind == "term" for fault in scenario.faults)
        if scenario.undisturbed and not self._world.spoken.messages and len(client.connections) > most:
            self.fails(f"{client.name} needed {len(client.connections)} connections, and nothing was in its way")

    def ended(self, life: Life, *, in_time: bool) -> None:
        """A process has stopped: its counters say what happened, and `in_time`, what it held is given back."""
        service = life.service
        if life.problem is not None:
            self.fails(f"the process stopped by itself: {life.problem}")
        budget, receiver = service._budget, service._receiver
        for name, left in (
            ("bytes in flight", budget.used),
            ("waiting connections", budget.paused),
            ("admitted clients", receiver.admitted),
            ("connections", len(receiver.connections)),
            ("frames", sum(pump.waiting() for pump in service._publisher._pumps)),
        ):
            if left and in_time:
                self.fails(f"after the end there are {left} {name}")
        totals: dict[str, float] = defaultdict(float)
        for family in service._metrics.registry.collect():
            if family.type == "counter" and family.name.startswith("headrace_"):
                for sample in family.samples:
                    totals[sample.name] += sample.value

        def total(name: str) -> float:
            return totals[f"headrace_{name}_total"]

        for name, said, true in (
            ("connections", total("connections_opened"), total("connections_closed")),
            ("bytes", total("received_bytes"), None if self._world.scenario.secured else life.received()),
        ):
            if true is not None and said != true:
                self.fails(f"metrics count {said} {name}, and there were {true}")
        if self._world.scenario.undisturbed and (abandoned := total("frames_abandoned")):
            self.fails(f"{abandoned:.0f} frames were abandoned, and nothing was in their way")
        said = total("events_stored")
        if said > life.confirmed or (said < life.confirmed_before and in_time and life.producers == 1):
            self.fails(f"metrics count {said} stored events, and Kafka confirmed {life.confirmed}")
        if (said := total("events_quarantined")) > life.quarantined:
            self.fails(f"metrics count {said} events in quarantine, and Kafka confirmed {life.quarantined}")
        said, heard = total("events_acknowledged"), sum(self._heard[end.address] for end in life.ends)
        if said < heard:
            self.fails(f"metrics count {said} acknowledged events, and clients have heard of {heard}")
        if self._world.spoken.messages and (said := total("logjam_answers")) < heard:
            self.fails(f"metrics count {said} answers, and clients have heard {heard}")
