"""The tables together with what Kafka alone holds: events that were acknowledged and have not landed yet."""
