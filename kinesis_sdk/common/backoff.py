"""Exponential backoff with jitter: the one formula for every pause between failed attempts."""

from __future__ import annotations

from random import Random

_MAX_DOUBLINGS = 30
"""Doublings after which every cap is reached; a larger exponent would overflow a float."""


def backoff(failures: int, initial: float, maximum: float, rng: Random) -> float:
    """Return the seconds to wait before the next attempt.

    The delay doubles with every failure up to ``maximum``. Its upper half is random, so that clients that failed
    together do not retry together, and no retry comes at once. Draws one number from ``rng``.

    Args:
        failures: Consecutive failures so far, at least 1.
        initial: Longest delay in seconds after the first failure.
        maximum: Longest delay in seconds after any number of failures.
        rng: Source of jitter.

    Returns:
        Seconds, from half of ``min(maximum, initial * 2 ** (failures - 1))`` up to all of it.
    """
    longest = min(maximum, initial * 2.0 ** min(failures - 1, _MAX_DOUBLINGS))
    return longest * (0.5 + rng.random() / 2)
