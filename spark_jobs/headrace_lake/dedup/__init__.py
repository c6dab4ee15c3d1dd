"""Deduplication: an index of the ids that landed lately, and how a batch is checked against it."""
