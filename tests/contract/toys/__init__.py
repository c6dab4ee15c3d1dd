"""Two small receivers that only the suite runs: the proof that the seam fits protocols that are no stream with replies."""
