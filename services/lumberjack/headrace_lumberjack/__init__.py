"""Headrace receiver for Lumberjack v1 and v2: what Beats, Elastic Agent, Logstash and logstash-forwarder send.

Layers: `wire` (bytes to frames and back), `content` (a compressed frame, bounded), `flow` (which frame may follow which),
`session` (what may be acknowledged, and when), `events` (frames to records), `identity` (event ids), `settings`,
`__main__`.
"""
