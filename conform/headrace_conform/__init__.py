"""Plays clients' conversations against any server, to learn when it acknowledges and what bad input does to it."""
