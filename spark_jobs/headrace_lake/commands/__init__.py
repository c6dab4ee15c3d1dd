"""Commands that an operator runs while no job runs: replay and migrate."""
