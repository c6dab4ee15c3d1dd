"""Publishes frames: builds batches, sends them in cycles, and reports what is durable."""
