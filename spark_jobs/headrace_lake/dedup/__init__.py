"""Deduplication: an index of the ids that landed lately, and how a batch is checked against it.

`index` has the rule; `map_index` and `arrays_index` mark a batch's duplicates; `landing/on_spark.py` leaves the marked rows
out of what it writes, and lists them.
"""
