"""Clients that break off, send harmful bytes, do not listen: the sound events beside must not suffer."""
