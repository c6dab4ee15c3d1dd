"""Reads what runs and what was stored, for several verbs and the live page."""
