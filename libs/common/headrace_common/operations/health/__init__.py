"""Health and metrics over HTTP: what is served, and who may ask."""
