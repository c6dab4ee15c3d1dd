"""The data on Kafka: CloudEvents records, quarantine records, Kafka's record format, and JSON that passes through."""
