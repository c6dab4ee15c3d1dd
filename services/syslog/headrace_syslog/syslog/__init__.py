"""Syslog over TCP and UDP, without acknowledgements."""
