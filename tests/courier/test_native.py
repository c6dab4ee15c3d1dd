"""The native core makes the same of a payload as Python, which `drive` compares."""

from __future__ import annotations

from typing import Any

import pytest
from headrace_common.record.native import MOST_ODD
from headrace_courier.wire import jdat

from tests.courier.driving import NONCE, drive, numbered, session
from tests.native import calls, needs_native

pytestmark = needs_native


def check(*events: bytes, **limits: Any) -> int:
    """Compares what the cores make of events. Returns in how many calls the native core makes them."""
    data = jdat(NONCE, events)
    drive([data], **limits)
    return calls(session(**limits), data)


def test_what_clients_send_is_made_in_few_calls() -> None:
    """Else the core would be there and never used."""
    assert check(*numbered(100)) == 1
    assert check(*numbered(2000)) < 10
    assert check(*numbered(50), *numbered(50, host="h", type="t")) == 1


@pytest.mark.parametrize("every", [1, 2, 3, 50, 400])
def test_events_that_are_not_plain_among_others(every: int) -> None:
    events = numbered(4 * MOST_ODD)
    events[::every] = [b"[]"] * len(events[::every])
    assert check(*events) < 30 or every < 50
