"""Folds own records before they are read: where that is safe, an acknowledgement needs no fetch.

Kafka answers a batch of ours, once all in-sync replicas have it (acks=all), with the offset of its first record. If the fold
is at exactly that offset, it takes the batch's records at once, from memory. If it is below, others' records lie between: all
wait until they are read. If it is above, they have been read, unless the batch lies before an earlier one of
ours: then the log has lost records, and all of it is read again.

The fold's input remains what every reader of the log gets, record for record:

==================  ===========================================================================================================
its part            why it is the same
==================  ===========================================================================================================
offsets             a batch's records have successive offsets, and no other record lies between them
key and value       they are the bytes that were produced; they are decoded like records that are read
time                Kafka's answer tells `LogAppendTime`, one for the batch. Where the topic keeps the producer's own time
                    instead, all records of a batch have the same one, which is taken (a batch that Kafka knows already
                    is answered with its largest time, whatever the topic keeps: the same time again)
records below       the fold has taken all of them
durability          the answer comes when the offset lies below the high watermark, as for a reader: both have the same
                    guarantee, whatever broker leads afterwards
==================  ===========================================================================================================

Hence the rules that go by the log alone still hold. Sessions and refusals: another replica's `Open` that lies before our
block has a lower offset, so the fold is not at our batch, and waits for it; one after it ends the session for later
blocks. A block of a session that has ended is folded early like any other, and refused like by any other replica. Changes,
truncations by the retention, renewals and the forgetting of writers are records, too, and their times are the log's.

A producer that was given up, and a replica that was cut off, get no answer that counts: `LogProducer` hands an answer on only
if it came before its producer was closed, and it is true of the log even if the producer was given up. Their records are read
like others'. An answer without an offset (Kafka knows that it has stored the batch, but not where) is not handed on.

A large batch is folded in slices, each as if it were a batch: if the reader comes between, the fold is not at the next one.

A snapshot is taken of a fold that does not move: nothing is folded early meanwhile. A partition that is not live, or that
begins again from a snapshot, folds nothing early. A barrier read waits for the end that Kafka tells, as before: folding early
can only reach it sooner. Folded records that the reader brings later are passed over by their offset.
"""

from __future__ import annotations

from collections.abc import Sequence

from headrace_segment.store.fold import Fold
from headrace_segment.store.outcomes import Outcome

OwnRecord = tuple[bytes, bytes]
"""Key and value of a record that this replica has produced."""


def fold_early(fold: Fold, first: int, own: Sequence[OwnRecord], time_ms: int) -> list[Outcome] | None:
    """Folds a batch that Kafka has stored from offset `first` on. `time_ms`: the time that its records have in the log.

    None: the fold is at another offset and has not moved. Raises `LogError`, as `Fold.apply`.
    """
    if fold.next_offset != first:
        return None
    return [fold.apply(offset, key, value, time_ms) for offset, (key, value) in enumerate(own, first)]
