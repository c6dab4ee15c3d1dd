"""Sequence numbers by which no cluster takes a batch of one producer for a batch of another.

A new cluster at the same address, and one whose data was restored from a copy, gives numbers of producers that are still there
to others. If all began their sequences at 0, it would take a batch of one for a batch of the other that it has stored already,
confirm it, and store nothing (seen with Kafka 4.3). So each begins anywhere: then one of the two is out of order, and its batch
fails.
"""

from __future__ import annotations

import secrets
from typing import Final

from aiokafka import AIOKafkaProducer
from aiokafka.structs import TopicPartition
from typing_extensions import override

LARGEST: Final = 2**31 - 1
"""Behind it comes 0."""


class Sequences(dict[TopicPartition, int]):
    """The next sequence number of each partition. aiokafka's own become negative behind the largest, which Kafka refuses."""

    def __missing__(self, where: TopicPartition) -> int:
        self[where] = secrets.randbelow(LARGEST + 1)
        return self[where]

    @override
    def __setitem__(self, where: TopicPartition, number: int) -> None:
        super().__setitem__(where, number & LARGEST)


def begin_anywhere(producer: AIOKafkaProducer) -> None:
    """Gives `producer`, which is idempotent and has not started, its sequence numbers."""
    producer._txn_manager._sequence_numbers = Sequences()
