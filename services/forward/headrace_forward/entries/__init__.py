"""Builds events from a message's entries: ids, values and options."""
