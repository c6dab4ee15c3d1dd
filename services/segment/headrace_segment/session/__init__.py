"""The conversations, pure: one module for each dialect, and what they share."""
