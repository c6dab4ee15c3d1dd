"""What people reach for while it runs: watching what passes, checking what was stored, pointing clients at it."""
