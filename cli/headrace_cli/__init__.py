"""The command line: the stack on one machine, its demonstration, its tests. Nothing imports this package but tests."""
