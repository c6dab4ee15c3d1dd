"""Processes on one machine: children that are watched and tied to their parent, restart delays, file locks, ports."""
