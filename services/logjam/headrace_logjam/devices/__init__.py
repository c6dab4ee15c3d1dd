"""What devices publish: the consumer that says what it did not get."""
