"""Publishes frames: builds batches, sends them in produce cycles, and reports what is durable."""
