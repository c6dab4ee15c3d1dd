"""A client of ours for any receiver: sends lines or made-up events, and counts the acknowledged ones."""
