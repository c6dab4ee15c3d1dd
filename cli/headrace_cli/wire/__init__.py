"""Verbs for bytes on the wire: explained one by one, sent by a client of ours, and checked for losses."""
