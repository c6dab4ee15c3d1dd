"""Drives one client's conversation: connects its session with the publisher, the budgets and the deadlines."""
