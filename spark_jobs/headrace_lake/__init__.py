"""The landing job: carries both topics into the lake's tables, every record exactly once.

Read in this order: `tables` (what is kept), `decode` (a record becomes a row, and never throws), `fence` (one writer),
`start` (where to begin), `landing` (one batch), `job` (the process).
"""

__version__ = "0.1.0"
