"""Headrace receiver for Lumberjack v1 and v2, the protocol of Beats, Elastic Agent, Logstash and logstash-forwarder.

Layers: `wire` (bytes to windows and events, and back), `session` (what may be acknowledged, and when), `events` (frames to
records), `identity` (event ids).
"""
