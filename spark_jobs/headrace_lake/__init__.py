"""The landing job: copies both topics into the lake's tables, every record exactly once.

Read in this order: `tables.layout` (the columns), `rows.decode` (a record becomes a row, and never throws), `tables.fence`
(one writer), `kafka.start` (where to begin), `landing.landing` (one batch), `job` (the process).
"""

__version__ = "0.1.0"
