"""Accepts clients: stream sockets, TLS, the PROXY protocol."""
