"""The command that looks at segments, without Kafka."""

from __future__ import annotations

import io
from typing import Any, cast

import pytest
from headrace_common.operations.errors import DeliveryError
from headrace_segment import look
from headrace_segment.settings import SegmentSettings

from tests.segment.test_segments import Bench


def test_who_is_asked_and_cannot_answer_has_not_agreed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A script without a terminal."""
    monkeypatch.setattr("sys.stdin", io.StringIO())
    assert not look._sure("s")
    assert "--yes" in capsys.readouterr().err


async def test_what_nobody_could_read_back_is_not_said_to_be_done(monkeypatch: pytest.MonkeyPatch) -> None:
    partition = Bench().partition

    class Producer:
        async def start(self) -> None:
            partition._stopped("the log cannot be read")

        async def send_and_wait(self, *record: Any) -> None: ...

        async def stop(self) -> None: ...

    monkeypatch.setattr(look, "make_producer", lambda *_: cast("Any", Producer()))
    with pytest.raises(DeliveryError, match="the log cannot be read"):
        await look._change(SegmentSettings(), partition, "s", "seal")
