"""Reads the lake without Spark, and proves that it is exact: a library for the command line, the live page and programs."""
