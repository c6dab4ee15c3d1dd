"""Kafka clients: how they are configured, created and replaced."""
