"""The handshake with a shared key, and the rules for clients."""
