"""Java and the jars: found on this machine, or fetched once."""
