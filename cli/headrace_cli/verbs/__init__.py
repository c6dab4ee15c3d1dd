"""The verbs of the stack, the lake and the checkout; what the others print with."""
