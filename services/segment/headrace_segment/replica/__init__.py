"""One process of the service: it owns the log of segments on Kafka, appends to it and reads it, or stands by."""
