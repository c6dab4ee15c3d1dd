"""Syslog on the wire: `message` is what a message says, the others are what carries messages. Pure."""
