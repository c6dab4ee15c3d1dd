"""Verbs for a headrace that runs: watching what passes, checking what was stored, pointing clients at it."""
