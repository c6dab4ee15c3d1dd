"""Clients that tools and tests speak with."""

from __future__ import annotations

import pytest
from headrace_common.session.client import Client
from headrace_courier.client import CourierClient
from headrace_courier.wire import HEADER, NONCE_BYTES, PONG, acknowledgement
from headrace_segment.client import SegmentClient
from headrace_segment.wire import original
from headrace_syslog.client import RelpClient
from headrace_syslog.wire.relp import GOODBYE, HINT, RelpFrame

WAITING = CourierClient()


@pytest.mark.parametrize(
    ("client", "reply"),
    [
        (CourierClient(), PONG),
        (WAITING, acknowledgement(WAITING.frame([{}])[HEADER.size :][:NONCE_BYTES], 0)),
        (RelpClient(), RelpFrame(HINT, GOODBYE).encode()),
        (SegmentClient(), original.MESSAGES.encode(original.KeepAlive(b""))),
    ],
    ids=["courier", "courier, while Kafka waits", "relp", "segment"],
)
def test_a_client_hears_all_that_comes_at_once(client: Client, reply: bytes) -> None:
    """It left what a parser does not read in one call until more came: the last answers never."""
    assert len(client.receive(300 * reply)) == 300
