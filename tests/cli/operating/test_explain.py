"""`headrace explain`: the fields of the bytes, what a receiver does with them, and where they break."""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgpack
import pytest
from headrace_cli.wire.explain import stream
from headrace_cli.wire.explain.stream import EXPLANATIONS, Explainer
from headrace_cli.wire.explain.verb import explain, lines
from headrace_courier import wire as courier
from headrace_forward import wire as forward
from headrace_logjam import wire as logjam
from headrace_lumberjack import wire as lumberjack
from headrace_segment.wire import messages as today
from hypothesis import given
from hypothesis import strategies as st

from tests.courier.driving import drive as drive_courier
from tests.courier.driving import payload
from tests.driving import at_random
from tests.forward.driving import drive as drive_forward
from tests.lumberjack.driving import drive as drive_lumberjack

VECTORS = Path(__file__).parents[2]
NONCE = bytes(range(16))
PATTERNS = (
    "lumberjack/vectors/*.c2s.bin",
    "courier/vectors/*.c2s.bin",
    "forward/vectors/*.bin",
    "forward/vectors/edge/*.bin",
)
CAPTURES = sorted(path for pattern in PATTERNS for path in VECTORS.glob(pattern))
DRIVERS: dict[str, Callable[..., Any]] = {
    "courier": drive_courier,
    "forward": drive_forward,
    "lumberjack": drive_lumberjack,
}
BEATS = lumberjack.encode([{"n": n} for n in range(3)])
PAYLOAD = courier.jdat(NONCE, [b'{"n":0}', b'{"n":1}'])
CHUNK = forward.encode("t", [(1, {"n": 0}), (2, {"n": 1})], chunk="c")
FRAMES = [b"shop-production", b"logs.shop", b'{"n":0}', logjam.encode_meta(logjam.Meta())]
LOGJAM = logjam.joined([*FRAMES[:2], b'{"n":"' + b"x" * 2000 + b'"}', FRAMES[3]])


def bomb() -> bytes:
    """Made, and compressed, where it is used: each worker imports this module."""
    return bytes(90 << 20)


@pytest.fixture
def explained(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, list[Any], Any]]:
    """The exit status, the frames, and the totals."""

    def run(data: bytes, **options: Any) -> tuple[int, list[Any], Any]:
        path = tmp_path / "bytes"
        path.write_bytes(data)
        status = explain(str(path), as_json=True, **options)
        *frames, totals = map(json.loads, capfd.readouterr().out.splitlines())
        return status, frames, totals

    return run


Explained = Callable[..., tuple[int, list[Any], Any]]


@pytest.mark.parametrize("path", CAPTURES, ids=lambda path: path.stem)
def test_it_says_what_the_receiver_does(path: Path, explained: Explained) -> None:
    data = path.read_bytes()
    protocol = path.relative_to(VECTORS).parts[0]
    outcome = DRIVERS[protocol]([data])
    status, frames, totals = explained(data, protocol=protocol, parts=100_000, frames=1000)
    assert totals["events"] == len(outcome.events)
    assert sum(totals["quarantine"].values()) == len(outcome.rejects)
    bodies = [event["body"] for frame in frames for event in frame["events"] if "body" in event]
    assert bodies == [event.content for event in outcome.events if not isinstance(event.content, bytes)]
    assert (totals["broken"] is None) is (outcome.error is None)
    if outcome.error is not None:
        assert totals["broken"]["why"] == str(outcome.error)
        assert totals["broken"]["offset"] == outcome.error.offset
        assert totals["unread"] == len(data) - outcome.error.offset
    assert status == int(outcome.error is not None or bool(outcome.rejects))
    at = 0
    for frame in frames:  # they stand side by side, and their fields lie within
        if "offset" not in frame:
            continue
        assert frame["offset"] == at
        at += frame["size"]
        for each in frame["fields"]:
            if not each.get("inflated"):
                assert frame["offset"] <= each["offset"]
                assert each["offset"] + each["size"] <= at
                begin = each["offset"]
                assert data[begin : begin + len(each["hex"]) // 2].hex() == each["hex"]


@pytest.mark.parametrize(
    ("data", "protocol"),
    [
        *((path.read_bytes(), path.relative_to(VECTORS).parts[0]) for path in CAPTURES[:30] if path.parent.name != "edge"),
        (logjam.joined(FRAMES), "logjam"),
        (PAYLOAD, "courier"),
        (courier.PING, "courier"),
        (BEATS, "lumberjack"),
        (CHUNK, "forward"),
        (b'["t",1,{"n":0}]', "forward"),
        *((path.read_bytes(), "segment") for path in (VECTORS / "segment/vectors/original").glob("conv0?_*block*.bin")),
        *((path.read_bytes(), "segment") for path in (VECTORS / "segment/vectors/pravega-0.13.0").glob("append_s*.bin")),
    ],
)  # fmt: skip
def test_it_finds_the_protocol(data: bytes, protocol: str) -> None:
    assert stream.protocol_of(data) == protocol


def test_a_window_field_by_field(explained: Explained) -> None:
    status, (window, compressed), totals = explained(BEATS)
    assert status == 0
    assert [(each["offset"], each["hex"]) for each in window["fields"]] == [(0, "32"), (1, "57"), (2, "00000003")]
    assert compressed["kind"] == "C"
    assert compressed["replies"] == ["A all events up to number 3 are stored"]
    assert [each["offset"] for each in compressed["fields"] if each.get("inflated")] == [0, 17, 34]
    assert totals == {
        "protocol": "lumberjack", "bytes": len(BEATS), "frames": 2, "events": 3, "quarantine": {}, "replies": 1,
        "broken": None, "unread": 0,
    }  # fmt: skip


def test_a_segments_blocks_are_answered(explained: Explained) -> None:
    data = (VECTORS / "segment/vectors/original/conv01_block.bin").read_bytes()
    status, frames, totals = explained(data)
    assert (status, totals["events"], totals["replies"]) == (0, 2, 2)
    assert [frame["kind"] for frame in frames] == [
        "SETUP_APPEND", "BEGIN_APPEND_BLOCK", "EVENT", "EVENT", "END_APPEND_BLOCK",
    ]  # fmt: skip


def test_the_answers_of_a_segments_conversation_are_of_one_dialect(explained: Explained) -> None:
    folder = VECTORS / "segment/vectors/pravega-0.13.0"
    _, (hello, setup), _ = explained(
        b"".join((folder / f"{name}.bin").read_bytes() for name in ("hello", "setup_append"))
    )
    assert hello["replies"] == ["HELLO high 17, low 5"]
    (answer,) = setup["replies"]
    assert answer.startswith("APPEND_SETUP request 4294967298, ")


def test_each_question_of_a_segments_client_is_answered(explained: Explained) -> None:
    asked: list[Any] = [
        today.Hello(17, 5),
        today.CreateSegment(1, "a", 0, 0),
        today.GetSegmentInfo(2, "a"),
        today.ReadSegment("a", 0, 8),
        today.GetSegmentAttribute(3, "a", NONCE),
        today.UpdateSegmentAttribute(4, "a", NONCE, 1, 0),
        today.TruncateSegment(5, "a", 0),
        today.SealSegment(6, "a"),
    ]
    status, frames, _ = explained(b"".join(map(today.MESSAGES.encode, asked)))
    assert status == 0
    replies = [reply.split()[0] for frame in frames for reply in frame["replies"]]
    assert replies == [
        "HELLO", "SEGMENT_CREATED", "SEGMENT_INFO", "SEGMENT_READ", "SEGMENT_ATTRIBUTE", "SEGMENT_ATTRIBUTE_UPDATED",
        "SEGMENT_TRUNCATED", "SEGMENT_SEALED",
    ]  # fmt: skip


def test_a_logjam_message(explained: Explained) -> None:
    status, (message,), totals = explained(logjam.joined(FRAMES))
    assert (status, totals["events"], message["replies"]) == (0, 1, ["shop-production 202 Accepted"])
    status, (message,), totals = explained(logjam.joined([*FRAMES[:2], b"{", FRAMES[3]]))
    assert (status, totals["quarantine"], message["replies"]) == (
        1,
        {"bad_json": 1},
        ["shop-production 400 Bad Request"],
    )
    status, _, totals = explained(logjam.joined(FRAMES)[:-1], protocol="logjam")
    assert (status, totals["unread"]) == (1, len(logjam.joined(FRAMES)) - 1)


@pytest.mark.parametrize(("protocol", "data"), [("lumberjack", BEATS), ("courier", PAYLOAD), ("forward", CHUNK)])
def test_half_a_frame_is_named_by_its_byte(protocol: str, data: bytes, explained: Explained) -> None:
    for size in range(1, len(data)):
        status, _, totals = explained(data + data[:size], protocol=protocol)
        assert status == 1
        assert totals["broken"]["offset"] == len(data)
        assert totals["unread"] == size


@pytest.mark.parametrize(
    ("made", "limit"),
    [
        (lambda: lumberjack.window(1) + lumberjack.compressed(lumberjack.json_frame(1, bomb()), 9), "LIMITS__INFLATED_BYTES"),
        (lambda: courier.jdat(NONCE, [bytes(9 << 20)] * 8), "LIMITS__INFLATED_BYTES"),
        (lambda: courier.jdat(NONCE, [bytes(9 << 20)] * 2, level=9), "LIMITS__RATIO"),
        (lambda: payload(bomb(), level=9), "LIMITS__FRAME_EVENTS"),
    ],
    ids=["lumberjack", "courier, eight events", "courier, two events", "courier, a payload"],
)  # fmt: skip
def test_a_bomb_is_named_and_breaks_the_stream(made: Callable[[], bytes], limit: str, explained: Explained) -> None:
    status, _, totals = explained(made())
    assert (status, totals["events"], totals["broken"]["limit"]) == (1, 0, limit)


def test_a_bomb_in_a_chunk_goes_to_quarantine(explained: Explained) -> None:
    data = msgpack.packb(["t", gzip.compress(bomb()), {"compressed": "gzip", "chunk": "c"}])
    status, (message,), totals = explained(data)
    assert (status, totals["quarantine"], totals["broken"]) == (1, {"inflated_limit": 1}, None)
    assert message["replies"] == ["ack all of chunk 'c' is stored"]


def test_a_login_is_not_shown(explained: Explained) -> None:
    data = (VECTORS / "forward/vectors/flb-auth.0.bin").read_bytes()
    status, (login, *_), totals = explained(data)
    assert (status, login["kind"]) == (1, "PING")
    assert "SHARED_KEY" in totals["broken"]["why"]
    assert all(not each["hex"] and "alice" not in each["meaning"] for each in login["fields"][1:])


def test_what_is_explained_is_not_called_unread(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = (VECTORS / "forward/vectors/flb-auth.0.bin").read_bytes()
    (tmp_path / "x").write_bytes(data)
    assert explain(str(tmp_path / "x"), as_json=True) == 1
    login, *_, totals = map(json.loads, capsys.readouterr().out.splitlines())
    assert explain(str(tmp_path / "x")) == 1
    shown = capsys.readouterr().out
    assert totals["broken"]["offset"] == login["offset"] == 0
    assert "It breaks" not in shown
    assert f"{len(data) - login['size']:,} bytes after what is explained above" in " ".join(shown.split())


def test_what_is_shown_is_bounded_and_the_rest_counted(
    explained: Explained, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    data = lumberjack.encode([{"n": n} for n in range(50)])
    _, frames, totals = explained(data * 20, parts=2, frames=3)
    assert (len(frames), totals["frames"], totals["events"]) == (3, 40, 1000)
    assert (len(frames[1]["events"]), frames[1]["events_left_out"], frames[1]["fields_left_out"]) == (2, 48, 48)
    (tmp_path / "x").write_bytes(data * 20 + b"3")
    assert explain(str(tmp_path / "x"), parts=2, frames=3) == 1
    shown = capfd.readouterr().out
    assert "… 37 more frames" in shown
    assert f"It breaks at byte {len(data) * 20:,}" in shown
    assert "1 byte from there on is not read" in shown


@pytest.mark.parametrize(
    ("content", "name"), [(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "HTTP"), (b"\x16\x03\x01\x02\x00\x01", "TLS")]
)
def test_what_is_none_of_ours_has_its_name_where_a_protocol_was_named(
    content: bytes, name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "x").write_bytes(content)
    assert explain(str(tmp_path / "x"), protocol="forward") == 1
    assert f"These bytes are {name}" in " ".join(capsys.readouterr().out.split())


@given(st.binary(min_size=1, max_size=300), st.sampled_from(sorted(EXPLANATIONS)))
def test_any_bytes_end_in_a_sentence(data: bytes, protocol: str) -> None:
    ends_in_a_sentence(data, protocol)


def test_any_damage_ends_in_a_sentence() -> None:
    for protocol, data in (
        ("lumberjack", BEATS),
        ("courier", PAYLOAD),
        ("forward", CHUNK),
        ("logjam", logjam.joined(FRAMES)),
    ):
        for seed in range(200):
            chance = random.Random(seed)
            damaged = bytearray(data * 2)
            for _ in range(chance.randint(1, 4)):
                damaged[chance.randrange(len(damaged))] = chance.randrange(256)
            ends_in_a_sentence(bytes(damaged), protocol)


def ends_in_a_sentence(data: bytes, protocol: str) -> None:
    """Whatever the pieces are, the totals are the same."""
    totals = []
    for pieces in ([data], list(at_random(data, random.Random(1)))):
        explainer = Explainer(iter(pieces), protocol, 2)
        for each in explainer.run(1_700_000_000_000):
            assert all("\n" not in line.plain for line in lines(each))
        totals.append(replace(explainer.summary, sample=b""))
    assert totals[0] == totals[1]


@pytest.mark.parametrize(
    ("data", "protocol", "setting", "inside"),
    [
        (courier.jdat(NONCE, [b'{"n":"' + b"x" * 2000 + b'"}']), "courier", "LIMITS__EVENT_BYTES", 2008),
        (LOGJAM, "logjam", "LIMITS__EVENT_BYTES", 2008),
    ],
)
def test_limits_are_those_of_the_environment(
    data: bytes, protocol: str, setting: str, inside: int, explained: Explained, monkeypatch: pytest.MonkeyPatch
) -> None:
    for limit, status in ((inside, 0), (inside - 1, 1)):
        monkeypatch.setenv(f"HEADRACE_{setting}", str(limit))
        assert explained(data, protocol=protocol)[0] == status
