"""What clients say on the wire: explained byte by byte, and said by a client of ours."""
