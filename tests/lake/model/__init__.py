"""The landing job without Spark: its own decisions over tables and topics in memory, killed between any two steps."""
