"""The Logjam receiver: what producers send over ZeroMQ, and what devices publish.

Layers: `wire` (frames of a message), `events` (messages to records), `gathering` (messages to frames), `session` (what may be
answered), `reading` and `sockets` (ZeroMQ); `devices` is the consumer.
"""
