"""Accounting of runs: what was put, what was processed, and whether one explains the other."""
