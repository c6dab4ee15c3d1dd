"""Shows what passes: records of the topics, and how the services do."""
