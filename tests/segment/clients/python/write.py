"""Writes numbered events to a stream of four segments.

python write.py PORT EVENTS MARK
"""

from __future__ import annotations

import sys

import pravega_client

port, count, mark = sys.argv[1:]
manager = pravega_client.StreamManager(f"tcp://127.0.0.1:{port}")
manager.create_scope(mark)
manager.create_stream(mark, "events", 4)
writer = manager.create_writer(mark, "events", 64)
for number in range(int(count)):
    writer.write_event(f"{mark} {number}", routing_key=f"key {number % 10}")
writer.flush()
