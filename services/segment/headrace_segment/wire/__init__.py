"""The Streaming Service protocol on the wire, in both dialects. Pure: no sockets, no clock.

A message is a type (i32), a length (u32, at most 24 bits) and its bytes, all big-endian. The type numbers are the same in
both dialects; the bodies are not.
"""
