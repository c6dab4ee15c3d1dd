"""The pairs of a D frame as a JSON object."""

from __future__ import annotations

from json.encoder import encode_basestring

from headrace_common.record.json_text import Bytes, letters_of

from headrace_lumberjack.wire import DATA_HEADER, HEADER, number_at


def object_of_pairs(frame: Bytes, most: int) -> bytes:
    """Returns the pairs as they came, a repeated key and bytes that are not UTF-8, too; of an object of more than `most` bytes at
    least so many that this shows.
    """
    out, at = bytearray(b"{"), DATA_HEADER
    for number in range(2 * number_at(frame, HEADER)):
        if number:
            out += b":" if number % 2 else b","
        end = at + 4 + number_at(frame, at)
        out += b'"'
        for letters in letters_of(frame[at + 4 : end]):
            out += encode_basestring(letters)[1:-1].encode("utf-8", "surrogateescape")
            if len(out) > most:
                return bytes(out)
        out += b'"'
        at = end
    out += b"}"
    return bytes(out)
