"""The library that every Headrace receiver uses.

The record (`record`), the seam to a protocol (`session`), publishing to Kafka (`publishing`, `kafka`), listening and
connections (`listening`, `connection`), budgets and scheduling (`fairness`), settings, metrics, health over HTTP, logs and
errors (`operations`), and the process (`service`). Nothing here knows any one protocol.
"""

__version__ = "0.1.0"
