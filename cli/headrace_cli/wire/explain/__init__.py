"""Bytes of any of the protocols, explained: what each means, and what a receiver does with it."""
