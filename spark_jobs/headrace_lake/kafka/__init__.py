"""Kafka as the job sees it: offsets, the start position, the checkpoint, watermarks and gaps."""
