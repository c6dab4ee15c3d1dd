"""Health and metrics over HTTP: the pages, and the access to them."""
