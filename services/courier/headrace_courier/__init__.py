"""Headrace receiver for Courier, the protocol of log-courier, as first written and as spoken today.

Layers: `wire` and `entries` (bytes to messages and back), `session` (what may be acknowledged), `events` (payloads to
records), `settings`, `__main__`.
"""
