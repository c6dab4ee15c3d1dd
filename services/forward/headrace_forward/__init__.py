"""Headrace receiver for Fluentd Forward, the protocol of fluentd, Fluent Bit and the fluent loggers.

Layers: `wire` (bytes to messages and back), `session` (what may be acknowledged), `handshake` (the login), `events` (messages
to frames), `entries` (entries to records), `json_form` (the same protocol as JSON), `heartbeat` (UDP), `settings`.
"""
