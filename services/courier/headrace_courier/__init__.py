"""Headrace receiver for Courier, the protocol of log-courier, in its original and its present form.

Layers: `wire` (bytes to messages and back), `session` (what may be acknowledged), `events` (payloads to records), `client`.
"""
