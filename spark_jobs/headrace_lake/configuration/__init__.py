"""The settings of the landing job."""
