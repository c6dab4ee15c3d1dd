"""The work of a running job besides landing: maintenance, lag, metrics, health."""
