"""Turns records into rows, and counts them on the way."""
