"""Trials that take too long for a test: random kills of the landing job, half an hour of load.

Each command starts an embedded Kafka, runs the job as a separate process, and writes ``benchmarks/results/endurance-*``. If the
lake is not exact at the end, it writes no result and exits with 1.
"""
