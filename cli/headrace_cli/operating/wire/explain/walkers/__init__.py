"""Bytes cut into the frames of each protocol, by the wire layer of its receiver. They describe; they decide nothing."""
