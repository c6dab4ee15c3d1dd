"""Reads the lake without Spark, and proves that it is exact."""
