"""The stack on one machine: broker, topics, receivers, landing job, and the supervisor that watches them."""
