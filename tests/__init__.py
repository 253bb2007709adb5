"""Unit tests."""

import sys

# Container images often forbid bytecode. pytest would then rewrite the asserts of Hypothesis and of all test modules in each process of
# each run, which takes as long as a tenth of the tests. `tests.conftest` imports Hypothesis, so it would be too late.
sys.dont_write_bytecode = False

HANG = 300.0
"""Seconds after which something is broken, on a machine of any speed: a test that passes never waits for this."""
