"""The contract: one behaviour suite that every receiver passes, given its `Dialect`.

A receiver runs as a process of its own, with a real Kafka, and is spoken to over sockets. `dialect` is the seam to a
protocol, `receiver` the process under test, `topic` what Kafka has stored.
"""
