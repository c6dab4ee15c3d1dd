# ruff: noqa: E501
"""Of the library: what publishes, drives connections and keeps budgets."""

from __future__ import annotations

from typing import Final

from tests.simulation.mutants.mutant import Also, Mutant

_BATCH: Final = "headrace_common.publishing.batch"
_BUDGET: Final = "headrace_common.fairness.budget"
_DELIVERY: Final = "headrace_common.publishing.delivery"
_DRIVER: Final = "headrace_common.connection.driver"
_LEDGER: Final = "headrace_common.session.ledger"
_PRODUCER: Final = "headrace_common.kafka.producer"
_PUMP: Final = "headrace_common.publishing.pump"
_QUEUE: Final = "headrace_common.publishing.in_flight"
_RECORDS: Final = "headrace_common.kafka.record_batch"
_REJECTS: Final = "headrace_common.publishing.rejects"
_SCHEDULER: Final = "headrace_common.fairness.scheduler"
_SECURED: Final = "headrace_common.listening.secured"
_STATE: Final = "headrace_common.connection.receiver_state"
_TCP: Final = "headrace_common.connection.tcp"

_GOES_ON: Final = Also(
    _TCP,
    "        elif end is End.UNSETTLED:\n            self._drain()",
    "        elif end is End.UNSETTLED:\n            self._flush()",
)
"""The connection's own guard: with it, the session's is never asked."""

LIBRARY: Final = (
    Mutant("a failed batch counts as stored", _PUMP, "            except DeliveryError as failure:\n                return failure\n            self._metrics.events_stored", "            except DeliveryError:\n                refused = []\n            self._metrics.events_stored"),
    Mutant("rejects are not stored", _PUMP, "        if not cycle.rejects:\n            return None", "        if cycle.rejects:\n            cycle.rejects = []\n            await self._report(cycle)\n            return None\n        if not cycle.rejects:\n            return None"),
    Mutant("frames are reported before their rejects are stored", _PUMP, "if frame not in unsent]", "]"),
    Mutant("an abandoned frame is reported", _PUMP, "            if frame.abandoned:\n                continue\n            whole", "            whole"),
    Mutant("refused records are forgotten", _PUMP, "            for record, owner in refused:\n                cycle.rejects.append((owner, refusal(record)))\n", ""),
    Mutant("no deadline of a frame is watched", _PUMP, "            pending.watch(deadline)\n", "            pass\n"),
    Mutant("acknowledged events are counted by frames", _DRIVER, "            counter.inc(stored)", "            counter.inc(1)"),
    Mutant("an event in quarantine is counted twice", _REJECTS, "metrics.events_quarantined.labels(reject.reason.value).inc()", "metrics.events_quarantined.labels(reject.reason.value).inc(2)"),
    Mutant("a stored frame stays pending", _PUMP, "                del self._pending[frame]\n            frame.listener", "            frame.listener"),
    Mutant("the growth's reservation is kept", _PUMP, "        frame.finish()\n        self._growth.shrink(frame, 0)\n", "        frame.finish()\n"),
    Mutant("a whole frame keeps its reservation", _PUMP, "            if whole:\n                self._growth.shrink(frame, 0)\n", "            if whole:\n"),
    Mutant("another conversation hears a report", _PUMP, "            frame.listener.stored(", "            next(iter(self._pending), frame).listener.stored("),
    Mutant("a part of a frame counts as all", _PUMP, "frame.built, whole)", "frame.built, True)"),
    Mutant("the next frame of a connection is forgotten", _QUEUE, "                self.put(following)\n                return\n", "                return\n"),
    Mutant("a connection's frames lose their order", _QUEUE, "            behind.append(frame)", "            behind.appendleft(frame)"),
    Mutant("events that did not fit are dropped", _BATCH, "            del owner.made[:at]\n", "            owner.made.clear()\n"),
    Mutant("what is in doubt is not marked", _BATCH, "map(republished, self.records)", "self.records"),
    Mutant("refused records are not searched for", _DELIVERY, "            return await self._search(batch, policy, deadline)", "            return list(zip(batch.records, batch.owners, strict=True))"),
    Mutant("half of a batch is not sent", _DELIVERY, "            for half in batch.halves():\n                if", "            for half in [*batch.halves()][:1]:\n                if"),
    Mutant("what is in doubt is sent under a new identity unmarked", _DELIVERY, "                if error.in_doubt:\n", "                if False:\n"),
    Mutant("a suspect is not even kept", _DELIVERY, "            found.suspects.append(batch)\n", "            pass\n"),
    Mutant("a refused record of a search is forgotten", _DELIVERY, "        else:\n            found.refused += zip(batch.records, batch.owners, strict=True)\n", "        else:\n            pass\n"),
    Mutant("a refusal of all counts as stored", _DELIVERY, "                if error.policy not in SUSPECT:\n                    raise\n                policy", "                if error.policy not in SUSPECT:\n                    return []\n                policy"),
    Mutant("a batch that fails for good counts as stored", _DELIVERY, "                if error.policy is not DeliveryPolicy.RETRY or self._clock() >= deadline:\n                    raise\n", "                if error.policy is not DeliveryPolicy.RETRY or self._clock() >= deadline:\n                    return\n"),
    Mutant("what failed within a search counts as stored", _DELIVERY, "            if error.policy not in SUSPECT:\n                raise\n            return error.policy", "            if error.policy not in SUSPECT:\n                return None\n            return error.policy"),
    Mutant("the identity of a batch in doubt is used again", _PRODUCER, "                        if not (in_doubt or is_lost):\n", "                        if not is_lost:\n"),
    Mutant("a lost answer leaves nothing in doubt", _PRODUCER, "                    in_doubt |= bool(data) and not isinstance(error, NOT_STORED)\n", "                    in_doubt |= bool(data) and not isinstance(error, (*NOT_STORED, errors.RequestTimedOutError))\n"),
    Mutant("an error after which a batch may be stored leaves nothing in doubt", _PRODUCER, "                    in_doubt |= bool(data) and not isinstance(error, NOT_STORED)\n", "                    in_doubt |= bool(data) and not isinstance(error, errors.BrokerResponseError)\n"),
    Mutant("a stored batch takes no numbers", _PRODUCER, "(lane.sequence + batch.record_count()) & LARGEST", "lane.sequence"),
    Mutant("a batch that is sent again has new numbers", _PRODUCER, "                    data = data or batch.stamped(*identity, lane.sequence)\n", "                    lane.sequence += batch.record_count() * bool(data)\n                    data = batch.stamped(*identity, lane.sequence)\n"),
    Mutant("an answer is another partition's", _PRODUCER, "            code, place = said[each.where]\n", "            code, place = next(iter(said.values()))\n"),
    Mutant("an error counts as stored", _PRODUCER, "            if code and code != errors.DuplicateSequenceNumber.errno:\n", "            if False:\n"),
    Mutant("a request without an answer counts as stored", _PRODUCER, "                            each.place.set_exception(error)\n", "                            each.place.set_result(Place(-1, -1))\n"),
    Mutant("a stored frame is not released", _DRIVER, "            receiver.budget.release(self, size)\n", ""),
    Mutant("an abandoned frame is not released", _DRIVER, "        self._receiver.budget.release(self, self.under_way.pop(ticket)[0])", "        self.under_way.pop(ticket)"),
    Mutant("a connection that ends keeps its unfinished bytes", _BUDGET, "        self._digested(reader)\n        self.hold(reader, 0)", "        self._digested(reader)"),
    Mutant("a connection goes on after a frame was abandoned", _TCP, "        elif end is End.UNSETTLED:\n            self._drain()", "        elif end is End.UNSETTLED:\n            pass"),
    Mutant("bytes that wait are forgotten", _TCP, "        self.unseen += data[but:]\n", ""),
    Mutant("only one acknowledgement is written", _TCP, "                self._loop.call_soon(self._flush_again)", "                pass"),
    Mutant("a client that left stays counted", _STATE, "        self.admitted -= 1\n", ""),
    Mutant("a part of the ledger is acknowledged", _LEDGER, "            if not oldest.whole:\n                return None\n", ""),
    Mutant("the ledger loses its order", _LEDGER, "            self.entries.popitem(last=False)\n            return oldest", "            self.entries.popitem(last=True)\n            return oldest"),
    Mutant("an abandoned frame is not counted", _DRIVER, "        self._receiver.metrics.frames_abandoned.inc()\n        self._receiver.budget.release(self, self.under_way.pop(ticket)[0])", "        self._receiver.budget.release(self, 0 * self.under_way.pop(ticket)[0])"),
    Mutant("a parked frame is never continued", _PUMP, "        self._queue.enter(frame, rested=False)\n", ""),
    Mutant("who waits for the budget is never asked again", _BUDGET, "        if any(self._to_ask.values()) and not self._waking:", "        if False:"),
    Mutant("a pause in reading never ends", _TCP, "            self._transport.resume_reading()\n", ""),
    Mutant("a drain does not wait for frames", _TCP, "        if self._life.phase == SETTLING and not self._waits and not driver.outstanding:", "        if self._life.phase == SETTLING and not self._waits:"),
    Mutant("the end of input is not handed on", _TCP, "        elif self._life.phase <= LINGERING and not self.is_behind():\n            self._input_ends()\n        return", "        return"),
    Mutant("who has finished sending by TLS is cut off", _SECURED, "                if not connection.eof_received():\n                    self.close()", "                connection.eof_received()\n                self.close()"),
    Mutant("what nobody waits for is given up when Kafka refuses it", _PUMP, "keeps = error.policy is DeliveryPolicy.CLOCK or cycle.batch is not None", "keeps = False", "producers"),
    Mutant("small frames wait for long ones", _SCHEDULER, "                self.lane = _after(self.lane)\n                self._left", "                self.lane = Lane.LONG\n                self._left", "lumberjack"),
    Mutant("quarantine's refusal counts as stored", _PUMP, '            if refused:\n                return DeliveryError("Kafka refuses a quarantine record", DeliveryPolicy.REFUSED)\n', ""),
    Mutant("a failed batch of rejects counts as stored", _PUMP, "                cycle.rejects_in_doubt = True  # batches before this one are stored, and all of them are built again\n                return failure\n", "                refused = []\n"),
    Mutant("of all rejects the first is stored", _PUMP, "batches(cycle.rejects, empty", "batches(cycle.rejects[:1], empty"),
    Mutant("one reject is told for all of its frames", _PUMP, "        unsent = {owner for owner, _ in cycle.rejects}\n", "        unsent = {owner for owner, _ in cycle.rejects[:1]}\n"),
    Mutant("the number of stored parts is one too high", _PUMP, "frame.ticket, frame.built, whole)", "frame.ticket, frame.built + 1, whole)", "courier"),
    Mutant("the frame behind hears the report", _PUMP, "frame.listener.stored(frame.ticket, frame.built", "frame.listener.stored(frame.ticket + 1, frame.built"),
    Mutant("a frame that pauses inside a part counts as whole", _QUEUE, "                    if clock() >= until:\n                        return True\n", "                    if clock() >= until:\n                        break\n", "courier"),
    Mutant("a small frame that did not fit begins again", _PUMP, "if not (frame.exhausted or frame.make_all(self._limited)):", "if not frame.make_all(self._limited):"),
    Mutant("what does not fit of a small frame is dropped", _PUMP, "            if cycle.add_some(frame):\n                queue.take_small()", "            if cycle.add_some(frame) or cycle.full:\n                queue.take_small()"),
    Mutant("the first parts of a grown frame are lost", _PUMP, "                self._growth.shrink(frame, frame.grown)\n", "                self._growth.shrink(frame, frame.grown)\n                frame.made.clear()\n"),
    Mutant("refused events count as stored", _PUMP, "self._metrics.events_stored.inc(events - len(refused))", "self._metrics.events_stored.inc(events)"),
    Mutant("frames are abandoned in silence", _PUMP, "        frame.listener.abandoned(frame.ticket, error)\n", ""),
    Mutant("abandoned frames count as stored", _PUMP, "        frame.listener.abandoned(frame.ticket, error)\n", "        frame.listener.stored(frame.ticket, frame.built, True)\n"),
    Mutant("one refused batch abandons every frame as stored", _PUMP, "        if refused and keeps:\n", "        if refused and not keeps:\n            for frame in cycle.living():\n                frame.listener.stored(frame.ticket, frame.built, True)\n        if refused and keeps:\n"),
    Mutant("parts that did not fit count as built", _BATCH, "            owner.built += at\n", "            owner.built += len(owner.made)\n", "courier"),
    Mutant("the living are dropped with the abandoned", _BATCH, "strict=True) if not pair[1].abandoned)", "strict=True) if pair[1].abandoned)", "lumberjack"),
    Mutant("rejects of the living are dropped", _BATCH, "for owner, reject in self.rejects if not owner.abandoned]", "for owner, reject in self.rejects if owner.abandoned]", "courier"),
    Mutant("a record between two halves is lost", _BATCH, "(slice(middle), slice(middle, None))", "(slice(middle), slice(middle + 1, None))"),
    Mutant("a record is in both halves", _BATCH, "(slice(middle), slice(middle, None))", "(slice(middle + (len(self) > 2)), slice(middle, None))"),
    Mutant("a half has the owners of the other", _BATCH, "zip(records[span], self.owners[span], strict=True)", "zip(records[span], self.owners, strict=False)"),
    Mutant("a reject is forgotten when its frame is taken", _BATCH, "            self.rejects.append((owner, part))\n", ""),
    Mutant("a suspect is forgotten", _DELIVERY, "                found.refused += zip(suspect.records, suspect.owners, strict=True)\n", "                pass\n"),
    Mutant("what the first half refuses is forgotten", _DELIVERY, "            refused += await self.store(half", "            refused = await self.store(half"),
    Mutant("a record that is too large is forgotten", _DELIVERY, "            return list(zip(batch.records, batch.owners, strict=True))\n        refused", "            return []\n        refused"),
    Mutant("a reject that does not fit its batch is lost", _REJECTS, "                batch = new_batch()\n                batch.add(record, owner)\n", "                batch = new_batch()\n"),
    Mutant("the last piece of a reject is lost", _REJECTS, "max(1, -(-len(reject.raw) // size))", "max(1, len(reject.raw) // size)"),
    Mutant("a piece of a reject lacks its last byte", _REJECTS, "(number + 1) * size]", "(number + 1) * size - 1]"),
    Mutant("the last batch of rejects is not sent", _REJECTS, "            yield None\n    yield batch\n", "            yield None\n    yield new_batch()\n"),
    Mutant("refused events share an id", _REJECTS, '        headers["ce_id"].encode(),\n', '        headers["ce_type"].encode(),\n'),
    Mutant("a refused event is kept without its end", _REJECTS, '        "Kafka refused this record",\n        value,\n', '        "Kafka refused this record",\n        value[:-1],\n'),
    Mutant("a refused event is another's", _REJECTS, '        headers["ce_source"],\n', '        headers["ce_source"] + "9",\n'),
    Mutant("a frame that is deferred is dropped", _PUMP, "        elif not frame.waits:\n            queue.put(frame)\n", "        else:\n            queue.done(frame)\n"),
    Mutant("a part counts as whole for the ledger", _LEDGER, "entry.stored, entry.whole = stored, whole", "entry.stored, entry.whole = stored, whole or stored > 0"),
    Mutant("the ledger gives the newest frame", _LEDGER, "        for entry in self.entries.values():\n            return entry\n", "        for entry in reversed(self.entries.values()):\n            return entry\n", "courier"),
    Mutant("a session hears of a part more", _DRIVER, "            self.session.stored(ticket, stored, whole)\n", "            self.session.stored(ticket, stored + 1, whole)\n", "courier"),
    Mutant("a session hears that an abandoned frame is stored", _DRIVER, "self.guard(lambda: self.session.abandon(ticket))", "self.guard(lambda: self.session.stored(ticket, 0, True))", "forward", (_GOES_ON,)),
    Mutant("a session hears of any part that all is stored", _DRIVER, "            self.session.stored(ticket, stored, whole)\n", "            self.session.stored(ticket, stored, True)\n", "courier"),
    Mutant("a frame is published twice", _DRIVER, "            (self._pump if key is None else receiver.publisher.of(key)).publish(frame, self)\n", "            for _ in range(2):\n                (self._pump if key is None else receiver.publisher.of(key)).publish(frame, self)\n"),
    Mutant("a connection changes its partition", _DRIVER, "(self._pump if key is None", "(receiver.publisher.enter() if key is None"),
    Mutant("a frame is not published", _DRIVER, "        for frame in self.session.frames():\n            self.under_way", "        for frame in [*self.session.frames()][:1]:\n            self.under_way"),
    Mutant("a receiver that stops does not hear out who asks for nothing", _TCP, "        undecided = status.unacknowledgeable or status.undecided or new\n", "        undecided = False\n"),
    Mutant("the first byte is parsed twice", _TCP, "            self._keep(data, at_once)\n", "            self._keep(data, 0)\n"),
    Mutant("bytes that wait are parsed twice", _TCP, "        data = bytes(self.unseen)\n        self._clear()\n", "        data = bytes(self.unseen)\n"),
    Mutant("bytes are parsed before those that wait", _TCP, "if len(data) >= MUCH or self.is_behind() or not arrives(now):", "if len(data) >= MUCH or not arrives(now):"),
    Mutant("the answer of the next turn is dropped", _TCP, "        data = self._next or driver.session.outgoing()\n", "        data = driver.session.outgoing()\n"),
    Mutant("decrypted bytes are dropped with a full slice", _SECURED, 'found[0] if len(found) == 1 else b"".join(found)', "found[0]"),
    Mutant("a batch lacks its last record", _RECORDS, "            pieces += (before, event)\n            count += 1\n            at += 1\n", '            pieces += (before, event) if len(events) < 3 or at < len(events) - 1 else (before, b"\\0" * len(event))\n            count += 1\n            at += 1\n'),
    Mutant("unpacked records lose the last", _RECORDS, "        while at < len(plain):\n            size, at = read_varint(plain, at)\n            end = at + size\n            _, at = read_varint(plain, at + 1)", "        while at < len(plain) and len(found) < max(1, self._count - 1):\n            size, at = read_varint(plain, at)\n            end = at + size\n            _, at = read_varint(plain, at + 1)"),
    Mutant("a batch that has changed is sent as it was", _BATCH, "        self._builder = None\n\n\n@dataclass(eq=False", "\n\n@dataclass(eq=False"),
)  # fmt: skip
