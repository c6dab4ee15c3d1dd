"""The command line: the stack on one machine, the demo, queries, tests. Only tests and benchmarks import this package."""
