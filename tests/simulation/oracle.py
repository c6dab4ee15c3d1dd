"""What must be true of a run, all of it here. Each sentence that a run breaks is a failure."""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from math import inf
from typing import TYPE_CHECKING, Any, Final

import orjson
from headrace_common.publishing.in_flight import NO_DEADLINE
from headrace_common.record.contract import DETERMINISTIC, REPUBLISHED, Reason
from headrace_common.record.encoding import decode

from tests.simulation.kafka import CURSED, Stored

if TYPE_CHECKING:
    from tests.simulation.clients import Client, Sent
    from tests.simulation.world import Life, World


Event = tuple[str, str, int]
"""A client, and the `mark` and `n` of what it has sent. Equal events of a client are one here, which was sent several times."""

BROKEN: Final = -1
"""In place of `n`: what cannot be understood of the frames of a mark."""

LATE = 2.5
"""Seconds by which a deadline may be passed: a look each second, and then everything else in the turn."""


def source(record: Stored) -> str:
    """The address or the endpoint that a record came from."""
    return record.headers["ce_source"].decode().rpartition("/")[2]


class Oracle:
    """Watches the log and the acknowledgements. `failures`: what was broken, in words."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.failures: list[str] = []
        self._meant: dict[Event, dict[str, Any]] = {}
        self._frames: dict[str, dict[str, list[Sent]]] = defaultdict(dict)  # by client and mark
        self._sent: Counter[Event] = Counter()
        self._promised: Counter[Event] = Counter()  # what was acknowledged of it
        self._copies: dict[Event, dict[tuple[bytes, str], int]] = defaultdict(dict)
        """By id and connection, the position in the log of the first, of events or of quarantine."""
        self._owners: dict[bytes, Event] = {}  # of ids
        # Of each connection, by its address:
        self._last: dict[tuple[str, bytes], tuple[int, int]] = {}  # the application too, where messages have one
        self._partition: dict[tuple[str, bytes], int] = {}
        self._unmarked: Counter[tuple[str, Event | bytes]] = Counter()  # events, and ids
        self._newest: dict[tuple[str, bytes], int] = defaultdict(int)  # producer whose records a stream has
        self._heard: dict[str, int] = defaultdict(int)  # events that went nowhere but to the topic of events
        self._pieces: dict[tuple[bytes, bytes, str], dict[int, bytes]] = defaultdict(dict)
        """Of what quarantine has in several records, by id, how many, and connection: those that are there, by number."""
        self.acknowledgements = 0

    def fails(self, problem: str) -> None:
        if len(self.failures) < 20:
            self.failures.append(problem)
            self._world.tell(f"FAILURE {problem}")

    # Clients

    def will_send(self, client: Client, frame: Sent, values: list[dict[str, Any]]) -> None:
        """A client has made a frame."""
        self._frames[client.name].setdefault(frame.mark, []).append(frame)
        self._sent.update(frame.events)
        for value in values:
            self._meant[client.name, frame.mark, value["n"]] = value

    def acknowledged(self, client: Client, frame: Sent, version: int, order: list[Sent]) -> None:
        """It hears that all of a frame is stored. `version`: the length of the log when the receiver said so. `order`: what it
        has sent on this connection.
        """
        self.acknowledgements += 1
        name = f"frame {frame.mark}"
        self._world.tell(f"{client.name} hears that {name} is stored")
        if not frame.acknowledged and not frame.faulty and not frame.cursed:
            self._heard[client.connections[-1].address] += len(frame.sequence)
        self._covered(frame, 0 if frame.acknowledged else len(frame.sequence), version, order)

    def partly_acknowledged(self, client: Client, frame: Sent, count: int, version: int, order: list[Sent]) -> None:
        """It hears that the first `count` events of a frame are stored, and does not send these again; 0: it is to wait."""
        self._world.tell(f"{client.name} hears that {count} of frame {frame.mark} are stored")
        if frame.acknowledged:
            self.fails(f"frame {frame.mark} is acknowledged in part after it was as a whole")
        self._covered(frame, count, version, order)

    def _covered(self, frame: Sent, count: int, version: int, order: list[Sent]) -> None:
        """The first `count` events of a frame are acknowledged."""
        name = f"frame {frame.mark}"
        if frame not in order:
            self.fails(f"{name} is acknowledged on a connection on which it was not sent")
            return
        if not all(sent.acknowledged for sent in order[: order.index(frame)]):
            self.fails(f"{name} is acknowledged before one that was sent before it")
        self._promised.update(frame.sequence[frame.covered : count])
        frame.covered = max(frame.covered, count)
        for event in {*frame.sequence[:count]}:
            if (there := self._there(event, version)) < (promised := self._promised[event]):
                self.fails(f"{name} is acknowledged, and {event} is not stored: {there} of {promised}")

    def closed(self, client: Client, address: str, version: int, order: list[Sent]) -> None:
        """The receiver has ended its side of a connection, without a reset. `version`: the length of the log then."""
        if not self._world.scenario.undisturbed or self._world.spoken.messages:
            return  # it may have given a frame up
        events: Counter[Event] = Counter()
        for frame in order:
            events.update(frame.events)
            if frame.faulty or frame.cursed or not self.keeps(events, version, address):
                return
            if not frame.acknowledged:
                self.fails(f"{client.name} is told the end, and not that {frame.mark} is stored")

    def keeps(self, events: Counter[Event], version: int | None = None, address: str = "") -> bool:
        """Whether all of them are stored, or in quarantine: before the log had this length, and of this connection."""
        return all(self._there(event, version, address) >= count for event, count in events.items())

    def _there(self, event: Event, version: int | None, address: str = "") -> int:
        """How often it is there, once copies of one id have become one."""
        copies = self._copies[event].items()
        if version is None:
            version = len(self._world.broker.log)
        return len({name for (name, sender), at in copies if at < version and address in ("", sender)})

    # Kafka

    def emptied(self) -> None:
        """The topics are deleted: what is stored again, and was there, is there once."""
        self._unmarked.clear()
        self._last.clear()

    def stored(self, record: Stored) -> None:
        """Kafka has stored a record; it is the last of the log."""
        at = len(self._world.broker.log) - 1
        quarantined = record.topic.endswith("quarantine")
        assert record.value is not None
        address = source(record)
        client = self._world.network.addresses.get(address)
        if client is None:
            self.fails(f"a record's source is {record.headers['ce_source']!r}, which never connected")
        elif not client.honest:
            return
        elif quarantined:
            self._quarantined(record, at, client, address)
        else:
            self._event(record, at, client, address)

    def _quarantined(self, record: Stored, at: int, client: Client, address: str) -> None:
        name = (address, b"%b %b" % (record.headers["id"], record.headers["part"]))
        self._unmarked[name] += not record.headers["attributes"].endswith(REPUBLISHED)
        if self._unmarked[name] > 1 and not self._world.spoken.messages:
            self.fails(f"{name} is in quarantine more often than it was sent, and none of the copies is marked")
        if (value := self._whole(record, address)) is None:
            return
        reason = record.headers["reason"].decode()
        if reason == Reason.REFUSED:
            value, _ = decode(value)
            event = self._which(value, client)
            if event is not None:
                self._copy(event, record.headers["id"], address, at)
                if CURSED not in value:
                    self.fails(f"{event} is in quarantine, and Kafka has not refused it")
            return
        for mark, frames in self._frames[client.name].items():
            if mark.encode() in value:
                if reason == self._world.spoken.dialect.fault:
                    if not self._world.spoken.messages and value not in [frame.broken for frame in frames]:
                        self.fails(f"an event of {mark} is in quarantine otherwise than it was sent")
                    self._copy((client.name, mark, BROKEN), record.headers["id"], address, at)
                if not any(frame.faulty for frame in frames):
                    self.fails(f"{mark} is sound and went to quarantine: {record.headers['reason']!r}")
                return
        self.fails(f"a record of {client.name} in quarantine that it never sent")

    def _whole(self, record: Stored, address: str) -> bytes | None:
        """The content of a reject; None until all of its pieces are there."""
        headers = record.headers
        number, _, count = headers["part"].partition(b"/")
        pieces = self._pieces[headers["id"], count, address]
        pieces[int(number)] = record.value or b""
        if len(pieces) < int(count):
            return None
        value = b"".join(pieces[each] for each in sorted(pieces))
        if hashlib.sha256(value).hexdigest().encode() != headers["sha256"]:
            self.fails(f"{len(pieces)} pieces in quarantine are not what their digest says")
        return value

    def _event(self, record: Stored, at: int, client: Client, address: str) -> None:
        assert record.value is not None
        event = self._which(record.value, client)
        if event is None:
            return
        if CURSED in record.value:
            self.fails(f"{event} is stored, and Kafka refuses it")
        name = record.headers["ce_id"]
        if self._world.spoken.messages and (b'"request_id"' in record.value) != name.startswith(DETERMINISTIC):
            self.fails(f"{event} has the id {name!r}")
        self._copy(event, name, address, at)
        self._in_order(record, event, address)

    def _copy(self, event: Event, name: bytes, address: str, at: int) -> None:
        """It is there, with this id: the lake keeps one of each."""
        copies = self._copies[event]
        copies.setdefault((name, address), at)
        names = {each for each, _ in copies if each.startswith(DETERMINISTIC)}
        if len(names) > self._sent[event]:
            self.fails(f"{event} has {len(names)} ids, and was sent as {self._sent[event]}")
        if (owner := self._owners.setdefault(name, event)) != event:
            self.fails(f"{event} has the id of {owner}")

    def _which(self, data: bytes, client: Client) -> Event | None:
        """Which event this is. None, and a failure, if the client has not sent just this."""
        try:
            value = self._world.spoken.dialect.value(orjson.loads(data))
            event = (client.name, value["mark"], value["n"])
        except (ValueError, KeyError, TypeError):
            self.fails(f"{client.name} never sent {data[:80]!r}")
            return None
        if self._meant.get(event) != value:
            self.fails(f"{event} is stored otherwise than {client.name} sent it")
            return None
        return event

    def _in_order(self, record: Stored, event: Event, address: str) -> None:
        """Kafka may store what a lost producer sent behind what its successor sends. Which of equal events it is, nobody knows:
        the next that may be.
        """
        stream = address, record.headers["ce_subject"] if self._world.spoken.messages else b""
        kinds = {fault.kind for fault in self._world.scenario.faults}
        growing = self._world.spoken.messages and "partitions" in kinds
        if self._partition.setdefault(stream, record.partition) != record.partition and not growing:
            self.fails(f"the connection of {event} uses two partitions")
        again = record.headers.get("ce_attributes", b"").endswith(REPUBLISHED)
        if not again:
            events, name = (address, event), (address, record.headers["ce_id"])
            self._unmarked.update((events, name))
            if self._unmarked[events] > self._sent[event] or self._unmarked[name] > 1:
                self.fails(f"{event} is stored more often than it was sent, and none of the copies is marked")
        self._newest[stream] = max(record.producer, self._newest[stream])
        late = again or record.producer < self._newest[stream]
        client, mark, number = event
        places = [(frame.number, number) for frame in self._frames[client][mark]]
        place = min((each for each in places if each >= self._last.get(stream, (0, 0))), default=None)
        if place is not None and (not late or len(places) == 1):
            self._last[stream] = place
        elif place is None and not late:
            self.fails(f"{event} is stored behind what the connection sent after it")

    # Meanwhile

    def looks(self, life: Life) -> None:
        """At any time: no frame waits beyond its deadline, and no budget is exceeded."""
        settings = self._world.settings
        publisher = getattr(life.service, "_publisher", None)
        if publisher is None or all(task.done() for task in publisher._running):
            return  # its pumps have not begun, or have ended behind the connections: what was not stored waits no more
        waiting = [frame for pump in publisher._pumps for frame in pump._pending]
        expire = [each.submitted for each in waiting if self._world.all_expire or each.deadline < NO_DEADLINE]
        waits = self._world.loop.now - min(expire, default=inf)
        if waits > settings.kafka.ack_deadline + LATE:
            self.fails(f"a frame waits for {waits:.1f} s, with a deadline of {settings.kafka.ack_deadline:g} s")
        budget, limits = life.service._budget, settings.limits
        readers = len(life.service._receiver.connections)
        half = limits.process_budget // 2
        most = half + limits.frame_bytes + readers * 2 * self._world.largest_piece
        if (held := budget.partial_bytes + budget.pending) > most:
            self.fails(f"{held} bytes in flight of {readers} connections, the budget allows {most}")
        if not 0 <= (grown := life.service._growth.used) <= half:
            self.fails(f"frames have grown by {grown} bytes, the budget allows {half}")
        if budget.pending < 0 or budget.partial_bytes < 0:
            self.fails(f"the budget counts {budget.pending} and {budget.partial_bytes} bytes")

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
            ("bytes in flight", budget.used + service._growth.used),
            ("waiting connections", budget.paused),
            ("places", len(receiver.places)),
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

        if (opened := total("connections_opened")) != (closed := total("connections_closed")):
            self.fails(f"metrics count {opened} connections, of which {closed} are closed")
        if self._world.scenario.undisturbed and (abandoned := total("frames_abandoned")):
            self.fails(f"{abandoned:.0f} frames were abandoned, and nothing was in their way")
        said = total("events_stored")
        if said > life.confirmed or (said < life.confirmed_before and in_time and not life.troubled):
            self.fails(f"metrics count {said} stored events, and Kafka confirmed {life.confirmed}")
        if (said := total("events_quarantined")) > life.quarantined:
            self.fails(f"metrics count {said} events in quarantine, and Kafka confirmed {life.quarantined}")
        said, heard = total("events_acknowledgeable"), sum(self._heard[end.address] for end in life.ends)
        if said < heard and self._world.spoken.dialect.stored_again:
            self.fails(f"metrics count {said} events to acknowledge, and clients have heard of {heard}")
