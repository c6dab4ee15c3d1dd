"""Headrace receiver for OTLP, the protocol of OpenTelemetry: logs over HTTP, as protobuf or JSON.

Layers: `wire` (bytes to requests, and answers to bytes), `logs` (a request's body to records), `session` (what may be
acknowledged), `values` and `events` (records to events), `client`.
"""
