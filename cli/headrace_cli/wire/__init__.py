"""What clients say on the wire: explained byte by byte, said by a client of ours, and whether any of it was lost."""
