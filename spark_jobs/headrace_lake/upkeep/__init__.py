"""What a running job does besides landing: maintenance, lag, metrics, health."""
