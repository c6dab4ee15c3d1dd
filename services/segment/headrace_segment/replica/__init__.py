"""A replica: it appends to the log of segments on Kafka, reads the log, and answers from what it has read."""
