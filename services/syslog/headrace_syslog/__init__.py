"""Headrace receivers for syslog: by RELP, which acknowledges, and over TCP and UDP, which cannot.

Layers: `wire` (bytes to messages and back), `session` (what may be acknowledged), `events` (messages to records), `client`.
"""
