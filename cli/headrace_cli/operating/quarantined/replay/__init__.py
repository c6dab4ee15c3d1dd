"""Reads what is in quarantine once more, with this version and the settings now given, and publishes what is understood."""
