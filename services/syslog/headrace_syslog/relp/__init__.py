"""RELP, rsyslog's protocol for syslog messages: each is acknowledged by its number."""
