"""Lands one batch: from Kafka's records to committed rows."""
