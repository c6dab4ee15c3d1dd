"""Seeds that once failed, with what they found: they run for ever, in every tier."""

from __future__ import annotations

from typing import Final

FOUND: Final[tuple[tuple[str, int, str], ...]] = (
    (
        "segment",
        153,
        "a service that closed its producer was asked for it again and again by its own pump, and never ended",
    ),
    ("logjam", 149, "a consumer that was killed, and stopped before it heard anything, called lost what it had stored"),
    ("logjam", 2493, "what waited for a position of its device had the time of the first message that waited"),
    ("logjam", 1872, "one turn of the loop read a device's messages beyond all budgets"),
    (
        "courier",
        6718,
        "the judge: a lost producer's request was stored behind the marked copy, which is no fault of the order",
    ),
    (
        "logjam",
        19324,
        "the judge: a killed consumer's first message was stored after its successor had looked, and not taken for the first",
    ),
    (
        "lumberjack",
        29374,
        "the judge: a request's first attempt was stored behind the refusal of its second, which is no fault of the order",
    ),
    (
        "logjam",
        951,
        "a marker of refused numbers, stored with a later time, hid a loss of the device's next start",
    ),
    (
        "logjam",
        76066,
        "the judge: of a start that the last position had not come to, all was stored after the successor had looked",
    ),
    ("lumberjack", 56921, "the judge: a request of a lost producer was stored behind its successor's"),
    (
        "courier",
        26737,
        "connections whose partition Kafka had not stored in came back with the credit of all that others had used meanwhile",
    ),
    (
        "courier",
        39915,
        "a refused record made the next producer wait for up to 5 s, as long as its frame may: it was refused again and again",
    ),
    (
        "logjam",
        40864,
        "the judge: a position whose number Kafka had refused was taken for one of the device's next start",
    ),
    (
        "logjam",
        87457,
        "messages of an ended connection that waited to be parsed were taken for the next connection's: its restart was not seen",
    ),
    (
        "logjam",
        93546,
        "a consumer that was killed right after its start left exact positions behind: its losses were not reported",
    ),
    ("segment", 13112, "a service that stopped did not give back the bytes of a block whose client had left"),
)
"""Protocol, seed, and the fault that it found."""
