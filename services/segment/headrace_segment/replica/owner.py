"""Owns all partitions of the segments topic, or stands by.

There is no agreement between processes but the log. Who starts claims the ownership, and the former owner stands by. Who stands
by reads partition 0, and claims when its owner has resigned there, or has given no sign of life for `SILENCE` seconds. All use
one producer id, so that Kafka refuses an epoch that is lower than the highest claim; the epoch that is claimed in partition 0 is
that of all partitions. Kafka forgets a producer that has not written to a partition for `producer.id.expiration.ms` (a day), and
would take its old epochs again: so an owner writes to each partition within `REPEAT`. When the epochs of a producer id are used
up, the last one, in which nothing is appended, hands over to a new id (`Fold`).
"""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from typing import Any, Final

from aiokafka.errors import KafkaError
from headrace_common.kafka.client import explain
from headrace_common.kafka.producer import Producer
from headrace_common.operations.errors import DeliveryError
from headrace_common.operations.log import Log
from headrace_common.operations.settings import KafkaSettings

from headrace_segment.replica.partition import FencedError, Partition, UnreadableError
from headrace_segment.store.records import LAST_EPOCH, RESIGNED, Claim, LogError

SIGN: Final = 3.0
"""Seconds between two signs of life in partition 0."""
SILENCE: Final = 10.0
"""Seconds without a sign of life after which who stands by claims."""
REPEAT: Final = 3600.0
"""Seconds after which a claim is repeated in the other partitions."""
LOOK: Final = 1.0
RETRY: Final = 1.0
RESIGN: Final = 1.0
"""Seconds that a process that ends waits for its resignation to be stored."""
STANDS_BY: Final = "another process owns the segments"


class Owner:
    """`ended` is called when this process does not own the segments any more, and conversations with it have no use."""

    def __init__(
        self,
        partitions: Sequence[Partition],
        settings: KafkaSettings,
        throttled: Callable[[float], None],
        ended: Callable[[], None],
        log: Log,
    ) -> None:
        self.problem: str | None = "the log is not read yet"
        """Why this process does not own the segments; None if it does, or is about to."""
        self._partitions = partitions
        self._settings = settings
        self._throttled = throttled
        self._ended = ended
        self._log = log
        self._nonce = uuid.uuid4().bytes
        self._clock = asyncio.get_running_loop().time
        self._claim: Claim | None = None
        self._starts = True

    async def run(self) -> None:
        """Claims, owns and stands by until it is cancelled."""
        while True:
            try:
                await self._stand_by()
                await self._own()
            except LogError as error:
                self._stopped(f"the log cannot be read: {error}")
                await asyncio.Event().wait()
            except FencedError:
                self._starts = False
                self._stopped(STANDS_BY)
            except UnreadableError as error:
                self._stopped(str(error))
            except DeliveryError as error:
                self._stopped(f"Kafka: {error}")
            except (KafkaError, OSError) as error:
                self._stopped(f"Kafka: {explain(error)}")
            await asyncio.sleep(RETRY)

    def _stopped(self, problem: str) -> None:
        if problem != self.problem:
            self._log.warning("segments not served", problem=problem)
        self.problem = problem

    async def _stand_by(self) -> None:
        """Returns when this process should claim."""
        first = self._partitions[0]
        await first.read()
        heard, known = self._clock(), first.fold.next_offset
        while not self._starts and (claim := first.fold.claim) is not None:
            if claim.nonce in (self._nonce, RESIGNED) or self._clock() - heard >= SILENCE:
                break
            self.problem = STANDS_BY
            await asyncio.sleep(LOOK)
            await first.read()
            if first.fold.next_offset != known:
                heard, known = self._clock(), first.fold.next_offset

    async def _own(self) -> None:
        """Claims all partitions, and serves them until that fails."""
        producer = Producer(self._settings, self._throttled)
        await producer.open((self._settings.segments_topic,))
        try:
            first, last = self._partitions[0], self._partitions[0].fold.claim
            if last is None or last.epoch >= LAST_EPOCH - 1:
                producer_id, _ = await producer.identify()
                claim = Claim(producer_id, 0, self._nonce)
            else:
                claim = replace(last, epoch=last.epoch + 1, nonce=self._nonce)
            await first.claim(claim, producer)
            self._starts = False
            self._log.info("segments are owned", epoch=claim.epoch)
            self.problem, self._claim = None, claim
            await _all(
                first.own(producer),
                *(self._serve(each, claim, producer) for each in self._partitions[1:]),
                self._give_signs(claim),
            )
        finally:
            self._claim = None
            for each in self._partitions:
                each.lost()
            self._ended()
            await producer.close()

    @staticmethod
    async def _serve(partition: Partition, claim: Claim, producer: Producer) -> None:
        await partition.claim(claim, producer)
        await partition.own(producer)

    async def _give_signs(self, claim: Claim) -> None:
        repeated = self._clock()
        while True:
            await asyncio.sleep(SIGN)
            due = [self._partitions[0]]
            if self._clock() - repeated >= REPEAT:
                repeated, due = self._clock(), [*self._partitions]
            for each in due if self._claim else ():  # none once it has resigned
                if each.live.is_set() and not each.appending:
                    each.put("", claim)

    async def resign(self) -> None:
        """Lets another process claim at once. Waits at most `RESIGN` seconds."""
        first, claim, self._claim = self._partitions[0], self._claim, None
        if claim is None or not first.live.is_set():
            return
        first.put("", replace(claim, nonce=RESIGNED))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(RESIGN):
                await first.idle.wait()


async def _all(*work: Coroutine[Any, Any, None]) -> None:
    """Runs all until one fails, and raises its error."""
    tasks = [asyncio.create_task(each) for each in work]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
        for each in done:
            each.result()
    finally:
        for each in tasks:
            each.cancel()
        await asyncio.wait(tasks)
