"""Headrace receiver for the Streaming Service protocol: segments, whose only store is Kafka's log.

Layers: `wire` (bytes to messages and back, both dialects), `store` (the log of segments, and what it means), `session` (what
may be acknowledged), `events` (blocks to records), `appending` (what the owner stores), `replica` (owning, on Kafka);
`questions` are the messages between sessions and the owner.
"""
