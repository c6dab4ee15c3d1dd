"""Speaks to receivers as a client: connections, events, and what comes back from quarantine."""
