"""Commands that an operator runs: replay while no job runs, erase at any time."""
