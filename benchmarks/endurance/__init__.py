"""What takes too long for a test: the landing job killed at random, for hundreds of batches, for half an hour of load.

Each command starts an embedded Kafka, runs the job as a process of its own and writes ``benchmarks/results/endurance-*``;
without an exact lake at the end there is no result, but exit status 1.
"""
