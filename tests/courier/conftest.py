"""Both cores for the tests of Courier that need no service."""

from __future__ import annotations

from tests.native import core as core
from tests.native import with_both

pytest_generate_tests = with_both
