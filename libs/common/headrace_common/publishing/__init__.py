"""Publishes frames: builds batches, sends them in cycles, and reports the stored frames."""
