"""The lake's tables: their columns, their shape, appends under a transaction version, and the fence: one writer only."""
