# ruff: noqa: E501
"""Of segments and Logjam."""

from __future__ import annotations

from typing import Final

from tests.simulation.mutants.mutant import Mutant

_APPENDING: Final = "headrace_segment.appending"
_BLOCKS: Final = "headrace_segment.events"
_CHECKPOINT: Final = "headrace_segment.store.checkpoint"
_CONSUMER: Final = "headrace_logjam.devices.consumer"
_CONVERSATION: Final = "headrace_segment.session.conversation"
_EVENTS: Final = "headrace_logjam.events"
_FOLD: Final = "headrace_segment.store.fold"
_GAPS: Final = "headrace_logjam.devices.gaps"
_OWNER: Final = "headrace_segment.replica.owner"
_PARTITION: Final = "headrace_segment.replica.partition"
_PEERS: Final = "headrace_logjam.peers"
_PRODUCERS: Final = "headrace_logjam.session"
_READERS: Final = "headrace_segment.replica.readers"
_READING: Final = "headrace_segment.store.reading"
_READS: Final = "headrace_logjam.reading"
_RECENT: Final = "headrace_segment.store.recent"
_SUBSCRIPTION: Final = "headrace_logjam.devices.subscription"

SERVICES: Final = (
    Mutant("a block of a session that has ended counts", _APPENDING, "if session is None or session.caller is not caller:", "if session is None:", "segment"),
    Mutant("a block is acknowledged before it is stored", _APPENDING, "                asked.record = found\n", "                asked.record = found\n                if isinstance(asked.question, AppendBlock):\n                    asked.answer(self._appended(asked.question))\n", "segment"),
    Mutant("a producer is answered when its message arrives", _PRODUCERS, "        self._questions.setdefault(route, deque()).append(question)\n        return question", "        self._questions.setdefault(route, deque()).append(question)\n        question.answer = ACCEPTED\n        self._due.append(route)\n        return question", "producers"),
    Mutant("a message that is no event is accepted", _PRODUCERS, "REFUSED if refused else ACCEPTED", "ACCEPTED", "producers"),
    Mutant("what was sent behind a late message is answered", _PRODUCERS, "for other in self._questions.pop(question.route, ()):", "for other in [self._questions[question.route].popleft()]:", "producers"),
    Mutant("the last message is answered first", _PRODUCERS, "(answer := questions[0].answer) is not None:\n                question = questions.popleft()", "(answer := questions[-1].answer) is not None:\n                question = questions.pop()", "producers"),
    Mutant("what nobody waits for has a deadline", _PRODUCERS, "KeepUntil.DEADLINE if gathered.asked else KeepUntil.STORED", "KeepUntil.DEADLINE", "producers"),
    Mutant("who holds too much stays", _PEERS, "        if held <= most and (", "        if True or (", "producers"),
    Mutant("equal events of a writer share an id", _BLOCKS, "id_behind(begin, named, data)", "id_behind(begin, b\"\", data)", "segment"),
    Mutant("a restart of a device is not seen", _GAPS, "        restarted = behind and (", "        restarted = False and (", "logjam"),
    Mutant("a restart while two connections may have ended is not seen", _GAPS, "(not self._sure or device in", "(device in", "logjam"),
    Mutant("a device that goes on has restarted", _GAPS, "        restarted = behind and (", "        restarted = (behind or device in self._may_restart) and (", "logjam"),
    Mutant("equal messages of a device share an id", _SUBSCRIPTION, "deterministic_id(PROTOCOL, *message.frames, *(", "deterministic_id(PROTOCOL, *message.frames[:3], *(", "logjam"),
    Mutant("devices without a number share ids", _SUBSCRIPTION, "numbered = message.meta is None or message.meta.device", "numbered = True", "logjam"),
    Mutant("a change is answered before it is stored", _APPENDING, "                asked.record = found\n", "                asked.record = found\n                if isinstance(asked.question, ChangeSegment):\n                    asked.answer(Changed())\n", "segment"),
    Mutant("a level is told that no claim confirms", _APPENDING, "        if isinstance(question, OpenSession):\n            return self.fold.claim\n", "        if isinstance(question, OpenSession):\n            return self._opened(question, asked.caller)\n", "segment"),
    Mutant("a refused block is acknowledged", _APPENDING, "            return Refused(Refusal.SESSION)", "            return self._appended(block)", "segment"),
    Mutant("a block of a sealed segment is acknowledged", _APPENDING, "            return Refused(Refusal.SEALED)", "            return self._appended(block)", "segment"),
    Mutant("what was in doubt counts as done", _APPENDING, "                each.answer(OutcomeUnknown())", "                each.answer(Changed() if isinstance(each.question, ChangeSegment) else OutcomeUnknown())", "segment"),
    Mutant("a sealed segment is appended to", _APPENDING, "        if segment.sealed:\n            return Refused(Refusal.SEALED)\n", "", "segment"),
    Mutant("a seal is forgotten", _FOLD, "            segment.sealed = True\n", "            pass\n", "segment"),
    Mutant("a truncation is forgotten", _FOLD, "            segment.truncate(record.offset)\n", "            pass\n", "segment"),
    Mutant("a segment is made twice", _APPENDING, "            if segment is not None:\n                return Refused(Refusal.EXISTS)", "            if False:\n                return Refused(Refusal.EXISTS)", "segment"),
    Mutant("a truncation beyond the end is done", _APPENDING, "if not 0 <= change.offset <= segment.length:", "if not 0 <= change.offset:", "segment"),
    Mutant("a truncation goes back", _APPENDING, "return Changed() if change.offset <= segment.start else change", "return change", "segment"),
    Mutant("a writer that comes back begins again", _APPENDING, "Opened(writer.level if writer else question.numbering.first)", "Opened(question.numbering.first)", "segment"),
    Mutant("a segment's length leaves a block out", _FOLD, "        segment.length += len(record.data)\n", "        segment.length += len(record.data) - (len(record.data) % 3 == 0)\n", "segment"),
    Mutant("a checkpoint forgets seals", _CHECKPOINT, "segment.length, segment.sealed, segment.modified)", "segment.length, False, segment.modified)", "segment"),
    Mutant("a checkpoint forgets truncations", _CHECKPOINT, "pack(_SEGMENT, name, segment.start,", "pack(_SEGMENT, name, 0,", "segment"),
    Mutant("a checkpoint forgets writers", _CHECKPOINT, "[*segment.writers.items()]:", "[*segment.writers.items()][:1]:", "segment"),
    Mutant("a checkpoint forgets where blocks are", _CHECKPOINT, "range(0, len(index.offsets), LONGS)", "range(0, 0, LONGS)", "segment"),
    Mutant("a checkpoint is trusted before it is whole", _PARTITION, "            await self._store_alone(producer, part, self.start)", "            await self._store_alone(producer, part, begin)", "segment"),
    Mutant("a read takes other segments' blocks", _READING, "        if key != self.key:", "        if False:", "segment"),
    Mutant("a read begins at its block's beginning", _READING, "record.data[max(self._offset - self._at, 0) :", "record.data[0 :", "segment"),
    Mutant("a read from memory begins at its block's beginning", _RECENT, "data[max(offset - start, 0) : end - start]", "data[0 : end - start]", "segment"),
    Mutant("a block is in memory backwards", _PARTITION, "offset, record.data)", "offset, record.data[::-1])", "segment"),
    Mutant("a segment has ended that goes on", _READERS, "BytesRead(b\"\", at_tail=True, end_of_segment=segment.sealed)", "BytesRead(b\"\", at_tail=True, end_of_segment=True)", "segment"),
    Mutant("a block does not wait for its events", _CONVERSATION, "        self._frames[frame.ticket] = request, run\n", "        self._frames[frame.ticket] = request, run\n        request.question = AppendBlock(next(self._tickets), run.segment, run.writer, run.before, run.after, run.data)\n", "segment"),
    Mutant("an acknowledgement has the level that is sent", _CONVERSATION, "writer=writer.id, level=level, previous=previous", "writer=writer.id, level=writer.sent, previous=previous", "segment"),
    Mutant("a claim is not read back", _PARTITION, "        await self.read()\n        if self.fold.claim != claim:\n            raise FencedError\n", "        self.fold.apply(self.fold.next_offset, \"\", claim, 0)\n", "segment"),
    Mutant("who has lost a race for a claim owns", _PARTITION, "        if self.fold.claim != claim:\n            raise FencedError\n", "", "segment"),
    Mutant("an owner claims the epoch that is there", _OWNER, "epoch=last.epoch + 1", "epoch=last.epoch", "segment"),
    Mutant("a block lacks its last event on the topic", _BLOCKS, "        if made:\n            yield made", "        if made:\n            yield made if len(made) < 3 else made[:-1]", "segment"),
    Mutant("an event has its block's last level", _BLOCKS, "            about = about_writer % level\n", "            about = about_writer % run.after\n", "segment"),
    Mutant("a message is stored with the next one's number", _SUBSCRIPTION, "meta.device, meta.sequence, meta.created_ms, start", "meta.device, meta.sequence + 1, meta.created_ms, start", "logjam"),
    Mutant("a heartbeat is stored as an event of its topic", _SUBSCRIPTION, "        if app_env == HEARTBEAT:\n", "        if app_env == HEARTBEAT * 2:\n", "logjam"),
    Mutant("a rejected message has no attributes", _SUBSCRIPTION, "about = b\"{}\" if message.meta is None else self._about(message, message.meta)", "about = self._about(message, (message.meta or Meta(0, 0, 0, 0))._replace(sequence=0))", "logjam"),
    Mutant("a broken body is kept without its frames", _SUBSCRIPTION, "return envelope.reject(reason, detail, joined_frames(message.frames), self._name(message), about)", "return envelope.reject(reason, detail, joined_frames(message.frames[:3]), self._name(message), about)", "logjam"),
    Mutant("a marker names another device", _SUBSCRIPTION, "            GapField.DEVICE: gap.device,\n", "            GapField.DEVICE: gap.device + 1,\n", "logjam"),
    Mutant("messages of one app-env are handed out backwards", _CONSUMER, "                gathered.items,\n", "                gathered.items[::-1],\n", "logjam"),
    Mutant("messages are stored by no key", _CONSUMER, "b\"%b/%b\" % (self._endpoint, key)", "b\"%b/%d\" % (self._endpoint, ticket)", "logjam"),
    Mutant("a message that was read is read once more", _READS, "            messages.append(message)\n", "            messages.append(message)\n            if not self._named and len(messages) == 7:\n                messages.append(message)\n", "logjam"),
    Mutant("the last message of a turn is lost", _READS, "            messages.append(message)\n            size += message.size\n", "            size += message.size\n            if size < 8_000 or self._named:\n                messages.append(message)\n", "logjam"),
    Mutant("a part of a frame is answered as all", _PRODUCERS, "        for index in range(gathered.stored, stored):", "        for index in range(gathered.stored, len(frame.items)):", "producers"),
    Mutant("an answer names another message", _PRODUCERS, "                return Reply(route, (question.name, answer, *more))", "                return Reply(route, ((questions[0] if questions else question).name, answer, *more))", "producers"),
    Mutant("an answer goes to another client", _PRODUCERS, "                return Reply(route, (question.name, answer, *more))", "                return Reply(next(iter(self._questions)), (question.name, answer, *more))", "producers"),
    Mutant("a refused message's neighbour is refused", _PRODUCERS, "REFUSED if refused else ACCEPTED", "REFUSED if index + 1 in frame.refused else ACCEPTED", "producers"),
    Mutant("all of a frame with a refused message is refused", _PRODUCERS, "REFUSED if refused else ACCEPTED", "REFUSED if frame.refused else ACCEPTED", "producers"),
    Mutant("what was given up is accepted", _PRODUCERS, "        self._leave_unanswered(self._pending.pop(ticket))", "        self.stored(ticket, 0, True)", "producers"),
    Mutant("a late message is accepted", _PRODUCERS, "            self._leave_unanswered(self._waiting.popleft())", "            late = self._waiting.popleft()\n            for question in late.questions[late.stored :]:\n                question.answer = ACCEPTED\n                self._due.append(question.route)", "producers"),
    Mutant("a turn hands out one application alone", _PRODUCERS, "        for gathered in (*self._full, *self._gathered.values()):", "        for gathered in (*self._full, *self._gathered.values())[:1]:", "producers"),
    Mutant("an answered message is stored last first", _PRODUCERS, "        gathered.messages.append(ProducerMessage(request, message.address))", "        gathered.messages.insert(0, ProducerMessage(request, message.address))", "producers"),
    Mutant("a message has the address of its frame's first", _PRODUCERS, "        gathered.messages.append(ProducerMessage(request, message.address))", "        gathered.messages.append(ProducerMessage(request, gathered.messages[0].address if gathered.messages else message.address))", "producers"),
    Mutant("messages have no order of their own", _PRODUCERS, "            ordering_key=b\"%b/%b\" % (ENDPOINT, gathered.key),", "            ordering_key=b\"%b/%d\" % (ENDPOINT, ticket),", "producers"),
    Mutant("a ping is answered as an event", _PRODUCERS, "        self._ask(route, PING).answer = PONG", "        self._ask(route, PING).answer = ACCEPTED", "producers"),
    Mutant("a broken message is stored as an event", _EVENTS, "            return self._reject(item, *found)", "            return self.envelope(address, app_env, topic).event(unique_id(), rfc3339_ms(received_ms), body, b\"{}\")", "producers"),
    Mutant("a message without an id has one of its content", _EVENTS, "if fields.named else unique_id()", "if raw else unique_id()", "producers"),
    Mutant("a message with an id has a unique one", _EVENTS, "name = deterministic_id(PROTOCOL, app_env, topic, raw) if fields.named", "name = unique_id() if fields.named", "producers"),
    Mutant("a message's id is that of its stream", _EVENTS, "deterministic_id(PROTOCOL, app_env, topic, raw)", "deterministic_id(PROTOCOL, app_env, topic)", "producers"),
    Mutant("a message that is not acknowledged is not kept", _PRODUCERS, "KeepUntil.DEADLINE if gathered.asked else KeepUntil.STORED", "KeepUntil.DEADLINE if gathered.asked else KeepUntil.REFUSAL", "producers"),
    Mutant("an envelope is another stream's", _EVENTS, "        key = sender, app_env, topic\n", "        key = next(iter(self._kept), (sender, app_env, topic))\n", "producers"),
)  # fmt: skip
