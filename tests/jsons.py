"""JSON as clients might send it, and bytes that are nearly JSON: for tests that compare the native core with Python."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from typing import Any

from hypothesis import strategies as st

PIECES = [
    b"1", b"-0", b"0.5", b"1e999", b"1.", b"01", b"12345678901234567890123", b"-7", b"true", b"nul", b"null", b"{}", b"[]",
    b'""', b'"a"', b'"\\ud83d\\ude00"', b'"\\ud800"', b'"\\udc00\\ud800"', b'"\\u0000"', b'"\\x"', b'"\x01"', b'"\xff"',
    b'"\xed\xa0\x80"', b'"\xc3\xbc \\n\\"\\\\\\/"', b'{"id":"x"}', b'{"name":"n","name":"m"}', b'{"n\\u0061me":"m"}', b" 5 ",
    b'{"path":"p","inode":"1"}', b'"2026-11-21T09:30:00.000Z"', b'"2026-11-21T09:30:00.123456789Z"', b"\xef\xbb\xbf1",
    b'"2026-11-21 09:30:00.5-0130"', b"[[[[[[[[]]]]]]]]", b"[1,]",
]  # fmt: skip
trees = st.recursive(
    st.none() | st.booleans() | st.text(max_size=4),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=6,
)
values = (
    st.sampled_from(PIECES)
    | st.integers().map(lambda number: b"%d" % number)
    | st.floats().map(lambda number: json.dumps(number).encode())
    | st.text(max_size=20).map(lambda text: json.dumps(text).encode())
    | st.text(max_size=20).map(lambda text: json.dumps(text, ensure_ascii=False).encode("utf-8", "surrogatepass"))
    | trees.map(lambda value: json.dumps(value).encode())
)
spaces = st.sampled_from([b"", b"", b"", b" ", b"\n\t", b"\r", b"\x0c", b"\0"])


@st.composite
def documents(draw: st.DrawFn, names: Mapping[str, Sequence[str]], plain: Mapping[str, Any]) -> bytes:
    """An event of the fields of `plain`, some of them with other values or within other objects. `names`: of fields that are
    read, and of those in them.
    """
    chance = random.Random(draw(st.integers(0, 2**32)))
    fields = {name: json.dumps(value).encode() for name, value in plain.items()}
    for name in draw(st.lists(st.sampled_from(sorted(names)), max_size=3)):
        inner = names[name]
        if bool(inner) and draw(st.booleans()):
            within = plain.get(name)
            inside = {
                key: json.dumps(value).encode() for key, value in (within if isinstance(within, dict) else {}).items()
            }
            for key in draw(st.lists(st.sampled_from(inner), max_size=2)):
                inside[key] = draw(values)
            fields[name] = _object(list(inside.items()), draw(spaces), chance)
        else:
            fields[name] = draw(values)
    members = list(fields.items())
    if draw(st.integers(0, 5)) == 0:  # one of them twice
        members.append((draw(st.sampled_from(sorted(fields))), draw(values)))
    for name in draw(st.lists(st.sampled_from(sorted(names)), max_size=1)):
        members = [member for member in members if member[0] != name]
    return _object(members, draw(spaces), chance)


def _object(members: list[tuple[str, bytes]], space: bytes, chance: random.Random) -> bytes:
    chance.shuffle(members)
    written = (
        b"%b%b%b:%b%b%b" % (space, json.dumps(name).encode(), space, space, value, space) for name, value in members
    )
    return space + b"{" + b",".join(written) + b"}" + space


digits = st.integers(0, 99).map("{:02}".format)
times = st.builds(
    "{}-{}-{}{}{}:{}:{}{}{}".format,
    st.sampled_from(["2026", "0001", "0000", "9999", "2000", "1900", "2O26", "\u0662026"]),
    st.integers(0, 13).map("{:02}".format),
    st.integers(0, 32).map("{:02}".format),
    st.sampled_from("TTTt "),
    st.integers(0, 25).map("{:02}".format),
    digits,
    st.integers(0, 61).map("{:02}".format),
    st.just("") | st.text("0123456789", max_size=12).map(".{}".format) | st.sampled_from([".a", ",1", ".\u0661"]),
    st.sampled_from(["Z", "Z", "Z", "z", "", "+00:00", "-0130"]),
)
