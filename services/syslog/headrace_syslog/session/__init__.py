"""What may be acknowledged, and what cannot be. Pure."""
