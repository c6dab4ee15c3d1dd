"""What every Headrace receiver shares.

The record (`event`), publishing to Kafka (`publisher`), listening and connections (`server`, `connection`),
bounded inflating (`inflate`), settings, metrics, health over HTTP (`ops`), logs and errors. Nothing here knows any one
protocol.
"""

__version__ = "0.1.0"
