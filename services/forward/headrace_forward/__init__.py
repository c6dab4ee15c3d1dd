"""Headrace receiver for Fluentd Forward: what fluentd, Fluent Bit and the fluent loggers send.

Layers: `wire` (bytes to messages and back), `session` (what may be acknowledged), `events` (messages to records),
`values` (msgpack to JSON without loss), `settings`, `__main__`.
"""
