"""What arrives at once is looked through a slice at a time, however tiny its pieces; what comes of it is the same."""

from __future__ import annotations

from headrace_forward.wire import FIRST_PIECE

from tests.forward.driving import NOW_MS, drive, one_by_one, session

TINY = b"\x93\xa1t\x01\x80"


def slices(data: bytes) -> list[int]:
    """How many frames each slice of work on `data` gave."""
    driven = session()
    driven.receive(data, NOW_MS)
    given = [len(list(driven.frames()))]
    while driven.status().busy:
        driven.receive(b"", NOW_MS)
        given.append(len(list(driven.frames())))
    driven.eof()
    return given


def test_heartbeats() -> None:
    assert sum(slices(b"\xc0" * (4 << 20) + TINY)) == 1
    given = slices((b"\xc0" * 1023 + TINY) * 999)
    assert sum(given) == 999
    assert len(given) > 5


def test_heartbeats_in_any_number_lose_no_place() -> None:
    """What follows them is found, and what is wrong is told at its offset."""
    many = FIRST_PIECE
    for number in (many - 1, many, many + 1, 3 * many):
        beats = b"\xc0" * number
        data = beats + TINY + beats + beats + TINY
        for pieces in ([data], [data[: many // 2], data[many // 2 :]], one_by_one(data)):
            assert len(drive(pieces).events) == 2
        outcome = drive([data + b"\x07"])
        assert outcome.error is not None
        assert outcome.error.offset == len(data)


def test_a_long_json_message_is_searched_in_slices() -> None:
    """One search through all that a socket delivers at once took 25 ms, for which everybody else waited."""
    given = slices(b'["t",[' + b'[1,{"m":"\\"]"}],' * 40_000 + b'[1,{}]],{"chunk":"c"}] ')
    assert sum(given) == 1
    assert len(given) > 5
