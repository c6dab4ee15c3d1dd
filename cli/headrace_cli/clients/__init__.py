"""Clients of each protocol, for `demo`."""
