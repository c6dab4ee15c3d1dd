"""Fairness between connections: the byte budget decides who reads, the scheduler who works."""
