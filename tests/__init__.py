"""The tests. What they share is imported from here: ``from tests.contract.waiting import until``."""
