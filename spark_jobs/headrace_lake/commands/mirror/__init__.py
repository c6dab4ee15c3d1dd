"""Iceberg tables that list the files of the lake's Delta tables. Needs deltalake and pyiceberg, and no Spark."""
