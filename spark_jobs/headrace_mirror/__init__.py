"""Iceberg tables beside the Delta tables of a lake, of the same files. Needs no Spark."""
