"""The consumer of devices, which also records the messages that it did not get."""
