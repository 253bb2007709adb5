"""Repetitions of a producer: what it writes beside its records, and how readers recognize them."""
