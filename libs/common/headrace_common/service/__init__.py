"""A receiver's process: its parts, its order of starting and stopping, and its entry point."""
