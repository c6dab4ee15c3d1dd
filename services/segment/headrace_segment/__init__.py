"""Headrace receiver for the Streaming Service protocol: segments, whose only store is Kafka's log.

Layers: `wire` (bytes to messages and back, both dialects), `store` (the log of segments, and what it means), `session` (what
may be acknowledged), `events` (blocks to records), `serving` (whose question became which record of the log); `questions` are the
words between sessions and the store.
"""
