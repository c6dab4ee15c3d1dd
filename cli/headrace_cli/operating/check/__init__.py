"""Judges what was stored and what is set: a verdict with reasons, and what to look at next."""
