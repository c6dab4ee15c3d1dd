"""The protocol's JSON form: the same messages, as text."""
