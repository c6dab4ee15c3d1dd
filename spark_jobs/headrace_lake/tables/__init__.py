"""The lake's tables: their columns and shape, appends under a transaction version, one writer by the fence, erasures."""
