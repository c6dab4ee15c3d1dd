"""Commands that an operator runs: replay and migrate while no job runs, erase at any time."""
