"""The gate of mutants: whether the tests still notice small faults. ``python -m tests.gate --help``."""
