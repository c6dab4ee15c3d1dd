"""What is echoed counts until it leaves: a client that says a lot may read all of it, and more comes in than goes out at once."""

from __future__ import annotations

from headrace_common.session.interface import Peer
from headrace_segment.session.limits import Limits
from headrace_segment.session.original import OriginalSession

from tests.driving import NOW_MS
from tests.segment.speaking import keep_alive

LIMITS = Limits(1 << 20, 1 << 20, 1 << 20, 1024, 10)


def test_keep_alives_count_until_they_leave() -> None:
    session = OriginalSession(Peer("192.0.2.1", 1, "a"), LIMITS)
    said = keep_alive(bytes(4096)) * 100
    session.receive(said, NOW_MS)
    assert session.waiting_bytes() >= 100 * 4096
    assert not session.idle()
    heard = b""
    before = session.waiting_bytes()
    while more := session.outgoing():
        heard += more
        assert session.waiting_bytes() < before
        before = session.waiting_bytes()
    assert heard == said
    assert session.waiting_bytes() == 0
    assert session.idle()
