"""The promise, on a real Kafka that fails in real ways."""
