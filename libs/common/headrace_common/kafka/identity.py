"""Identities by which no cluster takes a batch of one producer for a batch of another.

A new cluster at the same address, and one whose data was restored from a copy, gives numbers of producers that are still there to
others. If all began with epoch 0, it would take a batch of one for a batch of the other that it has stored already, confirm it,
and store nothing (seen with Kafka 4.3). So each begins with an epoch of its own: Kafka then refuses a batch of the lower epoch,
and a batch of the higher one that does not begin at sequence 0. It takes any epoch of a producer that it does not know, and a
higher one of a producer that it knows, since clients raise theirs themselves (KIP-360). Sequences that begin anywhere would do
the same, but Kafka 4.5 refuses them in a partition that was never written (KAFKA-15591).
"""

from __future__ import annotations

from secrets import randbelow
from typing import Final

from aiokafka import AIOKafkaProducer
from aiokafka.structs import TopicPartition
from typing_extensions import override

EPOCHS: Final = 2**15 - 1
LARGEST: Final = 2**31 - 1
"""The largest sequence number. 0 follows it."""


class Sequences(dict[TopicPartition, int]):
    """The next sequence number of each partition. aiokafka's own become negative after the largest, which Kafka refuses."""

    def __missing__(self, where: TopicPartition) -> int:
        return 0

    @override
    def __setitem__(self, where: TopicPartition, number: int) -> None:
        super().__setitem__(where, number & LARGEST)


def take_own_epoch(producer: AIOKafkaProducer) -> None:
    """Makes `producer`, which is idempotent and has not started, begin with a random epoch. Two with the same number get the same
    one once in `EPOCHS` times.
    """
    manager = producer._txn_manager
    take = manager.set_pid_and_epoch
    manager.set_pid_and_epoch = lambda number, _: take(number, randbelow(EPOCHS))
    manager._sequence_numbers = Sequences()
