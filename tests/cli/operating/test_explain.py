"""`headrace explain`: what a receiver makes of bytes, and where it stops."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import msgpack
import pytest
from headrace_cli.verbs.explain import explain
from headrace_courier import wire as courier
from headrace_lumberjack import wire as lumberjack

from tests.forward.driving import encode

SEGMENT = Path(__file__).parents[2] / "segment/vectors/original/conv01_block.bin"
BEATS = lumberjack.window(3) + lumberjack.compressed(b"".join(lumberjack.json_frame(n, b"{}") for n in range(1, 4)))
CHUNK = encode("t", [(1, {"n": 0}), (2, {"n": 1})], chunk="c")


@pytest.mark.parametrize(
    ("protocol", "data", "status", "said"),
    [
        ("lumberjack", BEATS, 0, ["event"] * 3 + ["answer"]),
        ("lumberjack", BEATS + BEATS[:-1], 1, ["event"] * 3 + ["answer", "broken"]),
        ("lumberjack", b"GET / HTTP/1.1\r\n\r\n", 1, ["broken"]),
        ("courier", courier.jdat(bytes(16), [b'{"n":0}', b'{"n":1}']), 0, ["event", "event", "answer"]),
        ("courier", courier.jdat(bytes(16), [b"{"]), 1, ["quarantine", "answer"]),
        ("courier", courier.jdat(bytes(16), [bytes(9 << 20)] * 2, level=9), 1, ["broken"]),
        ("forward", CHUNK, 0, ["event", "event", "answer"]),
        ("forward", b'["t",1,{"n":0}]', 0, ["event"]),
        ("forward", CHUNK + b"\xc1", 1, ["event", "event", "answer", "broken"]),
        ("segment", SEGMENT.read_bytes(), 0, ["question"]),
        ("segment", b"\xff" * 16, 1, ["broken"]),
    ],
)
def test_it_shows_what_a_receiver_makes_of_bytes(
    protocol: str, data: bytes, status: int, said: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "bytes").write_bytes(data)
    assert explain(protocol, str(tmp_path / "bytes")) == status
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == said


def test_it_says_where_it_breaks_and_by_which_limit(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The limits are those of the environment."""
    monkeypatch.setenv("HEADRACE_LIMITS__FRAME_BYTES", "1024")
    (tmp_path / "bytes").write_bytes(CHUNK + msgpack.packb(["t", 1, {"n": "x" * 2000}]))
    assert explain("forward", str(tmp_path / "bytes")) == 1
    assert f"broken at byte {len(CHUNK)}: " in (out := capsys.readouterr().out)
    assert "LIMITS__FRAME_BYTES" in out
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(CHUNK)))
    assert explain("forward", "-") == 0
