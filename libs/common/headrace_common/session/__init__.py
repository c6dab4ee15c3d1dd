"""The seam between a protocol and everything else, and the building blocks of every session. Pure."""
