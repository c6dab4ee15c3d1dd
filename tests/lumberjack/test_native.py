"""The native core makes the same of J frames as Python, which `drive` compares."""

from __future__ import annotations

from typing import Any

import pytest
from headrace_common.record.native import MOST_ODD
from headrace_lumberjack.wire import compressed, json_frame, window

from tests.lumberjack.driving import document, drive, session
from tests.native import calls, needs_native

pytestmark = needs_native


def check(*raws: bytes, **limits: Any) -> int:
    """Compares what the cores make of events. Returns in how many calls the native core makes them."""
    data = window(len(raws)) + b"".join(json_frame(1 + n, raw) for n, raw in enumerate(raws))
    assert len(drive([data], **limits).flat) == len(raws)
    return calls(session(**limits), data)


def test_what_beats_send_is_made_in_few_calls() -> None:
    """Else the core would be there and never used."""
    raws = [document(n, message='a "quoted" line\n') for n in range(50)]
    assert check(*raws) == 1
    assert check(*raws, *(document(n, host={"name": f"h{n % 3}"}) for n in range(50))) == 1
    assert check(document(log=None, agent=None, message=None), document(host="h", tags=["t"])) == 1
    frames = b"".join(json_frame(1 + n, document(n)) for n in range(500))
    assert calls(session(), window(500) + compressed(frames)) < 10


@pytest.mark.parametrize("every", [1, 2, 3, 50, 400])
def test_events_that_are_not_plain_among_others(every: int) -> None:
    raws = [document(n, **({"@timestamp": "yesterday"} if n % every == 0 else {})) for n in range(4 * MOST_ODD)]
    assert check(*raws) < 30 or every < 50
