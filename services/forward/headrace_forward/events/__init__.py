"""Messages as frames: their events, built as the publisher asks."""
