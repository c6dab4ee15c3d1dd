"""Measures what a receiver costs.

Each command starts an embedded Kafka and the receiver, and writes ``benchmarks/results/<command>.json`` and ``.md``. The topic's
end offsets are compared with what was acknowledged: a difference is a failure, not a figure.
"""
